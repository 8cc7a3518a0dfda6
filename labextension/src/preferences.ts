import type { ISettingRegistry } from '@jupyterlab/settingregistry';
import { Grouping, IArrangement, Sorting } from './model/sorting';

/** The settings, as `schema/plugin.json` describes them. */
export interface IPreferences extends IArrangement {
  refreshIntervalS: number;
  notifyAfterS: number;
  showStatusBarItem: boolean;
  showCellHints: boolean;
  browserNotifications: boolean;
}

export const DEFAULTS: IPreferences = {
  grouping: 'node',
  sorting: 'index',
  onlyMine: false,
  refreshIntervalS: 5,
  notifyAfterS: 60,
  showStatusBarItem: true,
  showCellHints: true,
  browserNotifications: false
};

export const GROUPINGS: readonly Grouping[] = ['node', 'user', 'state', 'none'];
export const SORTINGS: readonly Sorting[] = [
  'index',
  'memory',
  'utilization',
  'age'
];

/** What the user has set (the schema has checked it). */
export function readPreferences(
  settings: ISettingRegistry.ISettings
): IPreferences {
  const set = settings.composite as Partial<IPreferences>;
  return { ...DEFAULTS, ...set };
}
