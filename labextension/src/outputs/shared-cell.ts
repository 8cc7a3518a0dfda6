/** Cells of a document that several pages write: what is there already is not written again. */

import type { ICodeCellModel } from '@jupyterlab/cells';
import { OutputAreaModel } from '@jupyterlab/outputarea';
import { JSONExt } from '@lumino/coreutils';
import type { Signal } from '@lumino/signaling';
import { indexOf, isOfOthers, Output } from './marks';
import type { Change } from './output-stream';

type Shared = ICodeCellModel['sharedModel'];
/** What a cell's shared model says has changed. */
export type SharedChange = Parameters<
  Parameters<Shared['changed']['connect']>[0]
>[1];

/** The outputs that all pages have, as a page shows them. */
export function sharedOutputs({ sharedModel }: ICodeCellModel): Output[] {
  const area = new OutputAreaModel({ values: sharedModel.getOutputs() });
  const outputs = area.toJSON();
  area.dispose();
  return outputs;
}

/** Show what all pages have: JupyterLab puts at the end what others insert, and joins texts of which one then goes. */
export function followShared(model: ICodeCellModel): void {
  const outputs = sharedOutputs(model);
  if (!JSONExt.deepEqual(outputs, model.outputs.toJSON())) {
    tellView(model, [{ delete: model.outputs.length }, { insert: outputs }]);
  }
}

/** As if others had made the change: nothing is written into the document. */
function tellView({ sharedModel }: ICodeCellModel, delta: object[]): void {
  const changed = sharedModel.changed as Signal<Shared, SharedChange>;
  changed.emit({ outputsChange: delta } as SharedChange);
}

/**
 * The lines of a run in a cell's outputs, from `base` on. Where pages that did not hear of each other have written
 * the same, or others have changed it, the whole is written again, in one step.
 */
export class SharedCellWriter {
  constructor(
    private _model: ICodeCellModel,
    private _run: string,
    base: number
  ) {
    this._above = sharedOutputs(_model).slice(0, base);
    _model.sharedModel.changed.connect(this._onChanged, this);
  }

  dispose(): void {
    this._model.sharedModel.changed.disconnect(this._onChanged, this);
    this._told.dispose();
  }

  /** Whether somebody has cleared the outputs that stood there, or ran the cell. */
  get isDisturbed(): boolean {
    if (this._model.isDisposed) {
      return true;
    }
    if (!this._hasWritten || !this._isInDoubt) {
      return false;
    }
    const outputs = sharedOutputs(this._model);
    return (
      isOfOthers(outputs, this._run) ||
      (this._hasMark
        ? indexOf(outputs, this._run) < 0
        : this._hasAny && outputs.length === 0)
    );
  }

  /** What was told before is told again. */
  begin(): void {
    this._told.clear();
    this._pending = [];
    this._isInDoubt = true;
  }

  /** The run is this user's own: show its output as after running it. */
  trust(): void {
    this._isTrusted = true;
  }

  apply(changes: readonly Change[]): void {
    for (const change of changes) {
      if (change.op === 'clear') {
        this._above = [];
        this._told.clear();
        this._isInDoubt = true;
      } else if (change.op === 'add') {
        this._told.add(change.output);
      } else if (change.index < this._told.length) {
        this._told.set(change.index, change.output);
      }
    }
    this._pending.push(...changes);
  }

  /** Bring the document up to date; `isLast`: nothing more will be told. */
  write(isLast = false): void {
    const pending = this._pending.splice(0);
    if (this._isInDoubt || isLast) {
      this._writeAll();
    } else {
      pending.forEach(change => this._write(change));
    }
    this._hasWritten = true;
  }

  private _write(change: Change): void {
    const { outputs, sharedModel } = this._model;
    if (change.op === 'add') {
      outputs.add(change.output);
    } else if (change.op === 'set') {
      const index = this._above.length + change.index;
      if (index === outputs.length - 1) {
        outputs.set(index, change.output);
      } else if (index < outputs.length) {
        this._isWriting = true;
        sharedModel.updateOutputs(index, index + 1, [change.output]);
        followShared(this._model);
        this._isWriting = false;
      }
    }
  }

  private _writeAll(): void {
    const { _model: model } = this;
    const { sharedModel } = model;
    const wanted = [...this._above, ...this._told.toJSON()];
    this._isWriting = true;
    if (!JSONExt.deepEqual(sharedOutputs(model), wanted)) {
      if (wanted[0]?.output_type === 'stream') {
        sharedModel.setOutputs([]); // a step of its own: JupyterLab joins text that comes with what it then takes away
      }
      sharedModel.setOutputs(wanted);
    }
    if (this._isTrusted && this._above.length === 0 && !model.trusted) {
      // what is there already is not made to run
      tellView(model, [{ delete: model.outputs.length }]);
      model.trusted = true;
    }
    followShared(model);
    this._isWriting = false;
    this._isInDoubt = false;
    this._hasMark = indexOf(wanted, this._run) >= 0;
    this._hasAny = wanted.length > 0;
  }

  private _onChanged(_: unknown, change: SharedChange): void {
    const isOfOutputs = change.outputsChange || change.streamOutputChange;
    if (isOfOutputs && !this._isWriting) {
      this._isInDoubt = true;
    }
  }

  private _above: Output[];
  private _told = new OutputAreaModel();
  /** told, and not written yet */
  private _pending: Change[] = [];
  /** the document may hold something else than was written */
  private _isInDoubt = true;
  private _isWriting = false;
  private _isTrusted = false;
  private _hasWritten = false;
  /** what was written carries the run's id; it was anything at all */
  private _hasMark = false;
  private _hasAny = false;
}
