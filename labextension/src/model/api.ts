import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import { withoutBackticks } from '../format';
import type {
  ICellRun,
  INotebookAdvice,
  IKernelsDocument,
  INotifyChange,
  INotifyDocument,
  IReport,
  IRunPage,
  IRunsDocument,
  IServerStatus
} from './types';

const BASE = 'jupyter-gpu-release/api';

/** A refusal of the server, or no answer at all (`status` 0). */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly mend = ''
  ) {
    super(message);
  }
}

/** What went wrong, and what mends it. */
export function sentenceOf(error: unknown): string {
  if (error instanceof ApiError && error.mend) {
    return `${error.message}: ${error.mend}`;
  }
  return error instanceof Error ? error.message : String(error);
}

/** What the panel asks of the server; tests have their own. */
export interface IApi {
  status(): Promise<IServerStatus>;
  runs(limit: number): Promise<IRunsDocument>;
  kernels(): Promise<IKernelsDocument>;
  /** The newest run of each cell of a notebook. */
  cellRuns(notebook: string): Promise<ICellRun[]>;
  /** Begins; the status says how far it is. */
  startCluster(): Promise<void>;
  cancelRun(run: string): Promise<void>;
  releaseLease(lease: string): Promise<void>;
  /** Answers until when it is kept (Unix seconds): the gateway has a maximum. */
  extendLease(lease: string, keepS: number): Promise<number>;
  releaseKernel(kernel: string): Promise<{ freedBytes: number | null }>;
  keepKernel(kernel: string, keepS: number): Promise<void>;
  runPage(run: string): Promise<IRunPage>;
  /** Keep a run's results for good, or no longer. */
  pinRun(run: string, pinned: boolean): Promise<void>;
  /** Checks of server, gateway and nodes; takes 45 s at most. */
  doctor(): Promise<IReport>;
  /** How one is told of detached runs. */
  notify(): Promise<INotifyDocument>;
  changeNotify(change: INotifyChange): Promise<INotifyDocument>;
  /** A message by each way now; answered when it was taken or refused. */
  testNotify(): Promise<INotifyDocument>;
  /** Which cells of a notebook are worth a GPU cell: read from its content, nothing is run. */
  advise(notebook: object, path: string): Promise<INotebookAdvice>;
  /** Where a file of a run's folder is fetched from. */
  fileUrl(run: string, path: string): string;
}

interface IErrorBody {
  message?: string;
  error?: { message?: string; mend?: string };
}

/** The routes of the server extension, with Jupyter's own credentials and XSRF token. */
export class Api implements IApi {
  constructor(private _settings: ServerConnection.ISettings) {}

  status(): Promise<IServerStatus> {
    return this._ask<IServerStatus>('status');
  }

  runs(limit: number): Promise<IRunsDocument> {
    return this._ask<IRunsDocument>(`runs?limit=${limit}&mine=1`);
  }

  kernels(): Promise<IKernelsDocument> {
    return this._ask<IKernelsDocument>('kernels');
  }

  async cellRuns(notebook: string): Promise<ICellRun[]> {
    const path = `cells?notebook=${encodeURIComponent(notebook)}`;
    return (await this._ask<{ cells: ICellRun[] }>(path)).cells;
  }

  async startCluster(): Promise<void> {
    await this._ask('cluster/start', {});
  }

  async cancelRun(run: string): Promise<void> {
    await this._ask(`runs/${encodeURIComponent(run)}/cancel`, {});
  }

  async releaseLease(lease: string): Promise<void> {
    await this._ask(`leases/${encodeURIComponent(lease)}/release`, {});
  }

  async extendLease(lease: string, keepS: number): Promise<number> {
    const answer = await this._ask<{ until: number }>(
      `leases/${encodeURIComponent(lease)}/extend`,
      { keep_s: keepS }
    );
    return answer.until;
  }

  async releaseKernel(kernel: string): Promise<{ freedBytes: number | null }> {
    const answer = await this._ask<{ freed_bytes?: number }>(
      `kernels/${encodeURIComponent(kernel)}/release`,
      {}
    );
    return { freedBytes: answer.freed_bytes ?? null };
  }

  async keepKernel(kernel: string, keepS: number): Promise<void> {
    await this._ask(`kernels/${encodeURIComponent(kernel)}/keep`, {
      keep_s: keepS
    });
  }

  runPage(run: string): Promise<IRunPage> {
    return this._ask<IRunPage>(`runs/${encodeURIComponent(run)}`);
  }

  async pinRun(run: string, pinned: boolean): Promise<void> {
    const word = pinned ? 'pin' : 'unpin';
    await this._ask(`runs/${encodeURIComponent(run)}/${word}`, {});
  }

  doctor(): Promise<IReport> {
    return this._ask<IReport>('doctor');
  }

  notify(): Promise<INotifyDocument> {
    return this._ask<INotifyDocument>('notify');
  }

  changeNotify(change: INotifyChange): Promise<INotifyDocument> {
    return this._ask<INotifyDocument>('notify', change);
  }

  testNotify(): Promise<INotifyDocument> {
    return this._ask<INotifyDocument>('notify/test', {});
  }

  advise(notebook: object, path: string): Promise<INotebookAdvice> {
    return this._ask<INotebookAdvice>('advice', { notebook, path });
  }

  fileUrl(run: string, path: string): string {
    const parts = path.split('/').map(encodeURIComponent).join('/');
    const file = `runs/${encodeURIComponent(run)}/files/${parts}`;
    return URLExt.join(this._settings.baseUrl, BASE) + '/' + file;
  }

  private async _ask<T>(path: string, body?: object): Promise<T> {
    const url = URLExt.join(this._settings.baseUrl, BASE) + '/' + path;
    const init: RequestInit =
      body === undefined
        ? { cache: 'no-store' }
        : { method: 'POST', body: JSON.stringify(body) };
    let response: Response;
    try {
      response = await ServerConnection.makeRequest(url, init, this._settings);
    } catch (error) {
      throw new ApiError(0, error instanceof Error ? error.message : '');
    }
    const text = await response.text();
    if (!response.ok) {
      throw refusal(response.status, text);
    }
    return JSON.parse(text) as T;
  }
}

/** The sentence in an error answer, whoever wrote it. */
export function refusal(status: number, text: string): ApiError {
  let body: IErrorBody = {};
  try {
    body = JSON.parse(text) as IErrorBody;
  } catch {
    // a proxy's HTML page
  }
  const message = body.error?.message ?? body.message ?? `HTTP ${status}`;
  const mend = withoutBackticks(body.error?.mend ?? '');
  return new ApiError(status, withoutBackticks(message), mend);
}
