import { VDomModel } from '@jupyterlab/ui-components';
import { ApiError, IApi } from '../model/api';
import type { GpuModel } from '../model/model';
import { IRunPage, isTerminal } from '../model/types';

const LEAST_GAP_MS = 1000;
/** its record is complete a moment after its end */
const LAST_LOOKS = 5;

/** All that is known of one run; looks again when the cluster shows something new, until the run is over. */
export class RunPageModel extends VDomModel {
  constructor(
    readonly run: string,
    private _api: IApi,
    private _gpus: GpuModel
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
      this._page = await this._api.runPage(this.run);
      this._problem = '';
    } catch (error) {
      this._problem = sentenceOf(error);
    }
    this._isLooking = false;
    if (!this.isDisposed) {
      this.stateChanged.emit(undefined);
      this._lookAgain();
    }
  }

  private _lookAgain(): void {
    const isWhole = this._page !== null && isComplete(this._page);
    const isOver = this._page !== null && isTerminal(this._page.run.state);
    this._looksLeft = isOver ? this._looksLeft - 1 : LAST_LOOKS;
    const needsOneMore = isOver && !isWhole && this._looksLeft > 0;
    if (this._again || needsOneMore) {
      this._again = false;
      this._lookSoon();
    }
  }

  private _lookSoon(): void {
    if (this._timer === 0) {
      this._timer = window.setTimeout(() => {
        this._timer = 0;
        void this.look();
      }, LEAST_GAP_MS);
    }
  }

  private _onChange(): void {
    const isOver = this._page !== null && isTerminal(this._page.run.state);
    const feedback = this._gpus.feedback.get(`run:${this.run}`);
    if (feedback !== this._feedback) {
      this._feedback = feedback;
      this.stateChanged.emit(undefined); // what came of an action, and what it changed
      this._lookSoon();
    } else if (!isOver || this._problem !== '') {
      this._lookSoon();
    }
  }

  private _page: IRunPage | null = null;
  private _problem = '';
  private _feedback: unknown;
  private _isLooking = false;
  private _again = false;
  private _timer = 0;
  private _looksLeft = LAST_LOOKS;
}

/** Whether the record says when its last statement ended, if it began at all. */
function isComplete({ run, started_at, ended_at }: IRunPage): boolean {
  return run.running_at === null || (started_at !== null && ended_at !== null);
}

function sentenceOf(error: unknown): string {
  if (error instanceof ApiError && error.mend) {
    return `${error.message}: ${error.mend}`;
  }
  return error instanceof Error ? error.message : String(error);
}
