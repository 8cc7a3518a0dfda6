import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { KEEP_S } from '../model/actions';
import { titleOf } from '../model/run-titles';
import { holdsGpu, ICullEvent, IRunRow } from '../model/types';
import { baseName, errorText, formatClock, formatSeconds } from '../format';
import { IGpus } from '../tokens';

const SHOWN_MS = 10_000;
const ON_AGAIN_MS = 10_000;

/** One notification per kernel or lease that is about to be culled, gone when it is kept or culled. */
class CullNotices {
  constructor(private _gpus: IGpus) {}

  show(event: ICullEvent): void {
    const key = event.id;
    const known = this._shown.get(key);
    if (event.phase !== 'warning') {
      if (known) {
        Notification.dismiss(known);
        this._shown.delete(key);
      }
      if (event.phase === 'done') {
        const text = doneText(this._gpus.trans, event);
        Notification.info(text, { autoClose: SHOWN_MS });
      }
      return;
    }
    const message = warningText(this._gpus.trans, event);
    if (known && Notification.manager.has(known)) {
      Notification.update({ id: known, message });
      return;
    }
    const id = Notification.warning(message, {
      autoClose: false,
      actions: this._answers(event)
    });
    this._shown.set(key, id);
  }

  private _answers(event: ICullEvent): Notification.IAction[] {
    const { trans } = this._gpus;
    const keep: Notification.IAction = {
      label:
        event.kind === 'lease' ? trans.__('Extend') : trans.__('Keep 30 min'),
      displayType: 'accent',
      callback: () => void this._answer(event, 'keep')
    };
    const release: Notification.IAction = {
      label: trans.__('Release now'),
      callback: () => void this._answer(event, 'release')
    };
    return [keep, release];
  }

  private async _answer(
    { kind, id }: ICullEvent,
    answer: 'keep' | 'release'
  ): Promise<void> {
    const { api, model, trans } = this._gpus;
    const isLease = kind === 'lease';
    const keep = async () => {
      if (isLease) {
        const until = await api.extendLease(id, KEEP_S);
        return trans.__('Kept until %1', formatClock(until));
      }
      await api.keepKernel(id, KEEP_S);
      return trans.__('Kept for 30 minutes');
    };
    const release = async () => {
      await (isLease ? api.releaseLease(id) : api.releaseKernel(id));
      return trans.__('The GPU is released');
    };
    const key = `${kind}:${id}`;
    const work = answer === 'keep' ? keep : release;
    const isDone = await model.act(key, trans.__('Working…'), work);
    const text = model.feedback.get(key)?.text ?? '';
    if (isDone) {
      Notification.success(text, { autoClose: SHOWN_MS / 2 });
    } else {
      Notification.error(text, { autoClose: false });
    }
  }

  private _shown = new Map<string, string>();
}

/** What the warning before a cull says. */
export function warningText(
  trans: TranslationBundle,
  event: ICullEvent
): string {
  const name = event.path ? baseName(event.path) : trans.__('A kernel');
  const what = trans.__('%1 holds a GPU for nothing.', name);
  const when =
    event.due_s === null
      ? ''
      : trans.__('It is taken in %1.', formatSeconds(event.due_s));
  const reason = event.reason ? `(${event.reason})` : '';
  return [what, when, reason].filter(Boolean).join(' '); // JupyterLab cuts long ones off
}

function doneText(trans: TranslationBundle, event: ICullEvent): string {
  const name = event.path ? baseName(event.path) : trans.__('A kernel');
  const reason = event.reason ? ` (${event.reason})` : '';
  switch (event.action) {
    case 'shutdown':
      return trans.__('The idle kernel of %1 was shut down%2.', name, reason);
    case 'suspend':
      return trans.__('The idle kernel of %1 was suspended%2.', name, reason);
    default:
      return trans.__('The idle GPU of %1 was released%2.', name, reason);
  }
}

/** What is said of a run that has ended. */
export function endText(trans: TranslationBundle, run: IRunRow): string {
  const name = titleOf(run);
  const took = formatSeconds(run.held_s);
  if (run.state === 'lost') {
    return trans.__('%1 was lost after %2: %3', name, took, reasonOf(run));
  }
  if (run.state !== 'succeeded') {
    return trans.__('%1 failed after %2: %3', name, took, reasonOf(run));
  }
  return run.gpus
    ? trans.__('%1 succeeded. It held its GPU for %2.', name, took)
    : trans.__('%1 succeeded. It took %2.', name, took);
}

function tellEnd(gpus: IGpus, run: IRunRow): void {
  const { trans, runner, preferences } = gpus;
  const after = preferences().notifyAfterS;
  if (after < 0 || run.held_s < after || run.state === 'cancelled') {
    return;
  }
  const isGood = run.state === 'succeeded';
  const message = endText(trans, run);
  const show: Notification.IAction = {
    label: trans.__('Show cell'),
    callback: () =>
      void runner.run('open', {
        key: run.run,
        notebook: run.notebook,
        cell: run.cell
      })
  };
  const actions = run.notebook && runner.canOpen ? [show] : [];
  Notification.emit(message, isGood ? 'success' : 'error', {
    autoClose: false,
    actions
  });
}

/** What is said of a run that was preempted, or that was lost and goes on. */
export function pauseText(trans: TranslationBundle, run: IRunRow): string {
  const why = run.earlier?.[run.earlier.length - 1] ?? '';
  return holdsGpu(run.state)
    ? trans.__('%1: %2. It goes on now.', titleOf(run), why)
    : trans.__('%1: %2. It goes on later.', titleOf(run), why);
}

function reasonOf(run: IRunRow): string {
  return run.error ? errorText(run.error) : run.reason;
}

export const notificationPlugin: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpu-release:notifications',
  description: 'Tells when a long run ends, and before an idle GPU is taken.',
  autoStart: true,
  requires: [IGpus],
  activate: (_: JupyterFrontEnd, gpus: IGpus) => {
    const notices = new CullNotices(gpus);
    gpus.culls.connect((_sender, event) => notices.show(event));
    const pauses = new Map<string, string>();
    const forget = (run: IRunRow) => {
      const shown = pauses.get(run.run);
      if (shown !== undefined) {
        Notification.dismiss(shown);
        pauses.delete(run.run);
      }
    };
    gpus.model.paused.connect((_sender, run) => {
      const autoClose = holdsGpu(run.state) ? ON_AGAIN_MS : false;
      const text = pauseText(gpus.trans, run);
      forget(run);
      pauses.set(run.run, Notification.info(text, { autoClose }));
    });
    gpus.model.started.connect((_sender, run) => forget(run));
    gpus.model.ended.connect((_sender, { run }) => {
      forget(run);
      tellEnd(gpus, run);
    });
  }
};
