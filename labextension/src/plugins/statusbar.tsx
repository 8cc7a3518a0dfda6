import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { IStatusBar } from '@jupyterlab/statusbar';
import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';
import { gpuIcon } from '../icons';
import { CommandIDs, IGpus } from '../tokens';

/** "GPU 2 held · 5 free"; opens the sidebar. */
class StatusItem extends ReactWidget {
  constructor(
    private _gpus: IGpus,
    private _open: () => void
  ) {
    super();
    this.addClass('jp-GpuRelease-status');
    _gpus.model.stateChanged.connect(this._renew, this);
  }

  override dispose(): void {
    this._gpus.model.stateChanged.disconnect(this._renew, this);
    super.dispose();
  }

  protected render(): JSX.Element {
    const { trans } = this._gpus;
    const text = statusText(this._gpus);
    return (
      <button
        type="button"
        className="jp-GpuRelease-statusItem"
        title={trans.__('GPUs held by you, and free on the cluster')}
        onClick={this._open}
      >
        <gpuIcon.react tag={null} width="16px" height="16px" />
        <span>{text}</span>
      </button>
    );
  }

  /** The text changes far less often than the model. */
  private _renew(): void {
    const text = statusText(this._gpus);
    if (text !== this._shown) {
      this._shown = text;
      this.update();
    }
  }

  private _shown = '';
}

/** What the status bar says. */
export function statusText({ model, trans }: IGpus): string {
  const { situation, counts, queue, me } = model.snapshot;
  switch (situation) {
    case 'ready': {
      const own = queue.find(row => row.user === me);
      const parts = [trans.__('%1 held', counts.mine)];
      if (own?.position) {
        parts.push(trans.__('queued, place %1', own.position));
      }
      parts.push(trans.__('%1 free', counts.free));
      return parts.join(' · ');
    }
    case 'no-cluster':
      return trans.__('no cluster');
    case 'no-gpu':
      return trans.__('no GPUs');
    case 'gateway-down':
      return trans.__('no answer');
    case 'loading':
      return '…';
    default:
      return trans.__('not available');
  }
}

export const statusBarPlugin: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpu-release:status-bar',
  description: 'How many GPUs you hold and how many are free.',
  autoStart: true,
  requires: [IGpus],
  optional: [IStatusBar],
  activate: (
    app: JupyterFrontEnd,
    gpus: IGpus,
    statusBar: IStatusBar | null
  ) => {
    if (!statusBar) {
      return; // Notebook 7 has none
    }
    const open = () => void app.commands.execute(CommandIDs.open);
    statusBar.registerStatusItem('jupyter-gpu-release:status', {
      item: new StatusItem(gpus, open),
      align: 'left',
      rank: 3,
      isActive: () => gpus.preferences().showStatusBarItem,
      activeStateChanged: gpus.preferencesChanged
    });
  }
};
