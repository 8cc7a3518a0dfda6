import { Dialog, showDialog } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import type { IApi } from './api';
import { IKernelRow } from './types';
import { baseName, formatBytes, formatClock } from '../format';
import type { GpuModel } from './model';
import { Action, losesWork } from './permissions';
import { IGpu } from './gpus';

export const KEEP_S = 1800;

/** Where a refused start is shown. */
export const START_KEY = 'cluster-start';

/** What an action is about. `key`: where its progress and result are shown. */
export interface ITarget {
  key: string;
  run?: string;
  lease?: string;
  kernel?: string;
  notebook?: string;
  cell?: string;
}

/** Ways into notebooks; none where there are no notebooks. */
export interface INavigator {
  open(notebook: string, cell: string): Promise<void>;
  /** `kernel`: the one that the run goes on for, if it is bound to one. */
  attach(target: ITarget): Promise<void>;
}

export function gpuTarget(gpu: IGpu): ITarget {
  const { key, run, lease, kernel, notebook, cell } = gpu;
  return { key, run, lease, kernel, notebook, cell };
}

export function runTarget(run: {
  run: string;
  notebook?: string;
  cell?: string;
}): ITarget {
  const { run: id, notebook, cell } = run;
  return { key: `run:${id}`, run: id, notebook, cell };
}

export function kernelTarget(kernel: IKernelRow): ITarget {
  const key = `kernel:${kernel.id}`;
  return { key, kernel: kernel.id, notebook: kernel.path, cell: '' };
}

/** Carries out what the user asks for. Asks back only where work is lost. */
export class ActionRunner {
  constructor(
    private _model: GpuModel,
    private _api: IApi,
    private _trans: TranslationBundle,
    private _navigator: INavigator | null,
    /** shows the page of a run */
    private _openRun: (run: string) => void = () => undefined
  ) {}

  get canOpen(): boolean {
    return this._navigator !== null;
  }

  async run(action: Action, target: ITarget): Promise<void> {
    const trans = this._trans;
    switch (action) {
      case 'release':
        await this._model.act(target.key, trans.__('Releasing…'), async () => {
          await this._api.releaseLease(target.lease ?? '');
          return trans.__('Released');
        });
        return;
      case 'extend':
        await this._model.act(target.key, trans.__('Extending…'), async () => {
          const until = await this._api.extendLease(target.lease ?? '', KEEP_S);
          return trans.__('Kept until %1', formatClock(until));
        });
        return;
      case 'cancel':
        return this._cancel(target);
      case 'release-kernel':
        return this._releaseKernel(target);
      case 'keep-kernel':
        await this._model.act(target.key, trans.__('Keeping…'), async () => {
          await this._api.keepKernel(target.kernel ?? '', KEEP_S);
          return trans.__('Kept for 30 minutes');
        });
        return;
      case 'show':
        this._openRun(target.run ?? '');
        return;
      case 'pin':
      case 'unpin':
        await this._model.act(target.key, trans.__('Working…'), async () => {
          await this._api.pinRun(target.run ?? '', action === 'pin');
          return action === 'pin'
            ? trans.__('Pinned: its results are never removed')
            : trans.__('No longer pinned');
        });
        return;
      case 'open':
        await this._navigator?.open(target.notebook ?? '', target.cell ?? '');
        return;
      case 'attach':
        await this._navigator?.attach({
          ...target,
          kernel: this._kernelOf(target.run)
        });
    }
  }

  /** Start this machine's own cluster. */
  async startCluster(): Promise<void> {
    const trans = this._trans;
    await this._model.act(START_KEY, trans.__('Starting…'), async () => {
      await this._api.startCluster();
      return '';
    });
  }

  /** The kernel that waits for a run, and that it ends with; none for one that is over or detached. */
  private _kernelOf(run: string | undefined): string | undefined {
    const { active } = this._model.snapshot;
    const row = active.find(known => known.run === run);
    return row?.detached || row?.unattended ? undefined : row?.kernel;
  }

  private async _cancel(target: ITarget): Promise<void> {
    const trans = this._trans;
    const run = target.run ?? '';
    const { active, runs, me } = this._model.snapshot;
    const row =
      active.find(known => known.run === run) ??
      active.find(known => known.sweep === run && losesWork(known)) ??
      runs.find(known => known.run === run);
    if (losesWork(row) && !(await this._isSure(row?.notebook, row?.user, me))) {
      return;
    }
    await this._model.act(target.key, trans.__('Cancelling…'), async () => {
      await this._api.cancelRun(run);
      return trans.__('Asked to end: the GPU is free in a moment');
    });
  }

  private async _isSure(
    notebook: string | undefined,
    user: string | undefined,
    me: string
  ): Promise<boolean> {
    const trans = this._trans;
    const where = notebook ? ` (${baseName(notebook)})` : '';
    const whose =
      user && user !== me
        ? trans.__('This is a run of %1%2.', user, where)
        : trans.__('The cell%1 is interrupted.', where);
    const answer = await showDialog({
      title: trans.__('Cancel this run?'),
      body: trans.__(
        '%1 What it has bound so far comes back; what it was about to compute is lost.',
        whose
      ),
      buttons: [
        Dialog.cancelButton({ label: trans.__('Let it run') }),
        Dialog.warnButton({ label: trans.__('Cancel the run') })
      ]
    });
    return answer.button.accept;
  }

  private async _releaseKernel(target: ITarget): Promise<void> {
    const trans = this._trans;
    await this._model.act(target.key, trans.__('Releasing…'), async () => {
      const { freedBytes } = await this._api.releaseKernel(target.kernel ?? '');
      return freedBytes === null
        ? trans.__('Released')
        : freedBytes > 0
          ? trans.__('%1 given back', formatBytes(freedBytes))
          : trans.__('Nothing could be freed: its variables use the memory');
    });
  }
}
