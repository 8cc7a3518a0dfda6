/** Who of the pages that share a document writes a run's output into it. */

import type { NotebookPanel } from '@jupyterlab/notebook';

const FIELD = 'jupyterGpuRelease';

/** What a page tells the others. */
interface IPeerState {
  /** ids of the cells whose output its own kernel connection brings */
  receives: string[];
  /** how often it has come back: others who missed that say who they are */
  returns?: number;
}

/** The part of y-websocket's provider that is used here: the document's line to its server. */
interface ILine {
  /** false: it was given up, another took its place */
  shouldConnect?: boolean;
  wsconnected: boolean;
  synced: boolean;
  on(event: 'sync', listener: (isSynced: boolean) => void): void;
  off(event: 'sync', listener: (isSynced: boolean) => void): void;
}

/** The part of y-protocols' awareness that is used here. */
interface IAwareness {
  clientID: number;
  getStates(): Map<number, Record<string, unknown>>;
  setLocalStateField(field: string, value: unknown): void;
  on(event: 'change', listener: AwarenessListener): void;
  off(event: 'change', listener: AwarenessListener): void;
}

/** `origin`: the line that brought the change, or `local` */
type AwarenessListener = (change?: unknown, origin?: unknown) => void;

/** The pages that have a notebook open; without real-time collaboration, this one. */
export class Peers {
  constructor(
    panel: NotebookPanel,
    /** `areNew`: pages came or went, else they receive other cells */
    private _onChange: (areNew: boolean) => void,
    /** the line to the server was lost */
    private _onParted: () => void = () => undefined
  ) {
    const shared = panel.content.model?.sharedModel as
      { awareness?: IAwareness } | undefined;
    this._awareness = shared?.awareness ?? null;
    this.tell([]);
    this._greeted = this._comings();
    this._seen = this._outline();
    this._awareness?.on('change', this._onAwareness);
  }

  dispose(): void {
    this._awareness?.off('change', this._onAwareness);
    this._line?.off('sync', this._onSync);
  }

  /** Tell the others which cells this page receives by itself. */
  tell(receives: string[]): void {
    const text = JSON.stringify(receives);
    if (text !== this._told) {
      this._told = text;
      this._say(receives);
    }
  }

  /** Whether what the others write does not reach this page for now; then it seems to be alone. */
  get areApart(): boolean {
    const line = this._line;
    return (
      line !== null &&
      line.shouldConnect !== false &&
      !(line.wsconnected && line.synced)
    );
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
  private _onAwareness: AwarenessListener = (_, origin) => {
    this._learn(origin);
    const outline = this._outline();
    if (outline !== this._seen) {
      this._seen = outline;
      const before = this._greeted;
      this._greet();
      const areNew =
        before.size !== this._greeted.size ||
        [...before].some(coming => !this._greeted.has(coming));
      this._onChange(areNew);
    }
  };

  /** The line brings what others say, and takes them away with it. */
  private _learn(origin: unknown): void {
    if (isLine(origin) && origin !== this._line) {
      this._line?.off('sync', this._onSync);
      this._line = origin;
      origin.on('sync', this._onSync);
      if (this.areApart) {
        this._onParted();
      }
    }
  }

  /** With its line a page forgets the others, and what they have said before does not count again. */
  private _onSync = (isSynced: boolean) => {
    if (isSynced) {
      this._returns += 1;
      this._say(JSON.parse(this._told) as string[]);
    } else {
      this._onParted();
    }
    this._onChange(true);
  };

  /** Who comes later hears of those who are there when they say something: 15 s later, if nobody greets. */
  private _greet(): void {
    const comings = this._comings();
    const isGreeting = [...comings].some(coming => !this._greeted.has(coming));
    this._greeted = comings;
    if (isGreeting) {
      this._say(JSON.parse(this._told) as string[]);
    }
  }

  private _say(receives: string[]): void {
    const state: IPeerState = { receives, returns: this._returns };
    this._awareness?.setLocalStateField(FIELD, state);
  }

  private _comings(): Set<string> {
    return new Set(
      this._states()
        .filter(([client]) => client !== this._awareness?.clientID)
        .map(([client, { returns }]) => `${client} ${returns ?? 0}`)
    );
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
  private _greeted = new Set<string>();
  private _line: ILine | null = null;
  private _returns = 0;
}

function isLine(origin: unknown): origin is ILine {
  const line = origin as Partial<ILine> | null | undefined;
  return (
    typeof line?.wsconnected === 'boolean' &&
    typeof line.synced === 'boolean' &&
    typeof line.on === 'function' &&
    typeof line.off === 'function'
  );
}
