import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { IUsage } from '../model/types';
import { formatGpuHours } from '../format';

interface IUsageProps {
  usage: { today: IUsage; week: IUsage };
  trans: TranslationBundle;
}

/** My GPU-hours: held, used, and saved by giving back between cells. */
export function Usage({ usage, trans }: IUsageProps): React.ReactElement {
  const rows: [string, string, (usage: IUsage) => number][] = [
    [
      trans.__('Held'),
      trans.__('GPU-hours in which you held GPUs'),
      ({ held_s }) => held_s
    ],
    [
      trans.__('Used'),
      trans.__('of these, while a cell was running'),
      ({ used_s }) => used_s
    ],
    [
      trans.__('Saved'),
      trans.__('GPU-hours that kernels with GPUs of their own would have kept'),
      ({ saved_s }) => saved_s
    ],
    [
      trans.__('Used by others'),
      trans.__('of the saved GPU-hours, those that others used'),
      ({ others_s }) => others_s ?? 0
    ]
  ];
  return (
    <table className="jp-GpuRelease-usage">
      <thead>
        <tr>
          <td />
          <th scope="col">{trans.__('Today')}</th>
          <th scope="col">{trans.__('7 days')}</th>
        </tr>
      </thead>
      <tbody>
        {rows.map(([name, hint, secondsOf]) => (
          <tr key={name}>
            <th scope="row" title={hint}>
              {name}
            </th>
            <td>{formatGpuHours(secondsOf(usage.today))}</td>
            <td>{formatGpuHours(secondsOf(usage.week))}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
