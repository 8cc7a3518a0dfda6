import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { watchLocalTimes } from '../outputs/clocks';
import { OutputRestorer } from '../outputs/restorer';
import { Api } from '../model/api';
import { IOutputRestorer } from '../tokens';

export const outputsPlugin: JupyterFrontEndPlugin<IOutputRestorer> = {
  id: 'jupyter-gpu-release:outputs',
  description: 'Brings the output of GPU cells back into their cells.',
  autoStart: true,
  provides: IOutputRestorer,
  optional: [INotebookTracker],
  activate: (
    app: JupyterFrontEnd,
    tracker: INotebookTracker | null
  ): IOutputRestorer => {
    const settings = app.serviceManager.serverSettings;
    const api = new Api(settings);
    const restorers = new WeakMap<NotebookPanel, OutputRestorer>();
    tracker?.widgetAdded.connect(async (_, panel) => {
      const stop = watchLocalTimes(panel.content.node);
      panel.disposed.connect(stop);
      await panel.context.ready;
      if (!panel.isDisposed) {
        restorers.set(panel, new OutputRestorer(panel, api, settings));
      }
    });
    return {
      show: (panel, cell, run) => restorers.get(panel)?.show(cell, run) ?? false
    };
  }
};
