import { caretDownIcon, caretRightIcon } from '@jupyterlab/ui-components';
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { arrange, IArrangement } from '../model/sorting';
import { gpuTarget, ActionRunner } from '../model/actions';
import { formatPercent, formatPart } from '../format';
import { IGpu } from '../model/gpus';
import { GPU_ICONS } from '../icons';
import { GpuModel } from '../model/model';
import { gpuActions, maySee } from '../model/permissions';
import { gpuHint, gpuLabel } from '../labels';
import { Facts, IconActions, Outcome } from './details';
import {
  factsOf,
  hasMeters,
  holder,
  IGpuItem,
  IGroupItem,
  itemsOf,
  spoken,
  summary
} from './gpu-items';
import { useToggled } from './list/open-rows';
import { Age, Bar, Countdown, Icon, Sparkline } from './widgets';
import { Tree } from './list/tree';

interface IGpusProps {
  model: GpuModel;
  runner: ActionRunner;
  trans: TranslationBundle;
  arrangement: IArrangement;
  filter: string;
}

/** All GPUs, by node (or as the user arranges them). */
export function Gpus(props: IGpusProps): React.ReactElement {
  const { model, trans, arrangement, filter } = props;
  const { snapshot, feedback } = model;
  const [closed, toggleGroup] = useToggled();
  const [opened, toggleGpu] = useToggled();
  const items = React.useMemo(() => {
    const named = (word: IGpu['state'] | 'nobody' | 'this-machine') =>
      word === 'nobody'
        ? trans.__('Nobody')
        : word === 'this-machine'
          ? trans.__('This machine')
          : gpuLabel(trans, word);
    const groups = arrange(snapshot.hosts, arrangement, filter, named);
    return itemsOf(groups, snapshot, feedback, closed, opened, trans);
  }, [snapshot, feedback, arrangement, filter, closed, opened, trans]);
  if (items.length === 0) {
    const isFiltered = filter !== '' || arrangement.onlyMine;
    return (
      <p className="jp-GpuRelease-empty">
        {isFiltered
          ? trans.__('No GPU matches the filter.')
          : trans.__('No GPUs.')}
      </p>
    );
  }
  return (
    <Tree
      label={trans.__('GPUs')}
      items={items}
      spoken={item => spoken(item, trans)}
      onToggle={item =>
        item.kind === 'group' ? toggleGroup(item.key) : toggleGpu(item.key)
      }
      draw={(item, isActive) =>
        item.kind === 'group' ? (
          <GroupRow
            item={item}
            trans={trans}
            onToggle={() => toggleGroup(item.key)}
          />
        ) : (
          <GpuRow
            {...props}
            item={item}
            isActive={isActive}
            showsHost={arrangement.grouping !== 'node'}
            onToggle={() => toggleGpu(item.key)}
          />
        )
      }
    />
  );
}

function GroupRow(props: {
  item: IGroupItem;
  trans: TranslationBundle;
  onToggle: () => void;
}): React.ReactElement {
  const { group, expanded } = props.item;
  const caret = expanded ? caretDownIcon : caretRightIcon;
  return (
    <div className="jp-GpuRelease-group" onClick={props.onToggle}>
      <Icon icon={caret} />
      <span className="jp-GpuRelease-title" title={group.title}>
        {group.title}
      </span>
      {group.note && (
        <span className="jp-GpuRelease-note" title={group.note}>
          {group.note}
        </span>
      )}
      {group.gpuName && (
        <span className="jp-GpuRelease-gpuName">{group.gpuName}</span>
      )}
      <span className="jp-GpuRelease-count">{summary(props.trans, group)}</span>
    </div>
  );
}

interface IGpuRowProps extends IGpusProps {
  item: IGpuItem;
  isActive: boolean;
  showsHost: boolean;
  onToggle: () => void;
}

function GpuRow(props: IGpuRowProps): React.ReactElement {
  const { item, trans, runner, isActive, model } = props;
  const { gpu, feedback } = item;
  const actions = gpuActions(gpu, model.snapshot);
  const word = gpuLabel(trans, gpu.state);
  const who = holder(gpu, trans);
  const target = gpuTarget(gpu);
  const isBusy = feedback?.kind === 'busy';
  const offer = { trans, runner, target, isBusy, isActive };
  const isLink =
    gpu.run !== '' && who !== '' && maySee(model.snapshot, gpu.user);
  const place = props.showsHost && gpu.host ? `${gpu.host}:` : '';
  return (
    <div
      className={`jp-GpuRelease-gpu jp-mod-${gpu.state}${gpu.mine ? ' jp-mod-mine' : ''}`}
    >
      <div className="jp-GpuRelease-head" onClick={props.onToggle}>
        <Icon
          icon={GPU_ICONS[gpu.state]}
          label={gpuHint(trans, gpu.state)}
          kind={gpu.state}
        />
        <span className="jp-GpuRelease-index" title={gpuTitle(gpu, trans)}>
          {place}
          {gpu.index}
        </span>
        <span
          className={`jp-GpuRelease-who${isLink ? ' jp-mod-link' : ''}`}
          title={isLink ? trans.__('Show the run of %1', who) : who || word}
          onClick={event => {
            if (isLink) {
              event.stopPropagation();
              void runner.run('show', target);
            }
          }}
        >
          {who || word}
        </span>
        <When gpu={gpu} at={model.snapshot.at} trans={trans} />
        <IconActions {...offer} actions={actions} />
      </div>
      {hasMeters(gpu) && <Meters gpu={gpu} model={model} trans={trans} />}
      <Outcome feedback={feedback} />
      {item.expanded && (
        <Facts {...offer} actions={actions} facts={factsOf(gpu, trans)} />
      )}
    </div>
  );
}

function gpuTitle(gpu: IGpu, trans: TranslationBundle): string {
  return [trans.__('GPU %1', gpu.index), gpu.name].filter(Boolean).join(' · ');
}

/** Since when it is held, or until when it is kept warm. */
function When(props: {
  gpu: IGpu;
  at: number;
  trans: TranslationBundle;
}): React.ReactElement | null {
  const { gpu, at, trans } = props;
  if (gpu.state === 'warm') {
    return (
      <span className="jp-GpuRelease-when" title={gpuHint(trans, gpu.state)}>
        {trans.__('warm')}{' '}
        {gpu.warmUntil !== null && <Countdown until={gpu.warmUntil} />}
      </span>
    );
  }
  if (gpu.state === 'free' || gpu.heldS === null) {
    return null;
  }
  return (
    <span className="jp-GpuRelease-when">
      {gpu.state === 'idle-kernel' && `${trans.__('idle')} `}
      <Age seconds={gpu.heldS} at={at} />
    </span>
  );
}

function Meters(props: {
  gpu: IGpu;
  model: GpuModel;
  trans: TranslationBundle;
}): React.ReactElement {
  const { gpu, model, trans } = props;
  const { history } = model;
  return (
    <div className="jp-GpuRelease-meters">
      {gpu.memoryBytes > 0 && (
        <>
          <Bar share={gpu.usedBytes / gpu.memoryBytes} />
          <span className="jp-GpuRelease-memory">
            {formatPart(gpu.usedBytes, gpu.memoryBytes)}
          </span>
        </>
      )}
      <Sparkline
        samples={history.of(gpu.key)}
        spanS={history.spanS}
        title={trans.__('Utilisation over the last 5 minutes')}
      />
      <span className="jp-GpuRelease-utilization">
        {gpu.utilization === null ? '–' : formatPercent(gpu.utilization)}
      </span>
    </div>
  );
}
