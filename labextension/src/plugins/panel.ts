import {
  ILayoutRestorer,
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { IDocumentManager } from '@jupyterlab/docmanager';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';
import { MenuSvg } from '@jupyterlab/ui-components';
import { Signal } from '@lumino/signaling';
import { Api } from '../model/api';
import { addCommands } from '../commands';
import { ActionRunner } from '../model/actions';
import { EventFeed } from '../model/events';
import { GpuModel } from '../model/model';
import { Advisor } from '../cells/advice';
import { Navigator } from '../cells/navigator';
import { GpuPanel, PANEL_ID } from '../panel';
import { DEFAULTS, GROUPINGS, readPreferences, SORTINGS } from '../preferences';
import { CommandIDs, IGpus, IOutputRestorer } from '../tokens';

const ID = 'jupyter-gpu-release:plugin';
const RANK = 250;

function arrangeMenu(app: JupyterFrontEnd): MenuSvg {
  const menu = new MenuSvg({ commands: app.commands });
  for (const by of GROUPINGS) {
    menu.addItem({ command: CommandIDs.groupBy, args: { by } });
  }
  menu.addItem({ type: 'separator' });
  for (const by of SORTINGS) {
    menu.addItem({ command: CommandIDs.sortBy, args: { by } });
  }
  menu.addItem({ type: 'separator' });
  menu.addItem({ command: CommandIDs.onlyMine });
  menu.addItem({ type: 'separator' });
  menu.addItem({ command: CommandIDs.notify });
  return menu;
}

export const panelPlugin: JupyterFrontEndPlugin<IGpus> = {
  id: ID,
  description: 'The sidebar: who holds which GPU, who waits, and Release.',
  autoStart: true,
  provides: IGpus,
  optional: [
    ITranslator,
    ISettingRegistry,
    ICommandPalette,
    ILayoutRestorer,
    IDocumentManager,
    INotebookTracker,
    IOutputRestorer
  ],
  activate: (
    app: JupyterFrontEnd,
    translator: ITranslator | null,
    registry: ISettingRegistry | null,
    palette: ICommandPalette | null,
    restorer: ILayoutRestorer | null,
    documents: IDocumentManager | null,
    tracker: INotebookTracker | null,
    outputs: IOutputRestorer | null
  ): IGpus => {
    const trans = (translator ?? nullTranslator).load('jupyter_gpu_release');
    const { serviceManager, shell } = app;
    const api = new Api(serviceManager.serverSettings);
    const model = new GpuModel(api);
    const navigator =
      documents && tracker
        ? new Navigator(
            documents,
            tracker,
            id => shell.activateById(id),
            outputs
          )
        : null;
    const advisor = tracker ? new Advisor(tracker, api, trans) : null;
    const openRun = (run: string) =>
      void app.commands.execute(CommandIDs.openRun, { run });
    const runner = new ActionRunner(model, api, trans, navigator, openRun);
    const feed = new EventFeed(model, serviceManager.events.stream);
    let preferences = DEFAULTS;
    const preferencesChanged = new Signal<object, void>(model);
    const menu = arrangeMenu(app);
    const panel = new GpuPanel({
      model,
      runner,
      trans,
      advisor,
      onArrange: button => {
        const box = button.getBoundingClientRect();
        menu.open(box.left, box.bottom);
      },
      get onCheck() {
        const { commands } = app; // its plugin comes after this one, or is disabled
        return commands.hasCommand(CommandIDs.doctor)
          ? () => void commands.execute(CommandIDs.doctor)
          : undefined;
      }
    });
    shell.add(panel, 'left', { rank: RANK, type: 'GPUs' });
    restorer?.add(panel, PANEL_ID);
    const gpus: IGpus = {
      model,
      api,
      runner,
      navigator,
      advisor,
      openRun,
      trans,
      culls: feed.culls,
      preferences: () => preferences,
      preferencesChanged,
      setPreference: async (name, value) => {
        await (await settings)?.set(name, value);
      }
    };
    const settings = registry?.load(ID).then(loaded => {
      const apply = () => {
        preferences = readPreferences(loaded);
        model.interval = preferences.refreshIntervalS * 1000;
        model.looksWhenHidden = preferences.browserNotifications;
        panel.arrangement = preferences;
        preferencesChanged.emit();
      };
      loaded.changed.connect(apply);
      apply();
      return loaded;
    });
    settings?.catch(error => console.error('GPU settings', error));
    addCommands(app, gpus, palette, settings ?? null);
    // events are not answered while the page is hidden
    document.addEventListener('visibilitychange', () => {
      if (!document.hidden) {
        void model.refresh();
      }
    });
    model.start();
    return gpus;
  }
};
