import type { Cell } from '@jupyterlab/cells';
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import type { TranslationBundle } from '@jupyterlab/translation';
import { Debouncer } from '@lumino/polling';
import { Signal, ISignal } from '@lumino/signaling';
import { hasMagic, readMagic } from './magic';

const CLASS = 'jp-GpuRelease-gpuCell';
const AFTER_MS = 150;

/** A quiet mark at GPU cells, also before they run: how many GPUs, below the cell's number. */
export class CellMarks {
  constructor(
    tracker: INotebookTracker,
    private _trans: TranslationBundle
  ) {
    tracker.forEach(panel => this._watch(panel));
    tracker.widgetAdded.connect((_, panel) => this._watch(panel));
  }

  /** Cells were marked anew. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  private _watch(panel: NotebookPanel): void {
    const later = new Debouncer(() => this._mark(panel), AFTER_MS);
    const mark = () => void later.invoke().catch(() => undefined);
    panel.content.modelContentChanged.connect(mark);
    panel.content.modelChanged.connect(mark);
    panel.disposed.connect(() => later.dispose());
    void panel.revealed.then(mark);
  }

  private _mark(panel: NotebookPanel): void {
    if (panel.isDisposed) {
      return;
    }
    for (const cell of panel.content.widgets) {
      const source =
        cell.model.type === 'code' ? cell.model.sharedModel.getSource() : '';
      markCell(cell, hasMagic(source) ? gpusOf(source, this._trans) : '');
    }
    this._changed.emit();
  }

  private _changed = new Signal<this, void>(this);
}

function markCell(cell: Cell, text: string): void {
  cell.toggleClass(CLASS, text !== '');
  if (text) {
    cell.node.style.setProperty('--jp-gpu-release-mark', JSON.stringify(text));
  }
}

/** `2 GPUs`, as the line says; of a line without a number `GPU`. */
function gpusOf(source: string, trans: TranslationBundle): string {
  const { gpus } = readMagic(source).options;
  const count = Number(gpus.split(':').pop());
  if (gpus === '' || !Number.isInteger(count)) {
    return trans.__('GPU');
  }
  return count === 0
    ? trans.__('CPU stage')
    : trans._n('%1 GPU', '%1 GPUs', count);
}
