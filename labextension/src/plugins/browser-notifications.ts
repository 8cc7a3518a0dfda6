import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette, Notification as Toast } from '@jupyterlab/apputils';
import { formatSeconds } from '../format';
import { whyText, stateText } from '../labels';
import { originOf, titleOf } from '../model/run-titles';
import { IRunRow } from '../model/types';
import { CommandIDs, IGpus } from '../tokens';
import { OpenPages } from './open-pages';

/** shorter waits are none */
const WAITED_S = 10;

/** Tell of a run outside of the page; a click shows the run. */
function tell(
  { openRun }: IGpus,
  run: IRunRow,
  tag: string,
  body: string
): void {
  const shown = new Notification(titleOf(run), { body, tag });
  shown.onclick = () => {
    window.focus();
    openRun(run.run);
    shown.close();
  };
}

function endOf({ trans }: IGpus, run: IRunRow): string {
  return [stateText(trans, run), whyText(trans, run), originOf(run)]
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
    if (!('Notification' in window && 'locks' in navigator)) {
      return;
    }
    const { trans, model, preferences } = gpus;
    const pages = new OpenPages();
    const tellOnce = (run: IRunRow, body: string, what: string = run.state) => {
      if (Notification.permission === 'granted') {
        const event = `${run.run} ${what}`; // its end is told apart from its start
        void pages.tellOnce(event, () => tell(gpus, run, event, body));
      }
    };
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
        tellOnce(run, trans.__('has its GPUs after %1', waited));
      }
    });
    model.paused.connect((_, run) => {
      if (preferences().browserNotifications) {
        const pauses = run.earlier ?? [];
        tellOnce(run, pauses[pauses.length - 1], `paused ${pauses.length}`);
      }
    });
    model.ended.connect((_, { run }) => {
      const { browserNotifications, notifyAfterS } = preferences();
      const isLong = notifyAfterS >= 0 && run.held_s >= notifyAfterS;
      if (browserNotifications && isLong) {
        tellOnce(run, endOf(gpus, run));
      }
    });
  }
};
