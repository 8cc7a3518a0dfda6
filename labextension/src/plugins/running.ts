import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { originOf, titleOf } from '../model/run-titles';
import { IRunningSessionManagers, IRunningSessions } from '@jupyterlab/running';
import { Signal } from '@lumino/signaling';
import { runTarget } from '../model/actions';
import { IRunRow, isTerminal } from '../model/types';
import { RUN_ICONS } from '../icons';
import { IGpus } from '../tokens';
import { runLabel } from '../labels';

function liveRuns(gpus: IGpus): IRunRow[] {
  return gpus.model.snapshot.runs.filter(run => !isTerminal(run.state));
}

function itemOf(gpus: IGpus, run: IRunRow): IRunningSessions.IRunningItem {
  const { trans, runner } = gpus;
  const title = [...new Set([titleOf(run), originOf(run)])].join(' · ');
  const count = trans._n('%1 GPU', '%1 GPUs', run.gpus);
  return {
    open: () => void runner.run('open', runTarget(run)),
    shutdown: () => void runner.run('cancel', runTarget(run)),
    icon: () => RUN_ICONS[run.state],
    label: () => title,
    labelTitle: () => run.notebook,
    detail: () => `${runLabel(trans, run.state)} · ${count}`
  };
}

export const runningPlugin: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpu-release:running',
  description: 'GPU runs in the panel of running things.',
  autoStart: true,
  requires: [IGpus],
  optional: [IRunningSessionManagers],
  activate: (
    _: JupyterFrontEnd,
    gpus: IGpus,
    managers: IRunningSessionManagers | null
  ) => {
    if (!managers) {
      return;
    }
    const { trans, model, api } = gpus;
    const changed = new Signal<unknown, void>(model);
    let shown = '';
    model.stateChanged.connect(() => {
      const now = liveRuns(gpus)
        .map(run => run.run + run.state)
        .join();
      if (now !== shown) {
        shown = now;
        changed.emit();
      }
    });
    managers.add({
      name: trans.__('GPU Runs'),
      running: () => liveRuns(gpus).map(run => itemOf(gpus, run)),
      // the panel has asked whether the user is sure
      shutdownAll: () =>
        liveRuns(gpus).forEach(run => {
          void model.act(
            runTarget(run).key,
            trans.__('Cancelling…'),
            async () => {
              await api.cancelRun(run.run);
              return trans.__('Asked to end');
            }
          );
        }),
      refreshRunning: () => void model.refresh(),
      runningChanged: changed,
      shutdownLabel: trans.__('Cancel'),
      shutdownAllLabel: trans.__('Cancel all'),
      shutdownAllConfirmationText: trans.__(
        'Cancel all your GPU runs? What they were about to compute is lost.'
      )
    });
  }
};
