import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { matches } from '../model/sorting';
import { ActionRunner } from '../model/actions';
import { IRunRow, IQueueShare } from '../model/types';
import { holdersOf } from '../model/holders';
import { formatAge, formatEstimate } from '../format';
import { GpuModel, IFeedback } from '../model/model';
import { maySee, queueActions } from '../model/permissions';
import { person } from '../labels';
import { ISnapshot } from '../model/snapshot';
import { feedbackHeight, IconActions, Outcome } from './details';
import * as heights from './list/row-heights';
import { ITreeItem, Tree } from './list/tree';

interface IWaitItem extends ITreeItem {
  kind: 'wait';
  row: IRunRow;
  mine: boolean;
  feedback: IFeedback | undefined;
}

interface IShareItem extends ITreeItem {
  kind: 'share';
  share: IQueueShare;
  /** with those above it */
  path: string;
}

type IQueueItem = IWaitItem | IShareItem;

interface IQueueProps {
  model: GpuModel;
  runner: ActionRunner;
  trans: TranslationBundle;
  filter: string;
}

/** Who waits, in which order, for what, and until when; by queue, where there are several. */
export function Queue(props: IQueueProps): React.ReactElement {
  const { model, trans, filter, runner } = props;
  const { snapshot, feedback } = model;
  const items = React.useMemo(
    () => queueItems(snapshot, feedback, filter),
    [snapshot, feedback, filter]
  );
  const show = ({ run, user }: IRunRow) => {
    if (maySee(snapshot, user)) {
      void runner.run('show', { key: `queue:${run}`, run });
    }
  };
  if (items.length === 0) {
    return (
      <p className="jp-GpuRelease-empty">
        {filter && snapshot.queue.length > 0
          ? trans.__('Nothing in the queue matches the filter.')
          : trans.__('Nobody waits.')}
      </p>
    );
  }
  return (
    <>
      <Holders snapshot={snapshot} trans={trans} />
      <Tree
        label={trans.__('Queue')}
        items={items}
        spoken={item =>
          item.kind === 'share'
            ? [
                item.path,
                waiting(item.share, trans),
                facts(item.share, trans)
              ].join(', ')
            : spoken(item.row, snapshot.me, trans)
        }
        onToggle={item => item.kind === 'wait' && show(item.row)}
        draw={(item, isActive) =>
          item.kind === 'share' ? (
            <Share share={item.share} path={item.path} trans={trans} />
          ) : (
            <Wait
              item={item}
              snapshot={snapshot}
              runner={runner}
              trans={trans}
              isActive={isActive}
              onShow={() => show(item.row)}
            />
          )
        }
      />
    </>
  );
}

/** Who holds what those in the queue wait for, and for how long already. */
function Holders(props: {
  snapshot: ISnapshot;
  trans: TranslationBundle;
}): React.ReactElement | null {
  const { snapshot, trans } = props;
  const words = holdersOf(snapshot.active).map(({ user, gpus, heldS }) =>
    trans.__(
      '%1: %2 for %3',
      person(trans, user, snapshot.me),
      trans._n('%1 GPU', '%1 GPUs', gpus),
      formatAge(heldS)
    )
  );
  if (words.length === 0) {
    return null;
  }
  const text = trans.__('Held by %1', words.join(', '));
  return (
    <p className="jp-GpuRelease-holders" title={text}>
      {text}
    </p>
  );
}

interface IShareProps {
  share: IQueueShare;
  path: string;
  trans: TranslationBundle;
}

function Share({ share, path, trans }: IShareProps): React.ReactElement {
  const second = facts(share, trans);
  return (
    <>
      <div className="jp-GpuRelease-head jp-GpuRelease-share">
        <span className="jp-GpuRelease-title" title={path}>
          {path}
        </span>
        <span className="jp-GpuRelease-when">{waiting(share, trans)}</span>
      </div>
      <div className="jp-GpuRelease-second" title={second}>
        {second}
      </div>
    </>
  );
}

function waiting(share: IQueueShare, trans: TranslationBundle): string {
  return trans.__('%1 queued', share.waiting_runs);
}

/** A queue with those above it: `research › climate`. */
function pathOf(share: IQueueShare, shares: readonly IQueueShare[]): string {
  const above = shares.find(other => other.name === share.parent);
  return above ? `${pathOf(above, shares)} › ${share.name}` : share.name;
}

function facts(share: IQueueShare, trans: TranslationBundle): string {
  const parts = [trans._n('%1 GPU used', '%1 GPUs used', share.used)];
  if (share.guaranteed) {
    parts.push(trans.__('guaranteed %1', share.guaranteed));
  }
  parts.push(trans.__('fair share %1', share.fair_share));
  const types = (share.by_type ?? []).map(each =>
    trans.__('%1: %2 of %3', each.gpu_type, each.used, each.fair_share)
  );
  return [...parts, ...types].join(' · ');
}

interface IWaitProps {
  item: IWaitItem;
  snapshot: ISnapshot;
  runner: ActionRunner;
  trans: TranslationBundle;
  isActive: boolean;
  onShow: () => void;
}

function Wait(props: IWaitProps): React.ReactElement {
  const { item, trans } = props;
  const who = person(trans, item.row.user, props.snapshot.me);
  const what = item.row.title ?? '';
  const below = second(item.row, item.level === 2, trans);
  return (
    <div
      className={`jp-GpuRelease-wait${item.mine ? ' jp-mod-mine' : ''}${
        maySee(props.snapshot, item.row.user) ? ' jp-mod-link' : ''
      }`}
      onClick={props.onShow}
    >
      <div className="jp-GpuRelease-head">
        <span className="jp-GpuRelease-position">
          {item.row.position ?? '–'}
        </span>
        <span
          className="jp-GpuRelease-title"
          title={[what, item.row.origin, item.row.run]
            .filter(Boolean)
            .join('\n')}
        >
          {[who, what].filter(Boolean).join(' · ')}
        </span>
        <span className="jp-GpuRelease-when">
          {trans._n('%1 GPU', '%1 GPUs', item.row.gpus)}
        </span>
        <IconActions
          trans={trans}
          runner={props.runner}
          actions={queueActions(item.row, props.snapshot)}
          target={{ key: item.key, run: item.row.run }}
          isActive={props.isActive}
          isBusy={item.feedback?.kind === 'busy'}
        />
      </div>
      <div className="jp-GpuRelease-second" title={below}>
        {below}
      </div>
      <Outcome feedback={item.feedback} />
    </div>
  );
}

/** The height that the section wants. */
export function queueHeight(snapshot: ISnapshot): number {
  const { queue } = snapshot;
  if (queue.length === 0) {
    return heights.SECTION;
  }
  const groups = isGrouped(snapshot)
    ? new Set(queue.map(row => row.queue)).size
    : 0;
  return heights.HOLDERS + (queue.length + groups) * heights.ROW;
}

function isGrouped({ queues }: ISnapshot): boolean {
  return queues.filter(share => share.leaf).length > 1;
}

function queueItems(
  snapshot: ISnapshot,
  feedbacks: ReadonlyMap<string, IFeedback>,
  filter: string
): IQueueItem[] {
  const rows = snapshot.queue.filter(row =>
    matches(filter, [
      row.title ?? '',
      row.origin ?? '',
      row.user,
      row.queue,
      row.priority,
      row.reason,
      row.run
    ])
  );
  const places = (among: IRunRow[], level: 1 | 2): IQueueItem[] =>
    among.map((row, index) => {
      const key = `queue:${row.run}`;
      const feedback = feedbacks.get(key);
      return {
        kind: 'wait',
        key,
        level,
        height: heights.ROW + feedbackHeight(feedback),
        setSize: among.length,
        posInSet: index + 1,
        row,
        mine: row.user === snapshot.me,
        feedback
      };
    });
  if (!isGrouped(snapshot)) {
    return places(rows, 1);
  }
  const shown = snapshot.queues.filter(share =>
    rows.some(row => row.queue === share.name)
  );
  const known = new Set(shown.map(share => share.name));
  const groups = shown.flatMap((share, index): IQueueItem[] => [
    {
      kind: 'share',
      key: `share:${share.name}`,
      level: 1,
      height: heights.ROW,
      setSize: shown.length,
      posInSet: index + 1,
      share,
      path: pathOf(share, snapshot.queues)
    },
    ...places(
      rows.filter(row => row.queue === share.name),
      2
    )
  ]);
  // of a queue that went a moment ago
  return [
    ...groups,
    ...places(
      rows.filter(row => !known.has(row.queue)),
      1
    )
  ];
}

function spoken(row: IRunRow, me: string, trans: TranslationBundle): string {
  const place = trans.__('place %1', row.position ?? '–');
  const gpus = trans._n('%1 GPU', '%1 GPUs', row.gpus);
  return [
    place,
    person(trans, row.user, me),
    gpus,
    second(row, false, trans)
  ].join(', ');
}

function second(
  row: IRunRow,
  isGrouped: boolean,
  trans: TranslationBundle
): string {
  const start =
    row.start_estimate_s === null || row.start_estimate_s === undefined
      ? ''
      : trans.__('starts in %1', formatEstimate(row.start_estimate_s));
  const queue = isGrouped || row.queue === 'default' ? '' : row.queue;
  const priority = row.priority === 'normal' ? '' : row.priority;
  return [start, queue, priority, row.reason].filter(Boolean).join(' · ');
}
