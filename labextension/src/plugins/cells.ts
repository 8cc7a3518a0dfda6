import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { INotebookTracker, NotebookActions } from '@jupyterlab/notebook';
import { askForMagic, offerOf } from '../cells/form';
import { CellHints } from '../cells/hints';
import { readMagic, writeMagic } from '../cells/magic';
import { gpuIcon } from '../icons';
import { CommandIDs, IGpus } from '../tokens';

async function runOnGpu(gpus: IGpus, tracker: INotebookTracker): Promise<void> {
  const panel = tracker.currentWidget;
  const cell = tracker.activeCell;
  if (!panel || cell?.model.type !== 'code') {
    return;
  }
  const source = cell.model.sharedModel.getSource();
  const offer = offerOf(gpus.model.snapshot);
  const answer = await askForMagic(readMagic(source), offer, gpus.trans);
  if (!answer) {
    return;
  }
  cell.model.sharedModel.setSource(writeMagic(source, answer.line));
  if (answer.run) {
    await NotebookActions.run(panel.content, panel.sessionContext);
  }
}

export const cellPlugin: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpu-release:cells',
  description: 'State and Cancel at GPU cells; "Run on GPU" with a form.',
  autoStart: true,
  requires: [IGpus],
  optional: [INotebookTracker, ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    gpus: IGpus,
    tracker: INotebookTracker | null,
    palette: ICommandPalette | null
  ) => {
    if (!tracker) {
      return;
    }
    const { trans, preferences, preferencesChanged } = gpus;
    const hints = new CellHints(
      tracker,
      gpus,
      () => preferences().showCellHints
    );
    preferencesChanged.connect(() => hints.update());
    app.commands.addCommand(CommandIDs.runOnGpu, {
      label: trans.__('Run on GPU…'),
      caption: trans.__('Give this cell a GPU of the cluster while it runs'),
      icon: gpuIcon,
      isEnabled: () => tracker.activeCell?.model.type === 'code',
      execute: () => runOnGpu(gpus, tracker)
    });
    tracker.activeCellChanged.connect(() =>
      app.commands.notifyCommandChanged(CommandIDs.runOnGpu)
    );
    palette?.addItem({
      command: CommandIDs.runOnGpu,
      category: trans.__('GPUs')
    });
  }
};
