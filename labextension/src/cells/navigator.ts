import { PageConfig } from '@jupyterlab/coreutils';
import type { IDocumentManager } from '@jupyterlab/docmanager';
import {
  INotebookTracker,
  NotebookActions,
  NotebookPanel
} from '@jupyterlab/notebook';
import type { INavigator } from '../model/actions';
import type { IHealer } from '../tokens';
import { serverPath } from './paths';

/** Opens notebooks at their cells. */
export class Navigator implements INavigator {
  constructor(
    private _documents: IDocumentManager,
    private _tracker: INotebookTracker,
    private _activate: (id: string) => void,
    private _healer: IHealer | null
  ) {}

  /** Show the notebook, and its cell where there is one with that id. */
  async open(notebook: string, cell: string): Promise<void> {
    const panel = await this._panel(notebook);
    if (panel) {
      await showCell(panel, cell);
    }
  }

  /** Below the run's cell, bring the run back with `%gpu_attach`; in the cell itself while the kernel has no time. */
  async attach(notebook: string, cell: string, run: string): Promise<void> {
    const panel = await this._panel(notebook);
    if (!panel) {
      return;
    }
    await showCell(panel, cell);
    const status = panel.sessionContext.session?.kernel?.status;
    if (status !== 'idle' && this._healer?.show(panel, cell, run)) {
      return; // a cell would wait behind the very run
    }
    NotebookActions.insertBelow(panel.content);
    panel.content.activeCell?.model.sharedModel.setSource(`%gpu_attach ${run}`);
    await NotebookActions.run(panel.content, panel.sessionContext);
  }

  private async _panel(notebook: string): Promise<NotebookPanel | null> {
    const open = this._tracker.find(
      panel =>
        notebook === panel.context.path ||
        notebook.endsWith('/' + panel.context.path)
    );
    if (open) {
      this._activate(open.id);
      await open.context.ready;
      return open;
    }
    const path = serverPath(notebook, PageConfig.getOption('serverRoot'));
    const widget = this._documents.openOrReveal(path);
    if (!(widget instanceof NotebookPanel)) {
      return null; // Notebook 7 opens it in a page of its own
    }
    await widget.context.ready;
    await widget.revealed;
    return widget;
  }
}

async function showCell(panel: NotebookPanel, cell: string): Promise<void> {
  const { content } = panel;
  const index = content.widgets.findIndex(({ model }) => model.id === cell);
  if (cell && index >= 0) {
    content.activeCellIndex = index;
    content.deselectAll();
    await content.scrollToItem(index, 'smart');
  }
  content.activate();
}
