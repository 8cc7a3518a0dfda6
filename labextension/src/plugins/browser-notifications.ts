import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette, Notification as Toast } from '@jupyterlab/apputils';
import { errorText, formatSeconds } from '../format';
import { runLabel } from '../labels';
import { originOf, titleOf } from '../model/run-titles';
import { IRunRow } from '../model/types';
import { CommandIDs, IGpus } from '../tokens';

/** shorter waits are none */
const WAITED_S = 10;

/** Whether a person looks at this page: then its own notifications are enough. */
function isSeen(): boolean {
  return !document.hidden && document.hasFocus();
}

/** Tell of a run outside of the page; a click shows the run. Of several pages that tell it one is seen. */
function tell({ openRun }: IGpus, run: IRunRow, body: string): void {
  if (isSeen() || Notification.permission !== 'granted') {
    return;
  }
  // a page with the same tag replaces it silently: the end of a run is told apart from its start
  const tag = `${run.run} ${run.state}`;
  const shown = new Notification(titleOf(run), { body, tag });
  shown.onclick = () => {
    window.focus();
    openRun(run.run);
    shown.close();
  };
}

function endOf({ trans }: IGpus, run: IRunRow): string {
  const held = run.granted_at
    ? trans.__('held its GPUs for %1', formatSeconds(run.held_s))
    : '';
  const error = run.error ? errorText(run.error) : '';
  return [runLabel(trans, run.state), error || held, originOf(run)]
    .filter(Boolean)
    .join(' · ');
}

function refusal(trans: IGpus['trans']): string {
  return window.isSecureContext
    ? trans.__(
        'The browser refuses notifications of this page. Allow them in its settings of the site, then try again.'
      )
    : trans.__(
        'Browsers show notifications of pages with https only, or of this computer. Open JupyterLab by such an address, then try again.'
      );
}

/** Turn them on: the browser asks for its permission now, at the user's own act; or off. */
async function toggle(gpus: IGpus): Promise<void> {
  const { trans, preferences, setPreference } = gpus;
  const wanted = !preferences().browserNotifications;
  if (wanted && (await Notification.requestPermission()) !== 'granted') {
    // without a time of its own it would stand in the list of notifications only
    Toast.error(refusal(trans), { autoClose: false });
    return;
  }
  await setPreference('browserNotifications', wanted);
}

export const browserNotificationPlugin: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpu-release:browser-notifications',
  description:
    'Tells outside of the page when a run starts after waiting, or ends.',
  autoStart: true,
  requires: [IGpus],
  optional: [ICommandPalette],
  activate: (
    { commands }: JupyterFrontEnd,
    gpus: IGpus,
    palette: ICommandPalette | null
  ) => {
    if (!('Notification' in window)) {
      return;
    }
    const { trans, model, preferences } = gpus;
    const command = CommandIDs.browserNotifications;
    commands.addCommand(command, {
      label: trans.__('Notify in the Browser when My Runs Start or End'),
      isToggled: () => preferences().browserNotifications,
      execute: () => toggle(gpus)
    });
    palette?.addItem({ command, category: trans.__('GPUs') });
    gpus.preferencesChanged.connect(() =>
      commands.notifyCommandChanged(command)
    );
    model.started.connect((_, run) => {
      if (preferences().browserNotifications && run.queued_s >= WAITED_S) {
        const waited = formatSeconds(run.queued_s);
        tell(gpus, run, trans.__('has its GPUs after %1', waited));
      }
    });
    model.ended.connect((_, { run }) => {
      const { browserNotifications, notifyAfterS } = preferences();
      const isLong = notifyAfterS >= 0 && run.held_s >= notifyAfterS;
      if (browserNotifications && isLong) {
        tell(gpus, run, endOf(gpus, run));
      }
    });
  }
};
