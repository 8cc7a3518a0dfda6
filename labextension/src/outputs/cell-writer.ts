import type { ICodeCellModel } from '@jupyterlab/cells';
import { JSONExt } from '@lumino/coreutils';
import { isLineOrReceipt, Output, ours } from './marks';
import type { Change } from './output-stream';

/** The lines of a run in a cell's outputs, from `base` on; what stands above is not the run's. */
export class CellWriter {
  constructor(
    private _model: ICodeCellModel,
    private _base: number
  ) {}

  dispose(): void {}

  /** Whether somebody else has changed the outputs (cleared them, ran the cell). */
  get isDisturbed(): boolean {
    const { _model: model } = this;
    return (
      model.isDisposed ||
      (this._length !== null && model.outputs.length !== this._length)
    );
  }

  /** Take away what was written of the run before. */
  begin(): void {
    const { outputs } = this._model;
    const above = outputs.toJSON().slice(0, this._base);
    outputs.clear();
    above.forEach(output => outputs.add(output));
    this._length = outputs.length;
  }

  /** The run is this user's own: show its output as after running it. What is there already is not made to run. */
  trust(): void {
    if (this._model.outputs.length === 0) {
      this._model.trusted = true;
    }
  }

  apply(changes: readonly Change[]): void {
    const { outputs } = this._model;
    for (const change of changes) {
      if (change.op === 'clear') {
        this._base = 0;
        outputs.clear();
      } else if (change.op === 'add') {
        outputs.add(change.output);
      } else if (this._base + change.index < outputs.length) {
        outputs.set(this._base + change.index, change.output);
      }
    }
    this._length = outputs.length;
  }

  /** Nothing: it is written as it is told. */
  write(): void {}

  private _length: number | null = null;
}

/** One line of a cell that holds other outputs, too: only the line is brought up to date. */
export class LineWriter {
  constructor(
    private _model: ICodeCellModel,
    private _run: string
  ) {}

  dispose(): void {}

  get isDisturbed(): boolean {
    return this._model.isDisposed;
  }

  begin(): void {
    this._told = [];
  }

  /** Nothing: other outputs of the cell are not the run's. */
  trust(): void {}

  apply(changes: readonly Change[]): void {
    for (const change of changes) {
      if (change.op === 'clear') {
        this._told = [];
      } else if (change.op === 'set') {
        this._told[change.index] = change.output;
      } else if (
        change.output.output_type !== 'stream' ||
        this._told[this._told.length - 1]?.output_type !== 'stream' ||
        this._told[this._told.length - 1].name !== change.output.name
      ) {
        this._told.push(change.output);
      }
    }
  }

  write(): void {
    const line = this._told.filter(isLineOrReceipt).pop();
    const { outputs } = this._model;
    const all = outputs.toJSON();
    const index = all.findIndex(output => {
      const { run, live } = ours(output);
      return live === true && run === this._run;
    });
    if (line && index >= 0 && !JSONExt.deepEqual(all[index], line)) {
      outputs.set(index, line);
    }
  }

  private _told: Output[] = [];
}
