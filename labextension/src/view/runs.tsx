import { caretDownIcon, caretRightIcon } from '@jupyterlab/ui-components';
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { matches } from '../model/sorting';
import { ActionRunner, runTarget } from '../model/actions';
import { IRunRow, isTerminal, waitingS, waits } from '../model/types';
import { errorText, formatAge, formatSeconds } from '../format';
import { RUN_ICONS } from '../icons';
import { GpuModel, IFeedback } from '../model/model';
import { Action, runActions } from '../model/permissions';
import { originOf, titleOf } from '../model/run-titles';
import { ISnapshot } from '../model/snapshot';
import { beganAt, groupSweeps, IRunGroup, valueOf } from '../model/sweeps';
import { runHint, runWord, stateText, trialsText } from '../labels';
import { feedbackHeight, IconActions, Outcome } from './details';
import * as heights from './list/row-heights';
import { Age, Icon } from './widgets';
import { useToggled } from './list/open-rows';
import { ITreeItem, Tree } from './list/tree';

interface IRunItem extends ITreeItem {
  run: IRunRow;
  progress: string;
  actions: Action[];
  feedback: IFeedback | undefined;
  /** of the row of a sweep */
  trials: IRunRow[];
}

interface IRunsProps {
  model: GpuModel;
  runner: ActionRunner;
  trans: TranslationBundle;
  filter: string;
}

/** My runs: those that go on first, then what ended last. */
export function Runs(props: IRunsProps): React.ReactElement {
  const { model, trans, filter, runner } = props;
  const { snapshot, feedback } = model;
  const [opened, toggle] = useToggled();
  const items = React.useMemo(
    () => runItems(snapshot, feedback, opened, filter, trans),
    [snapshot, feedback, opened, filter, trans]
  );
  const open = ({ key, run, trials }: IRunItem) =>
    trials.length > 0 ? toggle(key) : void runner.run('show', runTarget(run));
  if (items.length === 0) {
    return (
      <p className="jp-GpuRelease-empty">
        {filter && snapshot.runs.length > 0
          ? trans.__('No run matches the filter.')
          : trans.__('No runs yet. Begin a cell with %1.', '%%gpu_train')}
      </p>
    );
  }
  return (
    <Tree
      label={trans.__('My runs')}
      items={items}
      spoken={item => spoken(item, trans)}
      onToggle={open}
      draw={(item, isActive) => (
        <RunRow
          item={item}
          at={snapshot.at}
          isActive={isActive}
          runner={runner}
          trans={trans}
          onOpen={() => open(item)}
        />
      )}
    />
  );
}

function runItems(
  snapshot: ISnapshot,
  feedbacks: ReadonlyMap<string, IFeedback>,
  opened: ReadonlySet<string>,
  filter: string,
  trans: TranslationBundle
): IRunItem[] {
  const progress = new Map(
    snapshot.active.map(row => [row.run, row.progress ?? ''])
  );
  const runs = snapshot.runs.filter(run =>
    matches(filter, [
      titleOf(run),
      originOf(run),
      run.notebook,
      run.run,
      runWord(trans, run),
      run.gpu_name ?? ''
    ])
  );
  const item = (
    { row: run, trials }: IRunGroup,
    level: 1 | 2,
    index: number,
    setSize: number
  ): IRunItem => {
    const key = `run:${run.run}`;
    const feedback = feedbacks.get(key);
    const actions = runActions(run, snapshot);
    return {
      key,
      level,
      height: heights.ROW + feedbackHeight(feedback),
      expanded: trials.length > 0 ? opened.has(key) : undefined,
      setSize,
      posInSet: index + 1,
      run,
      progress: progress.get(run.run) ?? '',
      // a sweep's cell waits for it, and no kernel for its trials
      actions:
        trials.length > 0 ? [...actions.filter(isOfSweep), 'show'] : actions,
      feedback,
      trials
    };
  };
  const groups = groupSweeps(runs);
  return groups.flatMap((group, index) => {
    const head = item(group, 1, index, groups.length);
    const trials = head.expanded ? group.trials : [];
    const below = trials.map((row, at) =>
      item({ row, trials: [] }, 2, at, trials.length)
    );
    return [head, ...below];
  });
}

function isOfSweep(action: Action): boolean {
  return action !== 'attach';
}

function secondLine(
  { run, trials }: IRunItem,
  trans: TranslationBundle
): string {
  if (trials.length === 0) {
    return line(run, trans);
  }
  const held = trans.__('held %1', formatSeconds(run.held_s));
  return [trialsText(trials, trans), gpusOf(run, trans), held].join(' · ');
}

function spoken(item: IRunItem, trans: TranslationBundle): string {
  const { run } = item;
  const rest = secondLine(item, trans);
  const word = runWord(trans, run);
  const words = [titleOf(run), rest.startsWith(word) ? '' : word, rest];
  return words.filter(Boolean).join(', ');
}

/** How many GPUs it has; of an elastic run also how many it would have. */
function gpusOf(run: IRunRow, trans: TranslationBundle): string {
  const most = run.most_gpus ?? 0;
  return run.granted_at !== null && run.gpus < most
    ? trans.__('%1 of %2 GPUs', run.gpus, most)
    : trans._n('%1 GPU', '%1 GPUs', run.gpus);
}

/** The second line: the receipt in short. */
function line(run: IRunRow, trans: TranslationBundle): string {
  const gpus = gpusOf(run, trans);
  if (waits(run.state)) {
    const place =
      run.position !== null ? trans.__('place %1', run.position) : '';
    const paused = run.earlier?.[run.earlier.length - 1] ?? '';
    // reasons name the place
    return [paused || gpus, run.reason || place].filter(Boolean).join(' · ');
  }
  if (!isTerminal(run.state)) {
    return [gpus, run.reason || (run.gpu_name ?? '')]
      .filter(Boolean)
      .join(' · ');
  }
  const held = trans.__('held %1', formatSeconds(run.held_s));
  if (run.state === 'cancelled') {
    const word = stateText(trans, run);
    return [word, gpus, run.granted_at ? held : ''].filter(Boolean).join(' · ');
  }
  if (run.state !== 'succeeded') {
    return (run.error ? errorText(run.error) : run.reason) || gpus;
  }
  const free =
    run.release_ms !== null
      ? trans.__('free after %1', formatSeconds(run.release_ms / 1000))
      : '';
  const [metric] = Object.keys(run.metric ?? {});
  const value = metric ? `${metric}=${valueOf(run)}` : '';
  return [value, gpus, held, free].filter(Boolean).join(' · ');
}

interface IRunRowProps {
  item: IRunItem;
  at: number;
  isActive: boolean;
  runner: ActionRunner;
  trans: TranslationBundle;
  onOpen: () => void;
}

function RunRow(props: IRunRowProps): React.ReactElement {
  const { item, trans, runner, isActive, onOpen } = props;
  const { run, actions, feedback, progress } = item;
  const isBusy = feedback?.kind === 'busy';
  const target = runTarget(run);
  const offer = { trans, runner, target, isBusy, isActive };
  const origin = originOf(run) === titleOf(run) ? '' : originOf(run);
  const said = waits(run.state) ? '' : progress;
  // the trials' times together would run faster than a clock
  const held_s = item.trials.length
    ? Math.max(0, props.at - beganAt(item.trials))
    : run.held_s;
  const second = [origin, said || secondLine(item, trans)]
    .filter(Boolean)
    .join(' · ');
  return (
    <div className={`jp-GpuRelease-run jp-mod-link jp-mod-${run.state}`}>
      <div className="jp-GpuRelease-head" onClick={onOpen}>
        {item.trials.length > 0 && (
          <Icon icon={item.expanded ? caretDownIcon : caretRightIcon} />
        )}
        <Icon
          icon={RUN_ICONS[run.state]}
          label={runHint(trans, run)}
          kind={run.state}
        />
        <span
          className="jp-GpuRelease-title"
          title={[titleOf(run), originOf(run), run.run].join('\n')}
        >
          {titleOf(run)}
        </span>
        <span className="jp-GpuRelease-when">
          <RunWhen run={{ ...run, held_s }} at={props.at} trans={trans} />
        </span>
        <IconActions {...offer} actions={actions} />
      </div>
      <div className="jp-GpuRelease-second" title={second} onClick={onOpen}>
        {second}
      </div>
      <Outcome feedback={feedback} />
    </div>
  );
}

function RunWhen(props: {
  run: IRunRow;
  at: number;
  trans: TranslationBundle;
}): React.ReactElement {
  const { run, at, trans } = props;
  if (waits(run.state)) {
    return (
      <>
        {runWord(trans, run)} <Age seconds={waitingS(run)} at={at} />
      </>
    );
  }
  if (!isTerminal(run.state)) {
    return (
      <>
        {run.state === 'running' ? '' : `${runWord(trans, run)} `}
        <Age seconds={run.held_s} at={at} />
      </>
    );
  }
  const ended = run.finished_at ?? run.gone_at ?? run.submitted_at;
  const ago = formatAge(Math.max(0, at - ended));
  return <>{trans.__('%1 ago', ago)}</>;
}
