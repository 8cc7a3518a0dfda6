import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import type { ICellModel } from '@jupyterlab/cells';
import { ICompletionProviderManager } from '@jupyterlab/completer';
import { INotebookTracker, NotebookActions } from '@jupyterlab/notebook';
import { completeMagics } from '../cells/completion';
import { estimate } from '../cells/estimate';
import { askForMagic, offerOf } from '../cells/form';
import { CellHints } from '../cells/hints';
import {
  hasMagic,
  magicLine,
  plainCode,
  readMagic,
  writeMagic
} from '../cells/magic';
import { CellMarks } from '../cells/marks';
import { gpuIcon } from '../icons';
import { CommandIDs, IGpus } from '../tokens';

async function runOnGpu(gpus: IGpus, tracker: INotebookTracker): Promise<void> {
  const panel = tracker.currentWidget;
  const cell = tracker.activeCell;
  if (!panel || cell?.model.type !== 'code') {
    return;
  }
  const { trans } = gpus;
  const source = cell.model.sharedModel.getSource();
  const kernel = () => panel.sessionContext.session?.kernel;
  const answer = await askForMagic(
    {
      line: readMagic(source),
      offer: offerOf(gpus.model.snapshot),
      trans,
      estimate: line => estimate(kernel(), writeMagic(source, line), trans)
    },
    hasMagic(source)
  );
  if (!answer) {
    return;
  }
  cell.model.sharedModel.setSource(
    answer.then === 'plain'
      ? plainCode(source)
      : writeMagic(source, answer.line)
  );
  if (answer.then === 'run') {
    await NotebookActions.run(panel.content, panel.sessionContext);
  }
}

/** Why the active cell cannot be a GPU cell; empty: it can. */
function refusal(gpus: IGpus, tracker: INotebookTracker): string {
  const { trans } = gpus;
  const language = tracker.currentWidget?.content.model?.defaultKernelLanguage;
  if (!tracker.activeCell) {
    return trans.__('Choose a code cell first');
  }
  if (tracker.activeCell.model.type !== 'code') {
    return trans.__('Only code cells run on a GPU; this one is text');
  }
  return language && language.toLowerCase() !== 'python'
    ? trans.__('GPU cells are Python; this notebook is %1', language)
    : '';
}

/** GPU cell ↔ plain cell. The line of a cell that was one is remembered while the page is open. */
class Toggle {
  constructor(private _tracker: INotebookTracker) {}

  get isOn(): boolean {
    const model = this._tracker.activeCell?.model;
    return model?.type === 'code' && hasMagic(model.sharedModel.getSource());
  }

  flip(): void {
    const model = this._tracker.activeCell?.model;
    if (model?.type !== 'code') {
      return;
    }
    const source = model.sharedModel.getSource();
    if (this.isOn) {
      this._lines.set(model, magicLine(source));
      model.sharedModel.setSource(plainCode(source));
    } else {
      const line = this._lines.get(model) ?? '%%gpu_train';
      model.sharedModel.setSource(`${line}\n${source}`);
    }
  }

  private _lines = new WeakMap<ICellModel, string>();
}

function addCommands(
  app: JupyterFrontEnd,
  gpus: IGpus,
  tracker: INotebookTracker
): void {
  const { trans } = gpus;
  const toggle = new Toggle(tracker);
  const isEnabled = () => refusal(gpus, tracker) === '';
  app.commands.addCommand(CommandIDs.runOnGpu, {
    label: trans.__('Run on GPU…'),
    caption: () =>
      refusal(gpus, tracker) ||
      trans.__('Give this cell a GPU of the cluster while it runs'),
    icon: gpuIcon,
    isEnabled,
    execute: () => runOnGpu(gpus, tracker)
  });
  app.commands.addCommand(CommandIDs.toggleGpuCell, {
    label: trans.__('GPU cell'),
    caption: () =>
      refusal(gpus, tracker) ||
      (toggle.isOn
        ? trans.__('Make it a plain cell again')
        : trans.__('Make it a GPU cell: it has a GPU while it runs')),
    icon: gpuIcon,
    isEnabled,
    isToggleable: true,
    isToggled: () => toggle.isOn,
    execute: () => toggle.flip()
  });
}

export const cellPlugin: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpu-release:cells',
  description: 'State and Cancel at GPU cells; "Run on GPU" with a form.',
  autoStart: true,
  requires: [IGpus],
  optional: [INotebookTracker, ICommandPalette, ICompletionProviderManager],
  activate: (
    app: JupyterFrontEnd,
    gpus: IGpus,
    tracker: INotebookTracker | null,
    palette: ICommandPalette | null,
    completions: ICompletionProviderManager | null
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
    addCommands(app, gpus, tracker);
    if (completions) {
      void app.restored.then(() => completeMagics(completions));
    }
    const marks = new CellMarks(tracker, trans);
    const notify = () => {
      app.commands.notifyCommandChanged(CommandIDs.runOnGpu);
      app.commands.notifyCommandChanged(CommandIDs.toggleGpuCell);
    };
    tracker.activeCellChanged.connect(notify);
    marks.changed.connect(notify);
    const category = trans.__('GPUs');
    palette?.addItem({ command: CommandIDs.runOnGpu, category });
    palette?.addItem({ command: CommandIDs.toggleGpuCell, category });
  }
};
