type AwarenessListener = (change: unknown, origin: unknown) => void;

/** As y-websocket's: a page's line to the server. */
class Line {
  wsconnected = true;
  synced = true;

  on(_: 'sync', listener: (isSynced: boolean) => void): void {
    this._listeners.add(listener);
  }

  off(_: 'sync', listener: (isSynced: boolean) => void): void {
    this._listeners.delete(listener);
  }

  change(isThere: boolean): void {
    this.wsconnected = this.synced = isThere;
    this._listeners.forEach(listener => listener(isThere));
  }

  private _listeners = new Set<(isSynced: boolean) => void>();
}

/** What a page knows of the others: only what they say while it is there, and what it has not heard before. */
export class Awareness {
  readonly line = new Line();

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
    this._clock += 1;
    this._own = { [field]: value };
    this.say();
  }

  /** Say what was said before once more: so does a page that comes back. */
  say(): void {
    for (const page of this._room) {
      if (page === this || (this.line.wsconnected && page.line.wsconnected)) {
        page._hear(this);
      }
    }
  }

  /** The line to the server is lost, and the others with it; or it is there again. */
  connect(isThere: boolean): void {
    if (isThere) {
      this.line.wsconnected = true;
      this.say();
    }
    this.line.change(isThere);
    if (!isThere) {
      [...this._states.keys()]
        .filter(client => client !== this.clientID)
        .forEach(client => this._states.delete(client));
      this._tell(this.line);
    }
  }

  private _hear(page: Awareness): void {
    const { clientID: client, _clock: clock } = page;
    if (clock > (this._clocks.get(client) ?? 0)) {
      this._said += 1;
      this._clocks.set(client, clock);
      this._states.set(client, page._own);
      this._tell(page === this ? 'local' : this.line);
    }
  }

  private _tell(origin: unknown): void {
    this._listeners.forEach(listener => listener({}, origin));
  }

  on(_: 'change', listener: AwarenessListener): void {
    this._listeners.add(listener);
  }

  off(_: 'change', listener: AwarenessListener): void {
    this._listeners.delete(listener);
  }

  get said(): number {
    return this._said;
  }

  private _states = new Map<number, Record<string, unknown>>();
  private _clocks = new Map<number, number>();
  private _listeners = new Set<AwarenessListener>();
  private _own: Record<string, unknown> = {};
  private _clock = 0;
  private _said = 0;
}
