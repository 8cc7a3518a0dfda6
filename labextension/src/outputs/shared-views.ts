import type { CodeCellModel, ICodeCellModel } from '@jupyterlab/cells';
import type { NotebookPanel } from '@jupyterlab/notebook';
import { Signal } from '@lumino/signaling';
import { hasMark, isOneRun } from './marks';
import { followShared, SharedChange } from './shared-cell';

/** at least, and as much again by chance: two pages that mend the same do it one after the other */
const PAUSE_MS = 300;

type Shared = ICodeCellModel['sharedModel'];

/** Shows the GPU cells of a shared document as it has them, whatever other pages change. */
export class SharedViews {
  constructor(
    panel: NotebookPanel,
    /** the cell's outputs come from this page's kernel connection */
    private _receives: (model: ICodeCellModel) => boolean,
    /** others have changed outputs, and they are shown */
    private _onShown: () => void
  ) {
    const cells = panel.content.model?.cells;
    const watch = () => {
      for (const model of cells ?? []) {
        if (model.type === 'code') {
          this._watch(model as CodeCellModel);
        }
      }
    };
    cells?.changed.connect(watch, this);
    watch();
  }

  dispose(): void {
    window.clearTimeout(this._timer);
    this._timer = -1;
    Signal.clearData(this);
  }

  /** Show what others changed in cells while this page received them. */
  catchUp(): void {
    for (const model of [...this._late]) {
      if (model.isDisposed) {
        this._late.delete(model);
      } else if (!this._receives(model)) {
        this._late.delete(model);
        followShared(model);
      }
    }
  }

  private _watch(model: ICodeCellModel): void {
    if (!this._models.has(model.sharedModel)) {
      this._models.set(model.sharedModel, model);
      model.sharedModel.changed.connect(this._onChanged, this);
    }
  }

  private _onChanged(sender: Shared, change: SharedChange): void {
    const model = this._models.get(sender);
    if (model && (change.outputsChange || change.streamOutputChange)) {
      this._changed.add(model);
      this._timer ||= window.setTimeout(
        () => this._show(),
        PAUSE_MS * (1 + Math.random())
      );
    }
  }

  private _show(): void {
    const changed = [...this._changed].filter(model => !model.isDisposed);
    for (const model of changed) {
      const isOurs = hasMark(model) || isOneRun(model.sharedModel.getSource());
      if (isOurs && this._receives(model)) {
        this._late.add(model);
      } else if (isOurs) {
        followShared(model);
      }
    }
    this._changed.clear(); // what was shown is no change
    this._timer = 0;
    this._onShown();
  }

  private _models = new WeakMap<object, ICodeCellModel>();
  private _changed = new Set<ICodeCellModel>();
  private _late = new Set<ICodeCellModel>();
  private _timer = 0;
}
