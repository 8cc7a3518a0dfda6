import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { IUsage, IUsageDay, IUsageFacts } from '../model/types';
import { formatBytes, formatGpuHours, formatPercent } from '../format';
import { person } from '../labels';
import * as heights from './list/row-heights';

const USERS_SHOWN = 8;
const CHART_PX = 64;
/** What takes less of the store is not worth a row. */
const STORED_BYTES = 100 * 2 ** 20;

interface IUsageProps {
  usage: IUsageFacts;
  me: string;
  trans: TranslationBundle;
}

function storedShown({ stored_bytes }: IUsageFacts): number {
  return stored_bytes && stored_bytes >= STORED_BYTES ? stored_bytes : 0;
}

/** How high all of it is. */
export function usageHeight(usage: IUsageFacts): number {
  const users = Object.keys(usage.users ?? {}).length;
  const rows = users ? 1 + Math.min(users, USERS_SHOWN + 1) : 0;
  const chart = usage.days?.length ? heights.CHART : 0;
  const stored = storedShown(usage) ? heights.FACT : 0;
  return heights.USAGE + stored + chart + rows * heights.FACT;
}

/** GPU-hours: mine, the last days of all, and for administrators those of each user. */
export function Usage(props: IUsageProps): React.ReactElement {
  const { usage, me, trans } = props;
  return (
    <div
      className="jp-GpuRelease-scroller"
      role="group"
      aria-label={trans.__('GPU-hours')}
      tabIndex={0} // there may be less room than it needs
    >
      <Own usage={usage} trans={trans} />
      {usage.days && usage.days.length > 0 && (
        <History days={usage.days} trans={trans} />
      )}
      {usage.users && Object.keys(usage.users).length > 0 && (
        <Users users={usage.users} me={me} trans={trans} />
      )}
    </div>
  );
}

interface IHistoryProps {
  days: IUsageDay[];
  trans: TranslationBundle;
}

/** A bar a day: what all held, what of it was used, and the part of mine. */
function History({ days, trans }: IHistoryProps): React.ReactElement {
  const most = Math.max(1, ...days.map(day => day.all?.held_s ?? 0));
  const px = (seconds: number | undefined) => ({
    height: `${(CHART_PX * (seconds ?? 0)) / most}px`
  });
  const sum = (part: (day: IUsageDay) => number | undefined) =>
    days.reduce((total, day) => total + (part(day) ?? 0), 0);
  const held = sum(day => day.all?.held_s);
  const capacity = sum(day => day.capacity_s);
  const share =
    capacity && held <= capacity
      ? trans.__('%1 of what the cluster had', formatPercent(held / capacity))
      : '';
  const all = trans.__('all users: %1 held', formatGpuHours(held));
  return (
    <figure className="jp-GpuRelease-history">
      <ol aria-label={trans.__('GPU-hours of the last 7 days')}>
        {days.map(day => (
          <li key={day.since} title={daySaid(day, trans)}>
            <span className="jp-GpuRelease-day" aria-hidden={true}>
              <span className="jp-mod-held" style={px(day.all?.held_s)} />
              <span className="jp-mod-used" style={px(day.all?.used_s)} />
              <span className="jp-mod-own" style={px(day.own?.held_s)} />
            </span>
            <span aria-hidden={true}>{weekday(day)}</span>
            <span className="jp-GpuRelease-spoken">{daySaid(day, trans)}</span>
          </li>
        ))}
      </ol>
      <figcaption>{[all, share].filter(Boolean).join(' · ')}</figcaption>
    </figure>
  );
}

/** That of its middle, as the gateway's midnight may be the evening before here; of today never tomorrow's. */
function weekday(day: IUsageDay): string {
  const noon = Math.min((day.since + 43_200) * 1000, Date.now());
  return new Date(noon).toLocaleDateString(undefined, { weekday: 'short' });
}

/** Which day that is; where the gateway's clock has another zone, from when to when by the one here. */
export function spanOf(day: IUsageDay, trans: TranslationBundle): string {
  const begin = new Date(day.since * 1000);
  if (begin.getHours() === 0 && begin.getMinutes() === 0) {
    return begin.toLocaleDateString(undefined, { weekday: 'long' });
  }
  const moment = (at: Date) =>
    at.toLocaleString(undefined, {
      weekday: 'long',
      hour: 'numeric',
      minute: 'numeric'
    });
  const end = new Date((day.since + 86_400) * 1000);
  return trans.__('%1 to %2', moment(begin), moment(end));
}

function daySaid(day: IUsageDay, trans: TranslationBundle): string {
  return trans.__(
    '%1: all held %2 and used %3; you held %4',
    spanOf(day, trans),
    formatGpuHours(day.all?.held_s ?? 0),
    formatGpuHours(day.all?.used_s ?? 0),
    formatGpuHours(day.own?.held_s ?? 0)
  );
}

interface IUsersProps {
  users: Record<string, IUsage>;
  me: string;
  trans: TranslationBundle;
}

/** Who used how much in the last 7 days, by what they held. */
function Users({ users, me, trans }: IUsersProps): React.ReactElement {
  const rows = Object.entries(users).sort((a, b) => b[1].held_s - a[1].held_s);
  const more = rows.length - USERS_SHOWN;
  return (
    <table className="jp-GpuRelease-usage jp-mod-users">
      <thead>
        <tr>
          <th scope="col">{trans.__('User, 7 days')}</th>
          <th scope="col">{trans.__('Held')}</th>
          <th scope="col">{trans.__('Used')}</th>
          <th scope="col">{trans.__('Saved')}</th>
        </tr>
      </thead>
      <tbody>
        {rows.slice(0, USERS_SHOWN).map(([user, week]) => (
          <tr key={user}>
            <th scope="row" title={user}>
              {person(trans, user, me)}
            </th>
            <td>{formatGpuHours(week.held_s)}</td>
            <td>{formatGpuHours(week.used_s)}</td>
            <td>{formatGpuHours(week.saved_s)}</td>
          </tr>
        ))}
        {more > 0 && (
          <tr>
            <th scope="row">
              {trans._n('and %1 user more', 'and %1 users more', more)}
            </th>
            <td colSpan={3} />
          </tr>
        )}
      </tbody>
    </table>
  );
}

interface IOwnProps {
  usage: IUsageFacts;
  trans: TranslationBundle;
}

/** Mine: held, used, and saved by giving back between cells. */
function Own({ usage, trans }: IOwnProps): React.ReactElement {
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
        {storedShown(usage) ? (
          <tr>
            <th
              scope="row"
              title={trans.__(
                'what your runs take of the store; `jupyter gpu gc` makes room'
              )}
            >
              {trans.__('On the store')}
            </th>
            <td colSpan={2}>{formatBytes(storedShown(usage))}</td>
          </tr>
        ) : null}
      </tbody>
    </table>
  );
}
