import type { TranslationBundle } from '@jupyterlab/translation';
import { errorText, formatClock, formatSeconds } from './format';
import { GpuState, IRunRow, RunState } from './model/types';
import { Action } from './model/permissions';

/**
 * The state of a GPU in a word or two: those of `jupyter_gpu_release/presentation/wording.py`, with a capital.
 */
export function gpuLabel(trans: TranslationBundle, state: GpuState): string {
  switch (state) {
    case 'free':
      return trans.__('Free');
    case 'running':
      return trans.__('Running');
    case 'warm':
      return trans.__('Warm');
    case 'idle-kernel':
      return trans.__('Idle kernel');
    case 'unattributed':
      return trans.__('Unattributed');
    case 'drained':
      return trans.__('Drained');
  }
}

/** What that word means, for who sees it for the first time. */
export function gpuHint(trans: TranslationBundle, state: GpuState): string {
  switch (state) {
    case 'free':
      return trans.__('Free: the next GPU cell may take it');
    case 'running':
      return trans.__('Running: a cell computes on it');
    case 'warm':
      return trans.__(
        'Warm: kept for the next cell of its notebook, until the time is over'
      );
    case 'idle-kernel':
      return trans.__('Idle kernel: it holds GPU memory and computes nothing');
    case 'unattributed':
      return trans.__(
        'Unattributed: a process uses it that belongs to no notebook and no run'
      );
    case 'drained':
      return trans.__('Drained: an administrator lets no new runs onto it');
  }
}

/** What a run took; a CPU stage has no GPUs. */
export function heldText(trans: TranslationBundle, run: IRunRow): string {
  const took = formatSeconds(run.held_s);
  return run.gpus
    ? trans.__('held its GPUs for %1', took)
    : trans.__('took %1', took);
}

/** The state of a run in a word, as in the cell, the receipt and the terminal. */
export function runLabel(trans: TranslationBundle, state: RunState): string {
  switch (state) {
    case 'submitted':
      return trans.__('Queued');
    case 'queued':
      return trans.__('Queued');
    case 'starting':
      return trans.__('Starting');
    case 'running':
      return trans.__('Running');
    case 'yielding':
      return trans.__('Being preempted');
    case 'releasing':
      return trans.__('Releasing');
    case 'persisting':
      return trans.__('Persisting');
    case 'succeeded':
      return trans.__('Succeeded');
    case 'failed':
      return trans.__('Failed');
    case 'cancelled':
      return trans.__('Cancelled');
    case 'lost':
      return trans.__('Lost');
  }
}

/** The word for the state of a run. As `word_of` in wording.py. */
export function runWord(trans: TranslationBundle, run: IRunRow): string {
  return isPruned(run) ? trans.__('Pruned') : runLabel(trans, run.state);
}

/** Its sweep has ended this trial early. */
function isPruned({ cause, state }: IRunRow): boolean {
  return cause?.code === 'pruned' && state === 'cancelled';
}

/** State and reason in one, where the reason names the state: `Cancelled by you`. As `state_words` in wording.py. */
export function stateText(trans: TranslationBundle, run: IRunRow): string {
  return namesState(run)
    ? run.reason[0].toUpperCase() + run.reason.slice(1)
    : runWord(trans, run);
}

/** What else is to be said of a run that is over: its error, or why it ended, or what it took. */
export function whyText(trans: TranslationBundle, run: IRunRow): string {
  const why = run.error ? errorText(run.error) : run.reason;
  const held = run.granted_at ? heldText(trans, run) : '';
  return (namesState(run) ? '' : why) || held;
}

function namesState(run: IRunRow): boolean {
  return run.cause?.code === run.state || isPruned(run);
}

/** Why results are not on the store yet; the time of the next try in the browser's zone. */
export function waitText(trans: TranslationBundle, run: IRunRow): string {
  const { waits_for: words = '', next_try_at: at } = run;
  return words && typeof at === 'number'
    ? trans.__('%1, next try at %2', words, formatClock(at))
    : words;
}

/** What that word means. */
export function runHint(trans: TranslationBundle, run: IRunRow): string {
  if (isPruned(run)) {
    return trans.__('Pruned: its sweep ended it, other trials do better');
  }
  switch (run.state) {
    case 'submitted':
    case 'queued':
      return trans.__('Queued: it waits for its GPUs');
    case 'starting':
      return trans.__('Starting: it has its GPUs, the cell begins');
    case 'running':
      return trans.__('Running: the cell computes');
    case 'yielding':
      return trans.__('Being preempted: it is saved, and resumed later');
    case 'releasing':
      return trans.__('Releasing: the cell is over, its GPUs are given back');
    case 'persisting':
      return trans.__('Persisting: its GPUs are free, results are written');
    case 'succeeded':
      return trans.__('Succeeded: its names are in the notebook');
    case 'failed':
      return trans.__('Failed: the cell raised an error');
    case 'cancelled':
      return trans.__('Cancelled: it was ended before its last statement');
    case 'lost':
      return trans.__('Lost: its process, node or cluster died');
  }
}

/** Somebody's name, for `me`. */
export function person(
  trans: TranslationBundle,
  user: string,
  me: string
): string {
  return user !== '' && user === me ? trans.__('you') : user;
}

/** What an action's button says. */
export function actionLabel(trans: TranslationBundle, action: Action): string {
  switch (action) {
    case 'release':
      return trans.__('Release');
    case 'extend':
      return trans.__('Extend');
    case 'cancel':
      return trans.__('Cancel');
    case 'attach':
      return trans.__('Attach');
    case 'open':
      return trans.__('Open notebook');
    case 'release-kernel':
      return trans.__('Release GPU');
    case 'keep-kernel':
      return trans.__('Keep 30 min');
    case 'show':
      return trans.__('Show run and log');
    case 'pin':
      return trans.__('Pin results');
    case 'unpin':
      return trans.__('Unpin results');
  }
}

/** Of a sweep: how many trials are in which state. */
export function trialsText(
  trials: IRunRow[],
  trans: TranslationBundle
): string {
  const counts = new Map<string, number>();
  for (const trial of trials) {
    const word = runWord(trans, trial).toLowerCase();
    counts.set(word, (counts.get(word) ?? 0) + 1);
  }
  return [...counts].map(([word, count]) => `${count} ${word}`).join(', ');
}
