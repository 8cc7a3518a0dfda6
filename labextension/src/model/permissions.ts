import { IRunRow, IKernelRow, isTerminal, waits } from './types';
import { IGpu } from './gpus';
import { ISnapshot } from './snapshot';

export type Action =
  | 'release'
  | 'extend'
  | 'cancel'
  | 'attach'
  | 'open'
  | 'release-kernel'
  | 'keep-kernel'
  | 'show'
  | 'pin'
  | 'unpin';

type Who = Pick<ISnapshot, 'isAdmin' | 'mayAct' | 'me' | 'situation'>;

/** Whether what belongs to `user` may be acted on. */
function mayTouch(who: Who, user: string): boolean {
  return (
    who.mayAct &&
    who.situation === 'ready' &&
    (who.isAdmin || (user !== '' && user === who.me))
  );
}

/** Whether who looks may see the page of a run of `user`; where no cluster answers, the store's runs are shown. */
export function maySee(who: Pick<ISnapshot, 'isAdmin' | 'me'>, user: string) {
  return who.isAdmin || user === who.me || who.me === '';
}

/** What is offered besides `runActions` where there is room: its results are kept for good, or no longer. */
export function pinActions(run: IRunRow, who: Who): Action[] {
  const isGone = typeof run.collected_at === 'number';
  return isGone || !mayTouch(who, run.user)
    ? []
    : [run.pinned ? 'unpin' : 'pin'];
}

/** What the panel offers on a GPU; nothing that would be refused. */
export function gpuActions(gpu: IGpu, who: Who): Action[] {
  if (gpu.kernel) {
    const open: Action[] = gpu.notebook ? ['open'] : [];
    return who.mayAct && gpu.state === 'idle-kernel'
      ? ['release-kernel', ...open]
      : open;
  }
  const open: Action[] = gpu.notebook && gpu.mine ? ['open'] : [];
  if (!mayTouch(who, gpu.user)) {
    return open;
  }
  switch (gpu.state) {
    case 'warm':
      return ['release', 'extend', ...open];
    case 'running':
      return ['cancel', ...open];
    default:
      return open;
  }
}

/** What the panel offers on one of my runs. */
export function runActions(run: IRunRow, who: Who): Action[] {
  const open: Action[] = run.notebook ? ['open'] : [];
  if (!mayTouch(who, run.user)) {
    return open;
  }
  if (!isTerminal(run.state)) {
    const end: Action[] = run.state === 'persisting' ? [] : ['cancel'];
    return waits(run.state) || !run.notebook
      ? [...end, ...open]
      : [...end, 'attach', ...open];
  }
  return run.detached && run.notebook ? ['attach', ...open] : open;
}

/** What the panel offers on a waiting run. */
export function queueActions(row: { user: string }, who: Who): Action[] {
  return mayTouch(who, row.user) ? ['cancel'] : [];
}

/** What the panel offers on a kernel that holds GPU memory. */
export function kernelActions(kernel: IKernelRow, who: Who): Action[] {
  const open: Action[] = kernel.path ? ['open'] : [];
  if (!who.mayAct) {
    return open;
  }
  const isDue =
    typeof kernel.due_s === 'number' && typeof kernel.kept_s !== 'number';
  const keep: Action[] = isDue ? ['keep-kernel'] : [];
  return kernel.busy ? open : ['release-kernel', ...keep, ...open];
}

/** Whether ending this run throws work away, so that the user is asked first. */
export function losesWork(run: Pick<IRunRow, 'state'> | undefined): boolean {
  return run !== undefined && !waits(run.state);
}
