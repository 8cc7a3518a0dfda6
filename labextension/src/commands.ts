import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { ICommandPalette } from '@jupyterlab/apputils';
import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import { Grouping, Sorting } from './model/sorting';
import { gpuTarget } from './model/actions';
import { gpuIcon, releaseIcon } from './icons';
import { PANEL_ID } from './panel';
import { refreshIcon } from '@jupyterlab/ui-components';
import { GROUPINGS, SORTINGS } from './preferences';
import { IGpu } from './model/gpus';
import { CommandIDs, IGpus } from './tokens';

type Settings = Promise<ISettingRegistry.ISettings> | null;

/** Everything that the panel does, as commands: palette, menus and shortcuts can use them. */
export function addCommands(
  app: JupyterFrontEnd,
  gpus: IGpus,
  palette: ICommandPalette | null,
  settings: Settings
): void {
  const { commands, shell } = app;
  const { trans, model } = gpus;
  commands.addCommand(CommandIDs.open, {
    label: trans.__('Show GPUs'),
    caption: trans.__('Who holds which GPU, and who waits'),
    icon: gpuIcon,
    execute: () => shell.activateById(PANEL_ID)
  });
  const { advisor } = gpus;
  if (advisor) {
    commands.addCommand(CommandIDs.advise, {
      label: trans.__('Advise on This Notebook'),
      caption: trans.__(
        'Which of its cells are worth a GPU cell; nothing of it is run'
      ),
      icon: gpuIcon,
      isEnabled: () => advisor.current !== null,
      execute: async () => {
        shell.activateById(PANEL_ID);
        await advisor.ask();
      }
    });
    advisor.changed.connect(() =>
      commands.notifyCommandChanged(CommandIDs.advise)
    );
    palette?.addItem({
      command: CommandIDs.advise,
      category: trans.__('GPUs')
    });
  }
  commands.addCommand(CommandIDs.refresh, {
    label: trans.__('Look at the GPUs again'),
    icon: refreshIcon,
    execute: () => model.refresh()
  });
  commands.addCommand(CommandIDs.releaseMine, {
    label: trans.__('Release my warm GPUs'),
    caption: trans.__('End the leases that are kept warm for my notebooks'),
    icon: releaseIcon,
    isEnabled: () => warmOfMine(gpus).length > 0,
    execute: async () => {
      const warm = warmOfMine(gpus);
      const leases = new Map(warm.map(gpu => [gpu.lease, gpu]));
      for (const gpu of leases.values()) {
        await gpus.runner.run('release', gpuTarget(gpu));
      }
    }
  });
  addArrangement(app, gpus, settings);
  const category = trans.__('GPUs');
  const { open, refresh, releaseMine, onlyMine } = CommandIDs;
  for (const command of [open, refresh, releaseMine, onlyMine]) {
    palette?.addItem({ command, category });
  }
  for (const by of GROUPINGS) {
    palette?.addItem({ command: CommandIDs.groupBy, category, args: { by } });
  }
  for (const by of SORTINGS) {
    palette?.addItem({ command: CommandIDs.sortBy, category, args: { by } });
  }
}

function addArrangement(
  { commands }: JupyterFrontEnd,
  gpus: IGpus,
  settings: Settings
): void {
  const { trans, preferences } = gpus;
  const set = async (name: string, value: string | boolean) => {
    await (await settings)?.set(name, value);
  };
  commands.addCommand(CommandIDs.groupBy, {
    label: args => groupingLabel(trans, by(args, GROUPINGS)),
    isToggled: args => preferences().grouping === args.by,
    execute: args => set('grouping', by(args, GROUPINGS))
  });
  commands.addCommand(CommandIDs.sortBy, {
    label: args => sortingLabel(trans, by(args, SORTINGS)),
    isToggled: args => preferences().sorting === args.by,
    execute: args => set('sorting', by(args, SORTINGS))
  });
  commands.addCommand(CommandIDs.onlyMine, {
    label: trans.__('Only my GPUs'),
    isToggled: () => preferences().onlyMine,
    execute: () => set('onlyMine', !preferences().onlyMine)
  });
  gpus.preferencesChanged.connect(() => {
    commands.notifyCommandChanged(CommandIDs.groupBy);
    commands.notifyCommandChanged(CommandIDs.sortBy);
    commands.notifyCommandChanged(CommandIDs.onlyMine);
  });
}

/** The argument, or the first choice where it is none of them. */
function by<T extends string>(
  args: ReadonlyPartialJSONObject,
  choices: readonly T[]
): T {
  return choices.find(choice => choice === args.by) ?? choices[0];
}

function warmOfMine({ model }: IGpus): IGpu[] {
  return model.snapshot.hosts
    .flatMap(host => host.gpus)
    .filter(gpu => gpu.mine && gpu.state === 'warm');
}

function groupingLabel(trans: TranslationBundle, grouping: Grouping): string {
  switch (grouping) {
    case 'node':
      return trans.__('Group GPUs by Node');
    case 'user':
      return trans.__('Group GPUs by Holder');
    case 'state':
      return trans.__('Group GPUs by State');
    case 'none':
      return trans.__('Do not Group GPUs');
  }
}

function sortingLabel(trans: TranslationBundle, sorting: Sorting): string {
  switch (sorting) {
    case 'index':
      return trans.__('Sort GPUs by Number');
    case 'memory':
      return trans.__('Sort GPUs by Memory Used');
    case 'utilization':
      return trans.__('Sort GPUs by Utilisation');
    case 'age':
      return trans.__('Sort GPUs by Time Held');
  }
}
