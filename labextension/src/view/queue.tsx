import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { matches } from '../model/sorting';
import { ActionRunner } from '../model/actions';
import { IQueueRow } from '../model/types';
import { formatEstimate } from '../format';
import { GpuModel, IFeedback } from '../model/model';
import { queueActions } from '../model/permissions';
import { ISnapshot } from '../model/snapshot';
import { feedbackHeight, IconActions, Outcome } from './details';
import * as heights from './list/row-heights';
import { ITreeItem, Tree } from './list/tree';

interface IQueueItem extends ITreeItem {
  row: IQueueRow;
  mine: boolean;
  feedback: IFeedback | undefined;
}

interface IQueueProps {
  model: GpuModel;
  runner: ActionRunner;
  trans: TranslationBundle;
  filter: string;
}

/** Who waits, in which order, for what, and until when. */
export function Queue(props: IQueueProps): React.ReactElement {
  const { model, trans, filter, runner } = props;
  const { snapshot, feedback } = model;
  const items = React.useMemo(
    () => queueItems(snapshot, feedback, filter),
    [snapshot, feedback, filter]
  );
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
    <Tree
      label={trans.__('Queue')}
      items={items}
      spoken={({ row }) => spoken(row, trans)}
      onToggle={() => undefined}
      draw={(item, isActive) => (
        <div className={`jp-GpuRelease-wait${item.mine ? ' jp-mod-mine' : ''}`}>
          <div className="jp-GpuRelease-head">
            <span className="jp-GpuRelease-position">
              {item.row.position ?? '–'}
            </span>
            <span className="jp-GpuRelease-title" title={item.row.run}>
              {item.row.user}
              {item.mine && ` (${trans.__('you')})`}
            </span>
            <span className="jp-GpuRelease-when">
              {trans._n('%1 GPU', '%1 GPUs', item.row.gpus)}
            </span>
            <IconActions
              trans={trans}
              runner={runner}
              actions={queueActions(item.row, snapshot)}
              target={{ key: item.key, run: item.row.run }}
              isActive={isActive}
              isBusy={item.feedback?.kind === 'busy'}
            />
          </div>
          <div className="jp-GpuRelease-second" title={second(item.row, trans)}>
            {second(item.row, trans)}
          </div>
          <Outcome feedback={item.feedback} />
        </div>
      )}
    />
  );
}

function queueItems(
  snapshot: ISnapshot,
  feedbacks: ReadonlyMap<string, IFeedback>,
  filter: string
): IQueueItem[] {
  const rows = snapshot.queue.filter(row =>
    matches(filter, [row.user, row.queue, row.priority, row.reason, row.run])
  );
  return rows.map((row, index) => {
    const key = `queue:${row.run}`;
    const feedback = feedbacks.get(key);
    return {
      key,
      level: 1,
      height: heights.ROW + feedbackHeight(feedback),
      setSize: rows.length,
      posInSet: index + 1,
      row,
      mine: row.user === snapshot.me,
      feedback
    };
  });
}

function spoken(row: IQueueRow, trans: TranslationBundle): string {
  const place = trans.__('place %1', row.position ?? '–');
  const gpus = trans._n('%1 GPU', '%1 GPUs', row.gpus);
  return [place, row.user, gpus, second(row, trans)].join(', ');
}

function second(row: IQueueRow, trans: TranslationBundle): string {
  const start =
    row.start_estimate_s === null || row.start_estimate_s === undefined
      ? ''
      : trans.__('starts in %1', formatEstimate(row.start_estimate_s));
  const queue = row.queue === 'default' ? '' : row.queue;
  const priority = row.priority === 'normal' ? '' : row.priority;
  return [start, queue, priority, row.reason].filter(Boolean).join(' · ');
}
