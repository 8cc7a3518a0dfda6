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
  const rows: [string, IUsage][] = [
    [trans.__('Today'), usage.today],
    [trans.__('7 days'), usage.week]
  ];
  return (
    <table className="jp-GpuRelease-usage">
      <thead>
        <tr>
          <td />
          <th scope="col" title={trans.__('GPU-hours in which you held GPUs')}>
            {trans.__('Held')}
          </th>
          <th
            scope="col"
            title={trans.__('of these, while a cell was running')}
          >
            {trans.__('Used')}
          </th>
          <th
            scope="col"
            title={trans.__(
              'GPU-hours that kernels with GPUs of their own would have kept'
            )}
          >
            {trans.__('Saved')}
          </th>
          <th
            scope="col"
            title={trans.__('of the saved GPU-hours, those that others used')}
          >
            {trans.__('Others used')}
          </th>
        </tr>
      </thead>
      <tbody>
        {rows.map(([name, { held_s, used_s, saved_s, others_s }]) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            <td>{formatGpuHours(held_s)}</td>
            <td>{formatGpuHours(used_s)}</td>
            <td className="jp-mod-saved">{formatGpuHours(saved_s)}</td>
            <td>{formatGpuHours(others_s ?? 0)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
