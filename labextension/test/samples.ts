import { IApi } from '../src/model/api';
import {
  IRunRow,
  IGpuRow,
  ICellRun,
  INotebookAdvice,
  IKernelRow,
  IKernelsDocument,
  INotifyChange,
  INotifyDocument,
  IReport,
  IRunPage,
  IRunsDocument,
  IServerStatus
} from '../src/model/types';

export const GIB = 2 ** 30;

export function gpu(index: number, more: Partial<IGpuRow> = {}): IGpuRow {
  return {
    index: String(index),
    uuid: `GPU-${index}`,
    name: 'H100',
    memory_bytes: 80 * GIB,
    used_bytes: 0,
    utilization: 0,
    state: 'free',
    ...more
  };
}

export function run(id: string, more: Partial<IRunRow> = {}): IRunRow {
  return {
    run: id,
    user: 'ada',
    state: 'running',
    gpus: 1,
    name: '',
    notebook: '/home/ada/digits.ipynb',
    cell: 'c1',
    queue: 'default',
    priority: 'normal',
    submitted_at: 1000,
    granted_at: 1002,
    running_at: 1003,
    gone_at: null,
    finished_at: null,
    queued_s: 2,
    held_s: 60,
    release_ms: null,
    position: null,
    reason: '',
    results: [],
    files: [],
    error: null,
    ...more
  };
}

/** All of one run. */
export function page(row: IRunRow, more: Partial<IRunPage> = {}): IRunPage {
  return {
    now: 1100,
    run: row,
    mine: true,
    code: 'fit()',
    options: { gpus: '1' },
    started_at: null,
    ended_at: null,
    gpu_use: null,
    inputs: [],
    tracked: [],
    runs: [],
    links: [],
    reused: 0,
    files: [],
    environment: {},
    is_cluster_known: true,
    trials: [],
    ...more
  };
}

export function kernel(more: Partial<IKernelRow> = {}): IKernelRow {
  return {
    id: 'k1',
    name: 'python3',
    path: 'explore.ipynb',
    used_bytes: 4 * GIB,
    gpus: [{ index: 0, uuid: 'GPU-0', used_bytes: 4 * GIB }],
    busy: false,
    why: '',
    idle_s: 600,
    ...more
  };
}

/** A cluster with one node that has these GPUs. */
export function status(
  gpus: IGpuRow[],
  more: Partial<IServerStatus> = {},
  runs: IRunRow[] = []
): IServerStatus {
  const free = gpus.filter(({ state }) => state === 'free').length;
  return {
    schema_version: 1,
    version: '0.1.0',
    gateway: { state: 'connected', url: 'https://gpu.example.org:8265' },
    cluster: {
      schema_version: 1,
      simulated: false,
      gateway: { url: 'https://gpu.example.org:8265', version: '', up: true },
      gpus: {
        total: gpus.length,
        held: gpus.length - free,
        free,
        external: 0
      },
      nodes: [{ id: 'n1', host: 'gpu-01', gpus }],
      queue: [],
      runs,
      user: 'ada',
      role: 'user'
    },
    gpus: [],
    problems: [],
    ...more
  };
}

/** A server that answers what it is told to; keeps what was asked. */
export class FakeApi implements IApi {
  answer: IServerStatus | Error = status([]);
  rows: IRunRow[] = [];
  kernelRows: IKernelRow[] = [];
  refusal: Error | null = null;
  pageAnswer: IRunPage | Error | null = null;
  report: IReport | Error = { ok: true, findings: [] };
  notifyAnswer: INotifyDocument = {
    user: 'ada',
    email: '',
    webhook: '',
    starts: true,
    pauses: true,
    ends: true,
    mail_from: 'gpu@example.org',
    webhook_hosts: ['hooks.slack.com'],
    deliveries: []
  };
  calls: string[] = [];

  async status(): Promise<IServerStatus> {
    this.calls.push('status');
    if (this.answer instanceof Error) {
      throw this.answer;
    }
    return this.answer;
  }

  async runs(): Promise<IRunsDocument> {
    this.calls.push('runs');
    return { schema_version: 1, runs: this.rows };
  }

  async cellRuns(): Promise<ICellRun[]> {
    this.calls.push('cells');
    return [];
  }

  async doctor(): Promise<IReport> {
    this.calls.push('doctor');
    if (this.report instanceof Error) {
      throw this.report;
    }
    return this.report;
  }

  async advise(): Promise<INotebookAdvice> {
    this.calls.push('advise');
    return { conclusion: '', cells: [] };
  }

  async kernels(): Promise<IKernelsDocument> {
    this.calls.push('kernels');
    return { schema_version: 1, gpus: [], kernels: this.kernelRows };
  }

  startCluster(): Promise<void> {
    return this._post('start');
  }

  cancelRun(id: string): Promise<void> {
    return this._post(`cancel ${id}`);
  }

  releaseLease(id: string): Promise<void> {
    return this._post(`release ${id}`);
  }

  async extendLease(id: string, keepS: number): Promise<number> {
    await this._post(`extend ${id} ${keepS}`);
    return Date.UTC(2026, 10, 21, 12) / 1000;
  }

  async releaseKernel(id: string): Promise<{ freedBytes: number | null }> {
    await this._post(`release-kernel ${id}`);
    return { freedBytes: 3 * GIB };
  }

  keepKernel(id: string, keepS: number): Promise<void> {
    return this._post(`keep-kernel ${id} ${keepS}`);
  }

  async runPage(id: string): Promise<IRunPage> {
    this.calls.push(`page ${id}`);
    if (this.pageAnswer instanceof Error) {
      throw this.pageAnswer;
    }
    return this.pageAnswer ?? page(run(id));
  }

  pinRun(id: string, pinned: boolean): Promise<void> {
    return this._post(`${pinned ? 'pin' : 'unpin'} ${id}`);
  }

  async notify(): Promise<INotifyDocument> {
    return this.notifyAnswer;
  }

  async changeNotify(change: INotifyChange): Promise<INotifyDocument> {
    await this._post(`notify ${JSON.stringify(change)}`);
    return this.notifyAnswer;
  }

  async testNotify(): Promise<INotifyDocument> {
    await this._post('notify test');
    return this.notifyAnswer;
  }

  fileUrl(id: string, path: string): string {
    return `/files/${id}/${path}`;
  }

  private async _post(call: string): Promise<void> {
    this.calls.push(call);
    if (this.refusal) {
      throw this.refusal;
    }
  }
}
