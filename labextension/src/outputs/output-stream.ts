import { URLExt } from '@jupyterlab/coreutils';
import type { ServerConnection } from '@jupyterlab/services';
import type { Output } from './marks';

export type Change =
  | { op: 'add'; output: Output }
  | { op: 'set'; index: number; output: Output }
  | { op: 'clear' };

/** What the server says of a run's output; see `OutputMessage` there. */
export interface IOutputMessage {
  changes?: Change[];
  live?: boolean;
  mine?: boolean;
  problem?: string;
  gone?: string;
}

export interface IOutputListener {
  /** A new telling begins: what was told before is told again. */
  onBegin(): void;
  onMessage(message: IOutputMessage): void;
  /** No more will come. */
  onEnd(): void;
}

const FIRST_PAUSE_MS = 1000;
const LONGEST_PAUSE_MS = 30_000;
/** that often a server which has not said anything yet is asked */
const MOST_TRIES = 5;

/** A run's output as the server tells it, also across lost connections. */
export class OutputStream {
  constructor(
    private _settings: ServerConnection.ISettings,
    private _run: string,
    private _listener: IOutputListener
  ) {
    this._open();
  }

  dispose(): void {
    if (!this._isOver) {
      this._isOver = true;
      window.clearTimeout(this._timer);
      this._socket?.close();
    }
  }

  private _open(): void {
    const { wsUrl, token, appendToken, WebSocket } = this._settings;
    const path = `jupyter-gpu-release/api/runs/${encodeURIComponent(this._run)}/output`;
    const query =
      appendToken && token ? `?token=${encodeURIComponent(token)}` : '';
    const socket = new WebSocket(URLExt.join(wsUrl, path) + query);
    let isFirst = true;
    let isLive = true;
    socket.onmessage = (event: MessageEvent<string>) => {
      if (this._isOver) {
        return;
      }
      if (isFirst) {
        isFirst = false;
        this._wasTold = true;
        this._pauseMs = FIRST_PAUSE_MS;
        this._listener.onBegin();
      }
      const message = JSON.parse(event.data) as IOutputMessage;
      isLive = message.live === true;
      this._listener.onMessage(message);
    };
    socket.onclose = () => {
      if (this._isOver) {
        return;
      }
      this._tries += 1;
      if (!isLive || (!this._wasTold && this._tries >= MOST_TRIES)) {
        this._isOver = true;
        this._listener.onEnd();
        return;
      }
      this._timer = window.setTimeout(() => this._open(), this._pauseMs);
      this._pauseMs = Math.min(2 * this._pauseMs, LONGEST_PAUSE_MS);
    };
    this._socket = socket;
  }

  private _socket: WebSocket | null = null;
  private _pauseMs = FIRST_PAUSE_MS;
  private _timer = 0;
  private _tries = 0;
  private _wasTold = false;
  private _isOver = false;
}
