import { JupyterFrontEndPlugin } from '@jupyterlab/application';
import { browserNotificationPlugin } from './plugins/browser-notifications';
import { cellPlugin } from './plugins/cells';
import { doctorPlugin } from './plugins/doctor';
import { outputsPlugin } from './plugins/outputs';
import { notificationPlugin } from './plugins/notifications';
import { notifyPlugin } from './plugins/notify';
import { panelPlugin } from './plugins/panel';
import { rowMenuPlugin } from './plugins/row-menus';
import { runPagePlugin } from './plugins/run-page';
import { runningPlugin } from './plugins/running';
import { statusBarPlugin } from './plugins/statusbar';

export { IGpus, IOutputRestorer } from './tokens';

const plugins: JupyterFrontEndPlugin<unknown>[] = [
  panelPlugin,
  statusBarPlugin,
  runningPlugin,
  runPagePlugin,
  rowMenuPlugin,
  notificationPlugin,
  browserNotificationPlugin,
  notifyPlugin,
  doctorPlugin,
  cellPlugin,
  outputsPlugin
];

export default plugins;
