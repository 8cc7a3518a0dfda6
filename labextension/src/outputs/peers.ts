/** Who of the pages that share a document writes a run's output into it. */

import type { NotebookPanel } from '@jupyterlab/notebook';

const FIELD = 'jupyterGpuRelease';

/** What a page tells the others. */
interface IPeerState {
  /** ids of the cells whose output its own kernel connection brings */
  receives: string[];
}

/** The part of y-protocols' awareness that is used here. */
interface IAwareness {
  clientID: number;
  getStates(): Map<number, Record<string, unknown>>;
  setLocalStateField(field: string, value: unknown): void;
  on(event: 'change', listener: () => void): void;
  off(event: 'change', listener: () => void): void;
}

/** The pages that have a notebook open; without real-time collaboration, this one. */
export class Peers {
  constructor(
    panel: NotebookPanel,
    private _onChange: () => void
  ) {
    const shared = panel.content.model?.sharedModel as
      { awareness?: IAwareness } | undefined;
    this._awareness = shared?.awareness ?? null;
    this.tell([]);
    this._greeted = new Set(this._states().map(([client]) => client));
    this._seen = this._outline();
    this._awareness?.on('change', this._onAwareness);
  }

  dispose(): void {
    this._awareness?.off('change', this._onAwareness);
  }

  /** Tell the others which cells this page receives by itself. */
  tell(receives: string[]): void {
    const text = JSON.stringify(receives);
    if (text !== this._told) {
      this._told = text;
      this._say(receives);
    }
  }

  get areThere(): boolean {
    return this._states().length > 1;
  }

  /** Whether it falls to this page to bring the cell up to date. */
  isMine(cell: string): boolean {
    const states = this._states();
    const own = this._awareness?.clientID;
    const first = Math.min(...states.map(([client]) => client));
    return (
      own === undefined ||
      (first === own &&
        !states.some(
          ([client, { receives }]) => client !== own && receives.includes(cell)
        ))
    );
  }

  /** Cursors move all the time; only who is there, and who receives what, counts. */
  private _onAwareness = () => {
    const outline = this._outline();
    if (outline !== this._seen) {
      this._seen = outline;
      this._greet();
      this._onChange();
    }
  };

  /** Who comes later hears of those who are there when they say something: 15 s later, if nobody greets. */
  private _greet(): void {
    const clients = this._states().map(([client]) => client);
    const isGreeting = clients.some(client => !this._greeted.has(client));
    this._greeted = new Set(clients);
    if (isGreeting) {
      this._say(JSON.parse(this._told) as string[]);
    }
  }

  private _say(receives: string[]): void {
    this._awareness?.setLocalStateField(FIELD, { receives });
  }

  private _outline(): string {
    return JSON.stringify(this._states().sort(([a], [b]) => a - b));
  }

  private _states(): [number, IPeerState][] {
    const found: [number, IPeerState][] = [];
    this._awareness?.getStates().forEach((state, client) => {
      const own = state[FIELD] as IPeerState | undefined;
      if (own) {
        found.push([client, own]);
      }
    });
    return found;
  }

  private _awareness: IAwareness | null;
  private _seen: string;
  private _told = '';
  private _greeted = new Set<number>();
}
