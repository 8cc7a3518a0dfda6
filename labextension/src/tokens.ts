import { Token } from '@lumino/coreutils';
import type { NotebookPanel } from '@jupyterlab/notebook';
import type { ISignal } from '@lumino/signaling';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { IApi } from './model/api';
import type { ICullEvent } from './model/types';
import type { Advisor } from './cells/advice';
import type { ActionRunner, INavigator } from './model/actions';
import type { GpuModel } from './model/model';
import type { IPreferences } from './preferences';

/** What the parts of this extension share. */
export interface IGpus {
  model: GpuModel;
  api: IApi;
  runner: ActionRunner;
  navigator: INavigator | null;
  /** advice on the notebook in front */
  advisor: Advisor | null;
  /** shows the page of a run */
  openRun: (run: string) => void;
  trans: TranslationBundle;
  /** what the idle policy is about to do, or did */
  culls: ISignal<unknown, ICullEvent>;
  preferences: () => IPreferences;
  preferencesChanged: ISignal<unknown, void>;
  setPreference: (name: keyof IPreferences, value: boolean) => Promise<void>;
}

export const IGpus = new Token<IGpus>(
  'jupyter-gpu-release:IGpus',
  'GPUs of the cluster and of this server: who holds what, who waits, and the actions on them.'
);

/** Brings the output of runs back into their cells. */
export interface IOutputRestorer {
  /** Show the run in its cell of this notebook; false: there is no such cell. */
  show(panel: NotebookPanel, cell: string, run: string): boolean;
}

export const IOutputRestorer = new Token<IOutputRestorer>(
  'jupyter-gpu-release:IOutputRestorer',
  'Brings the output of runs back into their cells, without a kernel.'
);

/** Ids of the commands. */
export namespace CommandIDs {
  export const open = 'jupyter-gpu-release:open';
  export const refresh = 'jupyter-gpu-release:refresh';
  export const groupBy = 'jupyter-gpu-release:group-by';
  export const sortBy = 'jupyter-gpu-release:sort-by';
  export const onlyMine = 'jupyter-gpu-release:only-mine';
  export const releaseMine = 'jupyter-gpu-release:release-mine';
  export const runOnGpu = 'jupyter-gpu-release:run-on-gpu';
  export const advise = 'jupyter-gpu-release:advise';
  export const openRun = 'jupyter-gpu-release:open-run';
  export const rowAction = 'jupyter-gpu-release:row-action';
  export const copyRunId = 'jupyter-gpu-release:copy-run-id';
  export const copyAttachLine = 'jupyter-gpu-release:copy-attach-line';
  export const browserNotifications =
    'jupyter-gpu-release:browser-notifications';
  export const notify = 'jupyter-gpu-release:notify';
  export const doctor = 'jupyter-gpu-release:doctor';
  export const openRunOfUrl = 'jupyter-gpu-release:open-run-of-url';
  export const toggleGpuCell = 'jupyter-gpu-release:toggle-gpu-cell';
}
