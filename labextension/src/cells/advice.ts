import { ICodeCellModel, isCodeCellModel } from '@jupyterlab/cells';
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import type { TranslationBundle } from '@jupyterlab/translation';
import { ISignal, Signal } from '@lumino/signaling';
import { baseName } from '../format';
import { IApi, sentenceOf } from '../model/api';
import type { ICellAdvice, INotebookAdvice } from '../model/types';

/** where JupyterLab, nbclient, papermill and ExecuteTime keep times */
const TIMES = ['execution', 'ExecuteTime', 'papermill'];
const WALL_TIME = /Wall time: .*/;

interface IAdvised {
  panel: NotebookPanel;
  advice: INotebookAdvice;
  /** the cells as they were read */
  cells: { model: ICodeCellModel; source: string }[];
}

/** Advice on a notebook: asked of the server with the notebook's content, carried out in its cells. */
export class Advisor {
  constructor(
    private _tracker: INotebookTracker,
    private _api: Pick<IApi, 'advise'>,
    private _trans: TranslationBundle
  ) {
    _tracker.currentChanged.connect(() => this._changed.emit());
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** The notebook in front; null: there is none, or its cells are not Python. */
  get current(): NotebookPanel | null {
    const panel = this._tracker.currentWidget;
    const language = panel?.content.model?.defaultKernelLanguage;
    const isPython = !language || language.toLowerCase() === 'python';
    return panel && isPython ? panel : null;
  }

  /** The notebook that is advised on. */
  get name(): string {
    return this._panel ? baseName(this._panel.context.path) : '';
  }

  get advice(): INotebookAdvice | null {
    return this._advised?.advice ?? null;
  }

  /** Something that the user has to know: why there is no advice, or that it has changed. */
  get notice(): string {
    return this._notice;
  }

  /** Whether advice, or why there is none, is shown. */
  get isOpen(): boolean {
    return this._panel !== null;
  }

  /** Whether a notebook is in front that no advice is shown on. */
  get isAskable(): boolean {
    return this.current !== null && this.current !== this._panel;
  }

  /** Read the notebook in front, as it is now. */
  async ask(): Promise<void> {
    const { current } = this;
    if (!current) {
      return;
    }
    current.disposed.connect(this.close, this);
    this._panel = current;
    this._advised = null;
    await this._read(current, '');
  }

  close(): void {
    this._panel?.disposed.disconnect(this.close, this);
    this._panel = null;
    this._advised = null;
    this._notice = '';
    this._changed.emit();
  }

  /** Show the cell. */
  async show(row: ICellAdvice): Promise<void> {
    const cell = this._advised?.cells[row.at];
    const { content } = this._panel ?? {};
    const index =
      content?.widgets.findIndex(({ model }) => model === cell?.model) ?? -1;
    if (content && index >= 0) {
      content.activeCellIndex = index;
      content.deselectAll();
      await content.scrollToItem(index, 'smart');
    }
  }

  /** Make these cells GPU cells, in one step that can be undone (or one a cell, where each has its own); none where they are not what was read any more. */
  async make(rows: readonly ICellAdvice[]): Promise<void> {
    if (!this._advised || !this._panel) {
      return;
    }
    const { cells } = this._advised;
    const panel = this._panel;
    const isOld = rows.some(({ at }) => !isAsRead(panel, cells[at]));
    const write = () => {
      for (const { at, line } of rows) {
        cells[at].model.sharedModel.updateSource(0, 0, `${line}\n`);
      }
    };
    const shared = panel.content.model?.sharedModel;
    if (!isOld && shared?.disableDocumentWideUndoRedo === false) {
      shared.transact(write);
    } else if (!isOld) {
      write(); // each cell has steps of its own
    }
    const notice = isOld
      ? this._trans.__('The notebook had changed: this is on what it is now.')
      : '';
    await this._read(panel, notice);
  }

  private async _read(panel: NotebookPanel, notice: string): Promise<void> {
    this._notice = this._trans.__('Reading the notebook…');
    this._changed.emit();
    const cells = codeCells(panel);
    try {
      const content = contentOf(panel, cells);
      const advice = await this._api.advise(content, panel.context.path);
      if (panel === this._panel) {
        this._advised = { panel, advice, cells };
        this._notice = notice;
      }
    } catch (error) {
      if (panel === this._panel) {
        this._notice = sentenceOf(error);
      }
    }
    this._changed.emit();
  }

  private _panel: NotebookPanel | null = null;
  private _advised: IAdvised | null = null;
  private _notice = '';
  private _changed = new Signal<this, void>(this);
}

function codeCells(panel: NotebookPanel): IAdvised['cells'] {
  const models = [...(panel.content.model?.cells ?? [])];
  return models.filter(isCodeCellModel).map(model => ({
    model,
    source: model.sharedModel.getSource()
  }));
}

function isAsRead(
  panel: NotebookPanel,
  { model, source }: IAdvised['cells'][number]
): boolean {
  const isThere = [...(panel.content.model?.cells ?? [])].includes(model);
  return isThere && model.sharedModel.getSource() === source;
}

/** What advice needs: code and times, no outputs. */
function contentOf(panel: NotebookPanel, cells: IAdvised['cells']): object {
  const { model } = panel.content;
  return {
    metadata: {
      kernelspec: model?.getMetadata('kernelspec') ?? {},
      language_info: model?.getMetadata('language_info') ?? {}
    },
    cells: cells.map(({ model: cell, source }) => ({
      cell_type: 'code',
      source,
      metadata: Object.fromEntries(
        TIMES.map(name => [name, cell.getMetadata(name) ?? {}])
      ),
      outputs: wallTimes(cell)
    }))
  };
}

/** The lines that `%%time` has left. */
function wallTimes({ outputs }: ICodeCellModel): object[] {
  return outputs
    .toJSON()
    .map(({ text }) => (Array.isArray(text) ? text.join('') : String(text)))
    .flatMap(text => WALL_TIME.exec(text) ?? [])
    .map(text => ({ output_type: 'stream', text }));
}
