import { PageConfig } from '@jupyterlab/coreutils';
import type { IDocumentManager } from '@jupyterlab/docmanager';
import {
  INotebookTracker,
  NotebookActions,
  NotebookPanel
} from '@jupyterlab/notebook';
import type { INavigator, ITarget } from '../model/actions';
import type { IOutputRestorer } from '../tokens';
import { isAt, serverPath } from './paths';

/** Opens notebooks at their cells. */
export class Navigator implements INavigator {
  constructor(
    private _documents: IDocumentManager,
    private _tracker: INotebookTracker,
    private _activate: (id: string) => void,
    private _outputs: IOutputRestorer | null
  ) {}

  /** Show the notebook, and its cell where there is one with that id. */
  async open(notebook: string, cell: string): Promise<void> {
    const panel = await this._panel(notebook);
    if (panel) {
      await showCell(panel, cell);
    }
  }

  /** Go to the run's cell where it shows the run; else bring the run back with `%gpu_attach` below it. */
  async attach(target: ITarget): Promise<void> {
    const { notebook = '', cell = '', run = '', kernel } = target;
    const panel = await this._panel(notebook);
    if (!panel) {
      return;
    }
    await showCell(panel, cell);
    const needsNoCell = isBusy(panel) || isAwaited(panel, kernel);
    if (needsNoCell && this._outputs?.show(panel, cell, run)) {
      return;
    }
    NotebookActions.insertBelow(panel.content);
    panel.content.activeCell?.model.sharedModel.setSource(`%gpu_attach ${run}`);
    await NotebookActions.run(panel.content, panel.sessionContext);
  }

  private async _panel(notebook: string): Promise<NotebookPanel | null> {
    const open = this._tracker.find(({ context }) =>
      isAt(notebook, context.localPath)
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

/** Whether a cell would wait, perhaps behind the very run. */
function isBusy(panel: NotebookPanel): boolean {
  return panel.sessionContext.session?.kernel?.status !== 'idle';
}

/** Whether the notebook's kernel waits for the run in the background: it binds the names by itself. */
function isAwaited(panel: NotebookPanel, kernel: string | undefined): boolean {
  const own = panel.sessionContext.session?.kernel?.id;
  return kernel !== undefined && kernel === own;
}
