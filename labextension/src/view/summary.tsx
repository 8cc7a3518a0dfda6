import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { GPU_STATES, GpuState } from '../model/types';
import { ISnapshot } from '../model/snapshot';
import { gpuLabel } from '../labels';

interface ISummaryProps {
  snapshot: ISnapshot;
  trans: TranslationBundle;
}

/** The whole at a glance: free, in use, queued; and which cluster this is. */
export function Summary(props: ISummaryProps): React.ReactElement {
  const { snapshot, trans } = props;
  const { counts, queue } = snapshot;
  const place = queue.find(row => row.user === snapshot.me)?.position;
  const { isClusterKnown } = snapshot;
  return (
    <div className="jp-GpuRelease-summary">
      <ul className="jp-GpuRelease-tiles">
        <Tile value={counts.free} label={trans.__('free')} kind="free" />
        <Tile
          value={counts.held + counts.external}
          label={trans.__('in use')}
          note={counts.mine > 0 ? trans.__('%1 yours', counts.mine) : ''}
          hint={trans.__('GPUs that somebody holds')}
        />
        {isClusterKnown && (
          <Tile
            value={counts.waiting}
            label={trans.__('queued')}
            note={place ? trans.__('place %1', place) : ''}
            hint={
              place
                ? trans.__('Your first run has place %1 in the queue', place)
                : undefined
            }
          />
        )}
      </ul>
      <Shares {...props} />
      <div className="jp-GpuRelease-cluster">
        <span title={snapshot.cluster}>
          {isClusterKnown ? snapshot.cluster : trans.__('this machine only')}
        </span>
        {snapshot.simulated && (
          <span
            className="jp-GpuRelease-badge"
            title={trans.__('These GPUs are simulated: cells run on the CPU.')}
          >
            {trans.__('simulated')}
          </span>
        )}
        {snapshot.isAdmin && (
          <span className="jp-GpuRelease-badge">{trans.__('admin')}</span>
        )}
      </div>
    </div>
  );
}

function Tile(props: {
  value: number;
  label: string;
  note?: string;
  hint?: string;
  kind?: string;
}): React.ReactElement {
  return (
    <li
      className={`jp-GpuRelease-tile jp-mod-${props.kind ?? 'plain'}`}
      title={props.hint}
    >
      <span className="jp-GpuRelease-number">{props.value}</span>
      <span className="jp-GpuRelease-tileLabel">{props.label}</span>
      <span className="jp-GpuRelease-tileNote">{props.note}</span>
    </li>
  );
}

/** One strip for all GPUs: how many are in which state. */
function Shares({ snapshot, trans }: ISummaryProps): React.ReactElement | null {
  const gpus = snapshot.hosts.flatMap(host => host.gpus);
  if (gpus.length === 0) {
    return null;
  }
  const parts = GPU_STATES.map((state): [GpuState, number] => [
    state,
    gpus.filter(gpu => gpu.state === state).length
  ]).filter(([, count]) => count > 0);
  const words = parts.map(
    ([state, count]) => `${count} ${gpuLabel(trans, state)}`
  );
  return (
    <div
      className="jp-GpuRelease-shares"
      role="img"
      aria-label={words.join(', ')}
      title={words.join(' · ')}
    >
      {parts.map(([state, count]) => (
        <span
          key={state}
          className={`jp-mod-${state}`}
          style={{ flex: count }}
        />
      ))}
    </div>
  );
}
