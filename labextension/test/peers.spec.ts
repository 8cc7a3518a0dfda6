import type { NotebookPanel } from '@jupyterlab/notebook';
import { Peers } from '../src/outputs/peers';

/** What a page knows of the others: only what they say while it is there. */
class Awareness {
  constructor(
    readonly clientID: number,
    private _room: Awareness[]
  ) {
    _room.push(this);
  }

  getStates(): Map<number, Record<string, unknown>> {
    return this._states;
  }

  setLocalStateField(field: string, value: unknown): void {
    this._room.forEach(page => page.hear(this.clientID, { [field]: value }));
  }

  hear(client: number, state: Record<string, unknown>): void {
    this._said += 1;
    this._states.set(client, state);
    this._listeners.forEach(listener => listener());
  }

  on(_: 'change', listener: () => void): void {
    this._listeners.add(listener);
  }

  off(_: 'change', listener: () => void): void {
    this._listeners.delete(listener);
  }

  get said(): number {
    return this._said;
  }

  private _states = new Map<number, Record<string, unknown>>();
  private _listeners = new Set<() => void>();
  private _said = 0;
}

describe('pages that share a notebook', () => {
  it('know of each other at once, whoever came first, so one of them writes', () => {
    const room: Awareness[] = [];
    const open = (client: number) => {
      const awareness = new Awareness(client, room);
      const model = { sharedModel: { awareness } };
      const panel = { content: { model } } as unknown as NotebookPanel;
      return { awareness, peers: new Peers(panel, () => undefined) };
    };
    const pages = [open(20), open(10), open(30)];
    expect(pages.map(({ peers }) => peers.areThere)).toEqual([
      true,
      true,
      true
    ]);
    expect(pages.map(({ peers }) => peers.isMine('cell'))).toEqual([
      false,
      true,
      false
    ]);
    expect(pages[0].awareness.said).toBeLessThan(20); // and then they are silent
    pages[2].peers.tell(['cell']);
    expect(pages.map(({ peers }) => peers.isMine('cell'))).toEqual([
      false,
      false,
      false
    ]);
  });
});
