import { VDomModel } from '@jupyterlab/ui-components';
import { ApiError, IApi, sentenceOf } from '../model/api';
import type { GpuModel } from '../model/model';
import type { Situation } from '../model/snapshot';
import { IRunPage, IRunRow, isTerminal } from '../model/types';

const LEAST_GAP_MS = 1000;
/** its record is complete a moment after its end, on a slow store half a minute: each look waits twice as long */
const LAST_LOOKS = 6;

/**
 * All that is known of one run; looks again when the cluster shows something new, until the run is over, and only
 * while it is seen.
 */
export class RunPageModel extends VDomModel {
  constructor(
    readonly run: string,
    private _api: IApi,
    private _gpus: GpuModel,
    private _isSeen: () => boolean = () => true
  ) {
    super();
    _gpus.stateChanged.connect(this._onChange, this);
    void this.look();
  }

  get page(): IRunPage | null {
    return this._page;
  }

  /** Why it is not known, or not up to date. */
  get problem(): string {
    return this._problem;
  }

  /** No contact with the Jupyter server. */
  get isAway(): boolean {
    return this._isAway;
  }

  /** The run as the page has it, or until then as the list of runs has it. */
  get row(): IRunRow | null {
    const { runs } = this._gpus.snapshot;
    return this._page?.run ?? runs.find(({ run }) => run === this.run) ?? null;
  }

  /** It is seen again: what it missed, and what was refused then, is asked for now. */
  onShown(): void {
    if (this._isStale || this._refusedIn !== null) {
      this._isStale = false;
      void this.look();
    }
  }

  override dispose(): void {
    if (!this.isDisposed) {
      this._gpus.stateChanged.disconnect(this._onChange, this);
      window.clearTimeout(this._timer);
      super.dispose();
    }
  }

  /** Ask the server now. */
  async look(): Promise<void> {
    if (this._isLooking) {
      this._again = true;
      return;
    }
    this._isLooking = true;
    window.clearTimeout(this._timer);
    this._timer = 0;
    try {
      this._show(await this._api.runPage(this.run));
      this._refusedIn = null;
      this._isAway = false;
    } catch (error) {
      this._problem = sentenceOf(error);
      this._isAway = !(error instanceof ApiError && error.status > 0);
      this._refusedIn = isRefusal(error) ? this._gpus.snapshot.situation : null;
    }
    this._isLooking = false;
    if (!this.isDisposed) {
      this.stateChanged.emit(undefined);
      this._lookAgain();
    }
  }

  /** Of a run that goes on the store knows less than a cluster that was heard before. */
  private _show(page: IRunPage): void {
    const isOlder =
      this._page?.is_cluster_known &&
      !page.is_cluster_known &&
      !isTerminal(page.run.state);
    this._page = isOlder ? this._page : page;
    this._problem = isOlder ? page.run.reason : ''; // the page of a store says that it is one
  }

  private _lookAgain(): void {
    const isWhole = this._page !== null && isComplete(this._page);
    const isOver = this._isOver;
    this._looksLeft = isOver ? this._looksLeft - 1 : LAST_LOOKS;
    const needsOneMore = isOver && !isWhole && this._looksLeft > 0;
    if (this._again) {
      this._again = false;
      this._lookSoon();
    } else if (needsOneMore) {
      this._lookSoon(LEAST_GAP_MS * 2 ** (LAST_LOOKS - 1 - this._looksLeft));
    }
  }

  private _lookSoon(gap_ms = LEAST_GAP_MS): void {
    if (this._timer === 0) {
      this._timer = window.setTimeout(() => {
        this._timer = 0;
        if (this._isSeen()) {
          void this.look();
        } else {
          this._isStale = true;
        }
      }, gap_ms);
    }
  }

  /** All its trials may be over while the next is about to be sent. */
  private get _isOver(): boolean {
    const page = this._page;
    const known = new Map(page?.trials.map(({ run, state }) => [run, state]));
    return (
      page !== null &&
      isTerminal(page.run.state) &&
      this._gpus.snapshot.runs.every(
        ({ run, sweep, state }) =>
          sweep !== this.run || run === sweep || known.get(run) === state
      )
    );
  }

  private _onChange(): void {
    const isOver = this._isOver;
    const feedback = this._gpus.feedback.get(`run:${this.run}`);
    if (feedback !== this._feedback) {
      this._feedback = feedback;
      this.stateChanged.emit(undefined); // what came of an action, and what it changed
      this._lookSoon();
    } else if (!this._isSeen()) {
      this._isStale ||= !isOver || this._problem !== '';
    } else if (this._refusedIn === this._gpus.snapshot.situation) {
      return; // the same answer again, unless the cluster came or went
    } else if (!isOver || this._problem !== '') {
      this._lookSoon();
    }
  }

  private _page: IRunPage | null = null;
  private _problem = '';
  private _isAway = false;
  private _feedback: unknown;
  /** something has changed while it was not seen */
  private _isStale = false;
  /** how things stood when the server said that there is no such run, or not for this user */
  private _refusedIn: Situation | null = null;
  private _isLooking = false;
  private _again = false;
  private _timer = 0;
  private _looksLeft = LAST_LOOKS;
}

function isRefusal(error: unknown): boolean {
  return error instanceof ApiError && [403, 404].includes(error.status);
}

/** Whether the record says when its last statement ended, if it began at all. */
function isComplete({ run, started_at, ended_at }: IRunPage): boolean {
  return run.running_at === null || (started_at !== null && ended_at !== null);
}
