import { ReactWidget } from '@jupyterlab/ui-components';
import type { Message } from '@lumino/messaging';
import { ISignal, Signal } from '@lumino/signaling';
import { IArrangement } from '../model/sorting';
import { GpuModel } from '../model/model';

/** How the panel is arranged and filtered; the sections look here. */
export class ViewState {
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get filter(): string {
    return this._filter;
  }

  set filter(text: string) {
    this._filter = text;
    this._changed.emit();
  }

  get arrangement(): IArrangement {
    return this._arrangement;
  }

  set arrangement(arrangement: IArrangement) {
    this._arrangement = arrangement;
    this._changed.emit();
  }

  /** Something else that the views show has changed. */
  renew(): void {
    this._changed.emit();
  }

  private _filter = '';
  private _arrangement: IArrangement = {
    grouping: 'node',
    sorting: 'index',
    onlyMine: false
  };
  private _changed = new Signal<this, void>(this);
}

/** Draws again when the model or the view's state changes, but only while it is seen. */
export class LiveView extends ReactWidget {
  constructor(
    private _model: GpuModel,
    private _state: ViewState,
    private _draw: () => JSX.Element
  ) {
    super();
    this.addClass('jp-GpuRelease-view');
    _model.stateChanged.connect(this._renew, this);
    _state.changed.connect(this._renew, this);
  }

  override dispose(): void {
    this._model.stateChanged.disconnect(this._renew, this);
    this._state.changed.disconnect(this._renew, this);
    super.dispose();
  }

  protected render(): JSX.Element {
    return this._draw();
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this.update();
  }

  private _renew(): void {
    if (this.isVisible) {
      this.update();
    }
  }
}
