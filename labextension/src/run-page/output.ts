import {
  IOutputAreaModel,
  OutputAreaModel,
  SimplifiedOutputArea
} from '@jupyterlab/outputarea';
import type { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import type { ServerConnection } from '@jupyterlab/services';
import type { TranslationBundle } from '@jupyterlab/translation';
import { PanelLayout, Widget } from '@lumino/widgets';
import { watchLocalTimes } from '../outputs/clocks';
import { Change, IOutputMessage, OutputStream } from '../outputs/output-stream';
import { NO_MODELS, WidgetViews } from '../outputs/widget-views';

const AT_END_PX = 24;

/** Carry changes of a cell's outputs out. */
export function applyChanges(
  outputs: IOutputAreaModel,
  changes: readonly Change[]
): void {
  for (const change of changes) {
    if (change.op === 'clear') {
      outputs.clear();
    } else if (change.op === 'add') {
      outputs.add(change.output);
    } else if (change.index < outputs.length) {
      outputs.set(change.index, change.output);
    }
  }
}

interface IRunOutputOptions {
  run: string;
  settings: ServerConnection.ISettings;
  rendermime: IRenderMimeRegistry;
  trans: TranslationBundle;
  /** nothing more will come */
  onEnd: () => void;
}

/** What a run shows, as below its cell; follows while the run goes on. */
export class RunOutput extends Widget {
  constructor(options: IRunOutputOptions) {
    super();
    const { run, settings, rendermime, trans } = options;
    this.addClass('jp-GpuRelease-output');
    this.node.tabIndex = 0;
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', trans.__('Output'));
    this._notice.addClass('jp-GpuRelease-notice');
    this._notice.hide();
    const area = new SimplifiedOutputArea({ model: this._model, rendermime });
    const layout = (this.layout = new PanelLayout());
    layout.addWidget(this._notice);
    layout.addWidget(area);
    this._observer = new ResizeObserver(() => this._follow());
    this._observer.observe(area.node);
    this._stopClocks = watchLocalTimes(area.node);
    this._stream = new OutputStream(settings, run, {
      onBegin: () => (this._isNew = true),
      onMessage: message => this._onMessage(message),
      onEnd: () => options.onEnd()
    });
    this._say(trans.__('Waiting for its output…'));
  }

  override dispose(): void {
    if (!this.isDisposed) {
      this._stream.dispose();
      this._observer.disconnect();
      this._stopClocks();
      super.dispose();
      this._model.dispose();
    }
  }

  private _onMessage(message: IOutputMessage): void {
    if (message.changes) {
      this._isFollowed = this._isAtEnd();
      if (this._isNew) {
        this._isNew = false;
        this._model.clear();
        this._views.begin();
        // what this user's own code shows may run here; what others made is sanitized
        this._model.trusted = message.mine === true;
      }
      applyChanges(this._model, this._views.show(message.changes));
    }
    this._say(message.gone ?? message.problem ?? '');
  }

  private _say(text: string): void {
    this._notice.node.textContent = text;
    this._notice.setHidden(text === '');
  }

  /** Whether its end is seen: then new output is, too. */
  private _isAtEnd(): boolean {
    const { scrollHeight, scrollTop, clientHeight } = this.node;
    return scrollHeight - scrollTop - clientHeight <= AT_END_PX;
  }

  private _follow(): void {
    if (this._isFollowed) {
      this.node.scrollTop = this.node.scrollHeight;
    }
  }

  private _model = new OutputAreaModel({ trusted: false });
  private _views = new WidgetViews(NO_MODELS);
  private _notice = new Widget();
  private _observer: ResizeObserver;
  private _stopClocks: () => void;
  private _stream: OutputStream;
  private _isNew = true;
  private _isFollowed = true;
}
