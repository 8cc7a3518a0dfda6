import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { NotebookHealer } from '../heal/healer';
import { Api } from '../model/api';
import { IHealer } from '../tokens';

export const healPlugin: JupyterFrontEndPlugin<IHealer> = {
  id: 'jupyter-gpu-release:heal',
  description: 'Brings the output of GPU cells back into their cells.',
  autoStart: true,
  provides: IHealer,
  optional: [INotebookTracker],
  activate: (
    app: JupyterFrontEnd,
    tracker: INotebookTracker | null
  ): IHealer => {
    const settings = app.serviceManager.serverSettings;
    const api = new Api(settings);
    const healers = new WeakMap<NotebookPanel, NotebookHealer>();
    tracker?.widgetAdded.connect(async (_, panel) => {
      await panel.context.ready;
      if (!panel.isDisposed) {
        healers.set(panel, new NotebookHealer(panel, api, settings));
      }
    });
    return {
      show: (panel, cell, run) => healers.get(panel)?.show(cell, run) ?? false
    };
  }
};
