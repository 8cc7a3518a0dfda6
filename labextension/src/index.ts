import { JupyterFrontEndPlugin } from '@jupyterlab/application';
import { cellPlugin } from './plugins/cells';
import { healPlugin } from './plugins/heal';
import { notificationPlugin } from './plugins/notifications';
import { panelPlugin } from './plugins/panel';
import { runningPlugin } from './plugins/running';
import { statusBarPlugin } from './plugins/statusbar';

export { IGpus, IHealer } from './tokens';

const plugins: JupyterFrontEndPlugin<unknown>[] = [
  panelPlugin,
  statusBarPlugin,
  runningPlugin,
  notificationPlugin,
  cellPlugin,
  healPlugin
];

export default plugins;
