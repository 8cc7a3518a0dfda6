import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { Clipboard } from '@jupyterlab/apputils';
import { actionLabel } from '../labels';
import { Action } from '../model/permissions';
import { IRowMenu, rowMenu } from '../model/row-menu';
import { CommandIDs, IGpus } from '../tokens';

const ROW = '.jp-GpuRelease-item[data-gpu-row]';
/** in the order of the menu; `null` is a line between */
const ACTIONS: readonly (Action | null)[] = [
  'show',
  'open',
  'attach',
  'extend',
  'pin',
  'unpin',
  null,
  'cancel',
  'release',
  'release-kernel',
  'keep-kernel'
];

export const rowMenuPlugin: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpu-release:row-menus',
  description: 'Menus of the rows: runs, GPUs, places in the queue.',
  autoStart: true,
  requires: [IGpus],
  activate: (app: JupyterFrontEnd, gpus: IGpus) => {
    const { trans, model, runner } = gpus;
    const { commands, contextMenu } = app;
    const hit = (): IRowMenu | null => {
      const node = app.contextMenuHitTest(
        element => element.dataset.gpuRow !== undefined
      );
      return node ? rowMenu(node.dataset.gpuRow ?? '', model.snapshot) : null;
    };
    commands.addCommand(CommandIDs.rowAction, {
      label: args => actionLabel(trans, args.action as Action),
      isVisible: args => {
        const action = args.action as Action;
        const may = action !== 'open' || runner.canOpen;
        return may && (hit()?.actions.includes(action) ?? false);
      },
      execute: async args => {
        const menu = hit();
        const action = args.action as Action;
        if (menu?.actions.includes(action)) {
          await runner.run(action, menu.target);
        }
      }
    });
    const copies: [string, string, (run: string) => string][] = [
      [CommandIDs.copyRunId, trans.__('Copy id'), run => run],
      [
        CommandIDs.copyAttachLine,
        trans.__('Copy %1 line', '%gpu_attach'),
        run => `%gpu_attach ${run}`
      ]
    ];
    for (const [command, label, text] of copies) {
      commands.addCommand(command, {
        label,
        isVisible: () => {
          const menu = hit();
          const may = menu?.isMine || command === CommandIDs.copyRunId;
          return may === true && (menu?.run ?? '') !== '';
        },
        execute: () => Clipboard.copyToSystem(text(hit()?.run ?? ''))
      });
    }
    ACTIONS.forEach((action, rank) =>
      contextMenu.addItem({
        selector: ROW,
        rank,
        ...(action
          ? { command: CommandIDs.rowAction, args: { action } }
          : { type: 'separator' as const })
      })
    );
    contextMenu.addItem({ type: 'separator', selector: ROW, rank: 20 });
    copies.forEach(([command], index) =>
      contextMenu.addItem({ command, selector: ROW, rank: 21 + index })
    );
  }
};
