/** The views of widgets in what is told of a run: where the model is gone, their text stands for them. */

import { JSONExt } from '@lumino/coreutils';
import type { Output } from './marks';
import type { Change } from './output-stream';

export const WIDGET_VIEW = 'application/vnd.jupyter.widget-view+json';

/** Who knows the models of widgets that are there. */
export interface IModels {
  has(model: string): boolean;
  /** their views are drawn, and move by themselves */
  readonly areDrawn: boolean;
}

/** A page without a kernel has none. */
export const NO_MODELS: IModels = {
  has: () => false,
  areDrawn: false
};

interface IShown {
  output: Output;
  /** what was shown of it: later texts of a view that moves by itself are not */
  written: Output;
  model: string;
  /** as a view, not as text */
  isView: boolean;
}

export class WidgetViews {
  constructor(private _models: IModels) {}

  /** Whether any view was told. */
  get areAny(): boolean {
    return this._shown.size > 0;
  }

  /** What was told before is told again. */
  begin(): void {
    this._shown.clear();
    this._length = 0;
    this._stream = null;
  }

  /** The changes that were told, as they are to be shown. */
  show(changes: readonly Change[]): Change[] {
    const shown: Change[] = [];
    for (const change of changes) {
      if (change.op === 'clear') {
        this.begin();
        shown.push(change);
      } else if (change.op === 'add') {
        const index = this._add(change.output);
        shown.push({ op: 'add', output: this._show(index, change.output) });
      } else if (!this._isTextOfView(change.index, change.output)) {
        const output = this._show(change.index, change.output);
        shown.push({ ...change, output });
      }
    }
    return shown;
  }

  /** Changes since then: models that were found, or are gone. */
  news(): Change[] {
    return [...this._shown]
      .filter(([, { model, isView }]) => this._models.has(model) !== isView)
      .map(([index, { output }]) => ({
        op: 'set',
        index,
        output: this._show(index, output)
      }));
  }

  /** Changes that bring views which moved by themselves to the text they read last: a document is left so. */
  latest(): Change[] {
    return [...this._shown]
      .filter(([, { output, written }]) => !JSONExt.deepEqual(output, written))
      .map(([index, { output }]) => ({
        op: 'set',
        index,
        output: this._show(index, output)
      }));
  }

  /** Its place: text goes on in the stream before it. */
  private _add(output: Output): number {
    const stream =
      output.output_type === 'stream' ? (output.name as string) : null;
    if (stream === null || stream !== this._stream) {
      this._length += 1;
    }
    this._stream = stream;
    return this._length - 1;
  }

  private _show(index: number, output: Output): Output {
    const model = modelOf(output);
    if (model === null) {
      this._shown.delete(index);
      return output;
    }
    const isView = this._models.has(model);
    this._shown.set(index, { output, written: output, model, isView });
    return isView ? output : asText(output);
  }

  /** A view shows by itself what its text says anew; drawn again it would flicker. */
  private _isTextOfView(index: number, output: Output): boolean {
    const shown = this._shown.get(index);
    const isSame =
      shown !== undefined &&
      shown.isView &&
      this._models.areDrawn &&
      shown.model === modelOf(output) &&
      this._models.has(shown.model);
    if (isSame) {
      shown.output = output;
    }
    return isSame;
  }

  /** by their places */
  private _shown = new Map<number, IShown>();
  private _length = 0;
  /** the name of the stream that text may go on in */
  private _stream: string | null = null;
}

type Data = { [type: string]: unknown } | undefined;

function modelOf(output: Output): string | null {
  const view = (output.data as Data)?.[WIDGET_VIEW] as
    { model_id?: unknown } | undefined;
  return typeof view?.model_id === 'string' ? view.model_id : null;
}

function asText(output: Output): Output {
  const { [WIDGET_VIEW]: _, ...data } = output.data as object & {
    [WIDGET_VIEW]?: unknown;
  };
  return { ...output, data: { 'text/plain': '', ...data } };
}
