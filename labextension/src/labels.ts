import type { TranslationBundle } from '@jupyterlab/translation';
import { GpuState, RunState } from './model/types';
import { Action } from './model/permissions';

/** The state of a GPU in a word or two. */
export function gpuLabel(trans: TranslationBundle, state: GpuState): string {
  switch (state) {
    case 'free':
      return trans.__('Free');
    case 'running':
      return trans.__('Running');
    case 'warm':
      return trans.__('Kept warm');
    case 'idle-kernel':
      return trans.__('Idle kernel');
    case 'unattributed':
      return trans.__('Unknown process');
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
        'Kept warm: for the next cell of its notebook, until the time is over'
      );
    case 'idle-kernel':
      return trans.__('Idle kernel: it holds GPU memory and computes nothing');
    case 'unattributed':
      return trans.__(
        'Unknown process: no notebook and no run accounts for it'
      );
    case 'drained':
      return trans.__('Drained: an administrator lets no new runs onto it');
  }
}

/** The state of a run in a word or two. */
export function runLabel(trans: TranslationBundle, state: RunState): string {
  switch (state) {
    case 'submitted':
      return trans.__('Submitted');
    case 'queued':
      return trans.__('Waiting');
    case 'starting':
      return trans.__('Starting');
    case 'running':
      return trans.__('Running');
    case 'releasing':
      return trans.__('Releasing');
    case 'persisting':
      return trans.__('Saving results');
    case 'preempted':
      return trans.__('Preempted');
    case 'succeeded':
      return trans.__('Done');
    case 'failed':
      return trans.__('Failed');
    case 'cancelled':
      return trans.__('Cancelled');
    case 'lost':
      return trans.__('Lost');
  }
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
  }
}
