import { VDomModel } from '@jupyterlab/ui-components';
import { Poll } from '@lumino/polling';
import { ISignal, Signal } from '@lumino/signaling';
import { ApiError, IApi, sentenceOf } from './api';
import {
  IClusterStatus,
  IKernelsDocument,
  IRunRow,
  isTerminal,
  holdsGpu,
  waits
} from './types';
import { UtilizationHistory } from './utilization';
import { ISnapshot, NOTHING, Situation, takeSnapshot } from './snapshot';

const RUNS_SHOWN = 50;
const RUNS_STALE_S = 10;
const BUSY_INTERVAL_MS = 1000;
const LONGEST_BACKOFF_MS = 60_000;
/** a run's end and the next one's start are so many changes: none of them waits; after them one look in this time */
const LOOKS_IN_A_ROW = 5;
const LOOK_EVERY_S = 0.2;
const EVENTS_COUNT_FOR_S = 60;
const OK_SHOWN_MS = 6_000;
const ERROR_SHOWN_MS = 20_000;

/** What came of an action, shown where it was asked for. */
export interface IFeedback {
  kind: 'busy' | 'ok' | 'error';
  text: string;
}

/** A run of mine that was seen alive and is over now. */
export interface IEnding {
  run: IRunRow;
}

/**
 * What is known of the GPUs: asks the server when something changed (events) and every few seconds, less and less
 * often while it fails, and not at all while the page is hidden.
 */
export class GpuModel extends VDomModel {
  constructor(
    private _api: IApi,
    private _intervalMs = 5000,
    private _now: () => number = () => Date.now() / 1000
  ) {
    super();
    this._poll = new Poll({
      auto: false,
      factory: () => this._look(),
      frequency: {
        interval: BUSY_INTERVAL_MS,
        backoff: true,
        max: LONGEST_BACKOFF_MS
      },
      name: 'jupyter-gpu-release:status',
      standby: 'when-hidden'
    });
  }

  readonly history = new UtilizationHistory();

  get snapshot(): ISnapshot {
    return this._snapshot;
  }

  get feedback(): ReadonlyMap<string, IFeedback> {
    return this._feedback;
  }

  /** Emitted once for each of my runs that ends while this page looks on. */
  get ended(): ISignal<this, IEnding> {
    return this._ended;
  }

  /** Emitted once for each of my runs that gets its GPUs after it waited, while this page looks on. */
  get started(): ISignal<this, IRunRow> {
    return this._started;
  }

  /** Emitted once each time that one of my runs is preempted, or starts again after a fault, while this page looks on. */
  get paused(): ISignal<this, IRunRow> {
    return this._paused;
  }

  /** Begin to look. */
  start(): void {
    void this._poll.start();
  }

  /** Seconds between two looks while nothing of mine goes on. */
  set interval(ms: number) {
    this._intervalMs = ms;
    this._pace();
  }

  /** Whether it goes on looking while the page is hidden: somebody wants to be told. */
  set looksWhenHidden(wanted: boolean) {
    this._looksWhenHidden = wanted;
    this._poll.standby = wanted ? 'never' : 'when-hidden';
  }

  /** Look now; resolves when the answer is shown (failures too). */
  async refresh(): Promise<void> {
    if (this._isLooking) {
      // it may have been answered before what is asked about happened, and the poll takes no second one
      await this._poll.tick.catch(() => undefined);
    }
    await this._poll.refresh();
    await this._poll.tick.catch(() => undefined);
  }

  /** Something changed on the cluster: look at once, but not more than a few times a second for long. */
  nudge(): void {
    this._eventAt = this._now();
    if (this._isLooking || this._nudge !== null) {
      this._again = true;
      return;
    }
    const allowedAt = this._paidUntil - (LOOKS_IN_A_ROW - 1) * LOOK_EVERY_S;
    const delayMs = Math.max(0, allowedAt - this._now()) * 1000;
    this._nudge = setTimeout(() => {
      this._nudge = null;
      if (this._isLooking) {
        this._again = true; // of two looks at once the older could end last
      } else if (!document.hidden || this._looksWhenHidden) {
        void this._poll.refresh();
      }
    }, delayMs);
  }

  /** Do something for the user; progress and result are shown at `key`. Resolves to whether it worked. */
  async act(
    key: string,
    doing: string,
    work: () => Promise<string>
  ): Promise<boolean> {
    this._say(key, { kind: 'busy', text: doing });
    try {
      const text = await work();
      this._say(key, { kind: 'ok', text }, OK_SHOWN_MS);
      return true;
    } catch (error) {
      this._say(
        key,
        { kind: 'error', text: sentenceOf(error) },
        ERROR_SHOWN_MS
      );
      return false;
    } finally {
      if (!this.isDisposed) {
        void this.refresh();
      }
    }
  }

  override dispose(): void {
    if (this.isDisposed) {
      return;
    }
    this._poll.dispose();
    this._timers.forEach(timer => clearTimeout(timer));
    if (this._nudge !== null) {
      clearTimeout(this._nudge);
    }
    Signal.clearData(this);
    super.dispose();
  }

  private async _look(): Promise<void> {
    this._isLooking = true;
    this._again = false;
    try {
      const status = await this._api.status();
      const kernels = status.gpus.length > 0 ? await this._askKernels() : null;
      const isSilent = status.gateway.state === 'unreachable';
      // what the store has of my runs while the gateway is silent is older than what is known
      if (isSilent && this._runs.length > 0) {
        this._runsKey = null;
      } else {
        await this._askRuns(traces(status.cluster));
      }
      if (!this.isDisposed) {
        const now = this._now();
        this._show(
          takeSnapshot(status, this._runs, kernels, now, this._snapshot.me)
        );
      }
    } catch (error) {
      if (!this.isDisposed) {
        this._show(failed(this._snapshot, error, this._now()));
      }
      throw error;
    } finally {
      this._isLooking = false;
      this._paidUntil = Math.max(this._now(), this._paidUntil) + LOOK_EVERY_S;
      if (this._again && !this.isDisposed) {
        this.nudge();
      }
    }
  }

  private async _askKernels(): Promise<IKernelsDocument | null> {
    try {
      return await this._api.kernels();
    } catch {
      return null; // the cluster's part is worth showing without
    }
  }

  /** My runs, when a run appeared or changed its state, and now and then. */
  private async _askRuns(states: string[]): Promise<void> {
    const key = states.sort().join();
    const isStale = this._now() - this._runsAt > RUNS_STALE_S;
    if (key === this._runsKey && !isStale) {
      return;
    }
    try {
      const { runs } = await this._api.runs(RUNS_SHOWN);
      this._tellEndings(runs);
      this._runs = runs;
      this._runsKey = key;
    } catch (error) {
      if (error instanceof ApiError && error.status === 403) {
        throw error;
      }
      this._runsKey = null; // the gateway may be down: what was known stays
    }
    this._runsAt = this._now();
  }

  private _tellEndings(runs: readonly IRunRow[]): void {
    const known = new Map(this._runs.map(run => [run.run, run]));
    for (const run of runs) {
      const before = known.get(run.run);
      const old = before?.state;
      const isMine = run.user === this._snapshot.me;
      if (isMine && old && !isTerminal(old) && isTerminal(run.state)) {
        this._ended.emit({ run });
      }
      if (isMine && old && waits(old) && holdsGpu(run.state)) {
        this._started.emit(run);
      }
      const pauses = run.earlier?.length ?? 0;
      if (isMine && before && pauses > (before.earlier?.length ?? 0)) {
        this._paused.emit(run);
      }
    }
  }

  private _show(snapshot: ISnapshot): void {
    this._snapshot = snapshot;
    this.history.record(
      snapshot.at,
      snapshot.hosts.flatMap(host =>
        host.gpus.map((gpu): [string, number | null] => [
          gpu.key,
          gpu.utilization
        ])
      )
    );
    this._pace();
    this.stateChanged.emit(undefined);
  }

  /** Every second while my runs are not known, or go on and no events tell of it. */
  private _pace(): void {
    const { active, isClusterKnown, me, start } = this._snapshot;
    const hasEvents = this._now() - this._eventAt < EVENTS_COUNT_FOR_S;
    const isBehind = isClusterKnown && this._runsKey === null;
    const goesOn =
      start?.state === 'starting' || active.some(row => row.user === me);
    const isBusy = !hasEvents && goesOn;
    const interval =
      isBehind || isBusy
        ? Math.min(BUSY_INTERVAL_MS, this._intervalMs)
        : this._intervalMs;
    if (this._poll.frequency.interval !== interval) {
      const max = Math.max(LONGEST_BACKOFF_MS, interval); // a poll refuses less
      this._poll.frequency = { ...this._poll.frequency, interval, max };
    }
  }

  private _say(key: string, feedback: IFeedback, forMs?: number): void {
    if (this.isDisposed) {
      return;
    }
    clearTimeout(this._timers.get(key));
    this._timers.delete(key);
    this._feedback = new Map(this._feedback).set(key, feedback);
    if (forMs !== undefined) {
      this._timers.set(
        key,
        setTimeout(() => this._forget(key), forMs)
      );
    }
    this.stateChanged.emit(undefined);
  }

  private _forget(key: string): void {
    this._timers.delete(key);
    this._feedback = new Map(this._feedback);
    this._feedback.delete(key);
    this.stateChanged.emit(undefined);
  }

  private _poll: Poll<void>;
  private _snapshot: ISnapshot = NOTHING;
  private _feedback: Map<string, IFeedback> = new Map();
  private _timers = new Map<string, ReturnType<typeof setTimeout>>();
  private _ended = new Signal<this, IEnding>(this);
  private _started = new Signal<this, IRunRow>(this);
  private _paused = new Signal<this, IRunRow>(this);
  private _looksWhenHidden = false;
  private _runs: readonly IRunRow[] = [];
  private _runsKey: string | null = null;
  private _runsAt = -Infinity;
  private _eventAt = -Infinity;
  /** with a look each `LOOK_EVERY_S`, those that were taken would last until then */
  private _paidUntil = -Infinity;
  private _isLooking = false;
  private _again = false;
  private _nudge: ReturnType<typeof setTimeout> | null = null;
}

/** What tells that my runs are others than before. A short one was never active, but its GPU may be kept. */
function traces(cluster: IClusterStatus | null | undefined): string[] {
  const active = cluster?.runs.map(row => row.run + row.state) ?? [];
  const gpus = cluster?.nodes.flatMap(node => node.gpus) ?? [];
  const parts = gpus.flatMap(gpu => gpu.parts ?? []);
  return [...active, ...[...gpus, ...parts].flatMap(({ run }) => run ?? [])];
}

/** What to show when the server did not answer, or refused. What was known stays, unless we may not see it. */
export function failed(
  last: ISnapshot,
  error: unknown,
  now: number
): ISnapshot {
  const status = error instanceof ApiError ? error.status : 0;
  const message = error instanceof Error ? error.message : String(error);
  const situation: Situation =
    status === 401 || status === 403
      ? 'not-permitted'
      : status === 404
        ? 'not-enabled'
        : 'offline';
  const base = situation === 'offline' ? last : NOTHING;
  return { ...base, at: last.at || now, situation, message, mend: '' };
}
