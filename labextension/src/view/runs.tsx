import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { matches } from '../model/sorting';
import { ActionRunner, runTarget } from '../model/actions';
import { IRunRow, isTerminal, waits } from '../model/types';
import {
  baseName,
  errorText,
  formatAge,
  formatBytes,
  formatSeconds
} from '../format';
import { RUN_ICONS } from '../icons';
import { GpuModel, IFeedback } from '../model/model';
import { Action, runActions } from '../model/permissions';
import { ISnapshot } from '../model/snapshot';
import { runHint, runLabel } from '../labels';
import {
  Fact,
  Facts,
  factsHeight,
  feedbackHeight,
  IconActions,
  Outcome
} from './details';
import * as heights from './list/row-heights';
import { useToggled } from './list/open-rows';
import { Age, Icon } from './widgets';
import { ITreeItem, Tree } from './list/tree';

const RESULTS_SHOWN = 6;

interface IRunItem extends ITreeItem {
  run: IRunRow;
  progress: string;
  actions: Action[];
  facts: Fact[];
  feedback: IFeedback | undefined;
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
      spoken={({ run }) => spoken(run, trans)}
      onToggle={item => toggle(item.key)}
      draw={(item, isActive) => (
        <RunRow
          item={item}
          at={snapshot.at}
          isActive={isActive}
          runner={runner}
          trans={trans}
          onToggle={() => toggle(item.key)}
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
      run.name,
      run.notebook,
      run.run,
      runLabel(trans, run.state),
      run.gpu_name ?? ''
    ])
  );
  return runs.map((run, index) => {
    const key = `run:${run.run}`;
    const expanded = opened.has(key);
    const actions = runActions(run, snapshot);
    const facts = expanded ? factsOf(run, trans) : [];
    const feedback = feedbacks.get(key);
    const extra = expanded ? factsHeight(facts.length, actions.length) : 0;
    return {
      key,
      level: 1,
      height: heights.ROW + feedbackHeight(feedback) + extra,
      expanded,
      setSize: runs.length,
      posInSet: index + 1,
      run,
      progress: progress.get(run.run) ?? '',
      actions,
      facts,
      feedback
    };
  });
}

function spoken(run: IRunRow, trans: TranslationBundle): string {
  const words = [titleOf(run), runLabel(trans, run.state), line(run, trans)];
  return words.join(', ');
}

function titleOf(run: IRunRow): string {
  return run.name || (run.notebook && baseName(run.notebook)) || run.run;
}

/** The second line: the receipt in short. */
function line(run: IRunRow, trans: TranslationBundle): string {
  const gpus = trans._n('%1 GPU', '%1 GPUs', run.gpus);
  if (waits(run.state)) {
    const place =
      run.position !== null ? trans.__('place %1', run.position) : '';
    return [gpus, run.reason || place].filter(Boolean).join(' · '); // reasons name the place
  }
  if (!isTerminal(run.state)) {
    return [gpus, run.gpu_name ?? ''].filter(Boolean).join(' · ');
  }
  const held = trans.__('held %1', formatSeconds(run.held_s));
  if (run.state === 'cancelled') {
    const word = runLabel(trans, run.state);
    return [word, gpus, run.granted_at ? held : ''].filter(Boolean).join(' · ');
  }
  if (run.state !== 'succeeded') {
    return (run.error ? errorText(run.error) : run.reason) || gpus;
  }
  const free =
    run.release_ms !== null
      ? trans.__('free after %1', formatSeconds(run.release_ms / 1000))
      : '';
  return [gpus, held, free].filter(Boolean).join(' · ');
}

function factsOf(run: IRunRow, trans: TranslationBundle): Fact[] {
  const facts: Fact[] = [[trans.__('State'), runLabel(trans, run.state)]];
  const add = (name: string, value: string) => {
    if (value) {
      facts.push([name, value]);
    }
  };
  add(trans.__('Notebook'), run.notebook);
  add(trans.__('Run'), run.run);
  add(trans.__('Queued'), formatSeconds(run.queued_s));
  add(trans.__('Held'), run.granted_at ? formatSeconds(run.held_s) : '');
  if (run.release_ms !== null) {
    add(trans.__('Free after'), formatSeconds(run.release_ms / 1000));
  }
  add(trans.__('GPU type'), run.gpu_name ?? '');
  add(trans.__('On'), (run.hosts ?? []).join(', '));
  if (run.error) {
    add(trans.__('Error'), errorText(run.error));
    add(trans.__('Way out'), run.error.mend ?? '');
  }
  for (const verdict of run.verdict ?? []) {
    add(trans.__('Verdict'), verdict);
  }
  for (const note of run.notes ?? []) {
    add(trans.__('Note'), note);
  }
  for (const result of run.results.slice(0, RESULTS_SHOWN)) {
    const size = result.bytes ? ` · ${formatBytes(result.bytes)}` : '';
    add(result.name, `${result.type}${size}`);
  }
  const more = run.results.length - RESULTS_SHOWN;
  add(more > 0 ? '…' : '', more > 0 ? trans.__('%1 more results', more) : '');
  for (const file of run.files.slice(0, RESULTS_SHOWN)) {
    add(trans.__('File'), `${file.path} · ${formatBytes(file.bytes ?? 0)}`);
  }
  return facts;
}

interface IRunRowProps {
  item: IRunItem;
  at: number;
  isActive: boolean;
  runner: ActionRunner;
  trans: TranslationBundle;
  onToggle: () => void;
}

function RunRow(props: IRunRowProps): React.ReactElement {
  const { item, trans, runner, isActive } = props;
  const { run, actions, feedback, facts, progress } = item;
  const isBusy = feedback?.kind === 'busy';
  const target = runTarget(run);
  const offer = { trans, runner, target, isBusy, isActive };
  const second = progress || line(run, trans);
  return (
    <div className={`jp-GpuRelease-run jp-mod-${run.state}`}>
      <div className="jp-GpuRelease-head" onClick={props.onToggle}>
        <Icon
          icon={RUN_ICONS[run.state]}
          label={runHint(trans, run.state)}
          kind={run.state}
        />
        <span className="jp-GpuRelease-title" title={run.notebook || run.run}>
          {titleOf(run)}
        </span>
        <span className="jp-GpuRelease-when">
          <RunWhen run={run} at={props.at} trans={trans} />
        </span>
        <IconActions {...offer} actions={actions} />
      </div>
      <div
        className="jp-GpuRelease-second"
        title={second}
        onClick={props.onToggle}
      >
        {second}
      </div>
      <Outcome feedback={feedback} />
      {item.expanded && <Facts {...offer} actions={actions} facts={facts} />}
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
        {runLabel(trans, run.state)} <Age seconds={run.queued_s} at={at} />
      </>
    );
  }
  if (!isTerminal(run.state)) {
    return (
      <>
        {run.state === 'running' ? '' : `${runLabel(trans, run.state)} `}
        <Age seconds={run.held_s} at={at} />
      </>
    );
  }
  const ended = run.finished_at ?? run.gone_at ?? run.submitted_at;
  const ago = formatAge(Math.max(0, at - ended));
  return <>{trans.__('%1 ago', ago)}</>;
}
