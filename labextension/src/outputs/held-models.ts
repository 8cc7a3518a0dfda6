import type { NotebookPanel } from '@jupyterlab/notebook';
import type { IModels } from './widget-views';

const TARGET = 'jupyter.widget';
const WIDGET_STATE = 'application/vnd.jupyter.widget-state+json';
/** with these its process ends, and all that it held */
const ENDS = ['restarting', 'autorestarting', 'terminating', 'dead'];

/**
 * The models of widgets that a notebook's kernel holds, by its own word: its id stays when it is restarted. While it
 * is busy it does not answer, and a page cannot show its widgets either.
 */
export class HeldModels implements IModels {
  constructor(
    private _panel: NotebookPanel,
    /** other models are there than before */
    private _onChange: () => void
  ) {
    const { sessionContext } = _panel;
    sessionContext.statusChanged.connect(this._onStatus, this);
    sessionContext.kernelChanged.connect(this._onKernel, this);
  }

  dispose(): void {
    const { sessionContext } = this._panel;
    this._isDisposed = true;
    sessionContext.statusChanged.disconnect(this._onStatus, this);
    sessionContext.kernelChanged.disconnect(this._onKernel, this);
  }

  /** Whether it is known to be there; of one that is not known yet the kernel is asked. */
  has(model: string): boolean {
    if (this._held.has(model) || this._isSaved(model)) {
      return true;
    }
    if (!this._asked.has(model)) {
      this._asked.add(model);
      void this.ask();
    }
    return false;
  }

  /** Ask the kernel anew; done when it has answered this, cannot answer, or there is none. */
  ask(): Promise<void> {
    this._next ??= this._current.then(() => {
      this._next = null;
      return (this._current = this._request());
    });
    return this._next;
  }

  private async _request(): Promise<void> {
    const kernel = this._panel.sessionContext.session?.kernel;
    if (!kernel || this._isDisposed) {
      return;
    }
    const process = this._process;
    try {
      const { content } = await kernel.requestCommInfo({ target_name: TARGET });
      if (process === this._process && !this._isDisposed) {
        this._take(content.status === 'ok' ? Object.keys(content.comms) : []);
      }
    } catch {
      this._isUnanswered = true; // its process or its connection has ended
    }
  }

  private _take(models: string[]): void {
    const before = this._held;
    this._held = new Set(models);
    const areSame =
      before.size === this._held.size &&
      models.every(model => before.has(model));
    if (!areSame) {
      this._onChange();
    }
  }

  /** The document may have brought the widgets' state along. */
  private _isSaved(model: string): boolean {
    const saved = this._panel.content.model?.getMetadata('widgets') as
      { [type: string]: { state?: object } | undefined } | undefined;
    return model in (saved?.[WIDGET_STATE]?.state ?? {});
  }

  private _onStatus(_: unknown, status: string): void {
    if (ENDS.includes(status)) {
      this._forget();
    } else if (status === 'idle' && this._isUnanswered) {
      this._isUnanswered = false;
      void this.ask();
    }
  }

  private _onKernel(): void {
    this._forget();
    if (this._asked.size > 0) {
      void this.ask();
    }
  }

  private _forget(): void {
    this._process += 1;
    this._isUnanswered = this._asked.size > 0;
    this._take([]);
  }

  private _held = new Set<string>();
  private _asked = new Set<string>();
  /** counts the kernel's processes: what an earlier one answers says nothing of the next */
  private _process = 0;
  private _current = Promise.resolve();
  private _next: Promise<void> | null = null;
  private _isUnanswered = false;
  private _isDisposed = false;
}
