import type { INotebookModel, NotebookPanel } from '@jupyterlab/notebook';
import type { KernelMessage } from '@jupyterlab/services';
import { PromiseDelegate } from '@lumino/coreutils';
import { type IModels, WIDGET_VIEW } from './widget-views';

const TARGET = 'jupyter.widget';
const WIDGET_STATE = 'application/vnd.jupyter.widget-state+json';
/** with these its process ends, or is a new one: all that it held is gone */
const ENDS = [
  'restarting',
  'autorestarting',
  'terminating',
  'dead',
  'starting'
];

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
    sessionContext.iopubMessage.connect(this._onMessage, this);
  }

  dispose(): void {
    const { sessionContext } = this._panel;
    this._isDisposed = true;
    sessionContext.statusChanged.disconnect(this._onStatus, this);
    sessionContext.kernelChanged.disconnect(this._onKernel, this);
    sessionContext.iopubMessage.disconnect(this._onMessage, this);
    this._savedOf?.metadataChanged.disconnect(this._onMetadata, this);
    this._end.resolve();
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

  /** The page has a renderer: ipywidgets' own extension is installed. */
  get areDrawn(): boolean {
    return this._panel.content.rendermime.getFactory(WIDGET_VIEW) !== undefined;
  }

  /** Ask the kernel anew; done when it has answered this, cannot answer, has ended, or there is none. */
  ask(): Promise<void> {
    const process = this._process;
    this._next ??= this._current.then(() => {
      if (process !== this._process) {
        return;
      }
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
      const reply = await Promise.race([
        kernel.requestCommInfo({ target_name: TARGET }),
        this._end.promise // nobody answers what the process before was asked
      ]);
      if (reply && process === this._process && !this._isDisposed) {
        const { content } = reply;
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
    const { model: notebook } = this._panel.content;
    if (notebook !== this._savedOf) {
      this._savedOf?.metadataChanged.disconnect(this._onMetadata, this);
      notebook?.metadataChanged.connect(this._onMetadata, this);
      this._savedOf = notebook;
      this._saved = null;
    }
    this._saved ??= savedModels(notebook);
    return this._saved.has(model);
  }

  private _onMetadata(): void {
    this._saved = null;
  }

  private _onStatus(_: unknown, status: string): void {
    if (ENDS.includes(status)) {
      this._forget();
    } else if (status === 'idle' && this._isUnanswered) {
      this._isUnanswered = false;
      void this.ask();
    }
  }

  /** A kernel that another page has restarted may only be known by the session of its new process. */
  private _onMessage(_: unknown, message: KernelMessage.IMessage): void {
    const session = sessionOf(message);
    if (session !== null && session !== this._session) {
      const isOther = this._session !== null;
      this._session = session;
      if (isOther) {
        this._onKernel();
      }
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
    this._session = null;
    this._current = Promise.resolve();
    this._next = null;
    this._end.resolve();
    this._end = new PromiseDelegate<void>();
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
  /** of the kernel's process, as its messages have it */
  private _session: string | null = null;
  /** resolved when the process ends */
  private _end = new PromiseDelegate<void>();
  /** the models whose state this notebook has; null: not looked up since it has changed */
  private _saved: Set<string> | null = null;
  private _savedOf: INotebookModel | null = null;
}

/** Looked up once: it copies all of their state. */
function savedModels(notebook: INotebookModel | null): Set<string> {
  const saved = notebook?.getMetadata('widgets') as
    { [type: string]: { state?: object } | undefined } | undefined;
  return new Set(Object.keys(saved?.[WIDGET_STATE]?.state ?? {}));
}

/** The session of the process that says whether it is busy; servers say other states, some kernels say the page's. */
function sessionOf(message: KernelMessage.IMessage): string | null {
  const { header, content, parent_header: parent } = message;
  const state = (content as { execution_state?: unknown }).execution_state;
  const isItsOwn =
    header.msg_type === 'status' && (state === 'busy' || state === 'idle');
  const asked = (parent as { session?: string }).session;
  return isItsOwn && header.session !== asked ? header.session : null;
}
