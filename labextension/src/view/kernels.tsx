import type { TranslationBundle } from '@jupyterlab/translation';
import { kernelIcon } from '@jupyterlab/ui-components';
import * as React from 'react';
import { ActionRunner, kernelTarget } from '../model/actions';
import { IKernelRow } from '../model/types';
import { baseName, formatBytes, formatAge } from '../format';
import { GpuModel, IFeedback } from '../model/model';
import { kernelActions } from '../model/permissions';
import { ISnapshot } from '../model/snapshot';
import { feedbackHeight, IconActions, Outcome } from './details';
import { Icon } from './widgets';
import * as heights from './list/row-heights';
import { ITreeItem, Tree } from './list/tree';

interface IKernelItem extends ITreeItem {
  kernel: IKernelRow;
  feedback: IFeedback | undefined;
}

interface IKernelsProps {
  model: GpuModel;
  runner: ActionRunner;
  trans: TranslationBundle;
}

/** Kernels of this server that hold GPU memory themselves, outside of any lease. */
export function Kernels(props: IKernelsProps): React.ReactElement {
  const { model, trans, runner } = props;
  const { snapshot, feedback } = model;
  const items = React.useMemo(
    () => kernelItems(snapshot, feedback),
    [snapshot, feedback]
  );
  return (
    <Tree
      label={trans.__('Kernels with GPU memory')}
      items={items}
      spoken={({ kernel }) => spoken(kernel, trans)}
      onToggle={() => undefined}
      draw={(item, isActive) => (
        <div className="jp-GpuRelease-kernel">
          <div className="jp-GpuRelease-head">
            <Icon icon={kernelIcon} />
            <span
              className="jp-GpuRelease-title"
              title={item.kernel.path || item.kernel.name}
            >
              {baseName(item.kernel.path) || item.kernel.name}
            </span>
            <span className="jp-GpuRelease-when">
              {formatBytes(item.kernel.used_bytes)}
            </span>
            <IconActions
              trans={trans}
              runner={runner}
              actions={kernelActions(item.kernel, snapshot)}
              target={kernelTarget(item.kernel)}
              isActive={isActive}
              isBusy={item.feedback?.kind === 'busy'}
            />
          </div>
          <div
            className="jp-GpuRelease-second"
            title={second(item.kernel, trans)}
          >
            {second(item.kernel, trans)}
          </div>
          <Outcome feedback={item.feedback} />
        </div>
      )}
    />
  );
}

function kernelItems(
  snapshot: ISnapshot,
  feedbacks: ReadonlyMap<string, IFeedback>
): IKernelItem[] {
  return snapshot.kernels.map((kernel, index) => {
    const key = `kernel:${kernel.id}`;
    const feedback = feedbacks.get(key);
    return {
      key,
      level: 1,
      height: heights.ROW + feedbackHeight(feedback),
      setSize: snapshot.kernels.length,
      posInSet: index + 1,
      kernel,
      feedback
    };
  });
}

function spoken(kernel: IKernelRow, trans: TranslationBundle): string {
  const name = baseName(kernel.path) || kernel.name;
  const held = formatBytes(kernel.used_bytes);
  return [name, held, second(kernel, trans)].join(', ');
}

function second(kernel: IKernelRow, trans: TranslationBundle): string {
  const gpus = kernel.gpus.map(gpu => gpu.index).join(', ');
  const state = kernel.busy
    ? trans.__('busy')
    : kernel.idle_s === null
      ? trans.__('idle')
      : trans.__('idle %1', formatAge(kernel.idle_s));
  const gpu = trans.__('GPU %1', gpus);
  return [state, gpu, policyWords(kernel, trans)].filter(Boolean).join(' · ');
}

/** What the idle policy means to do, or that it was asked not to. */
function policyWords(kernel: IKernelRow, trans: TranslationBundle): string {
  const { kept_s, due_s } = kernel;
  if (typeof kept_s === 'number') {
    return trans.__('kept for %1', formatAge(kept_s));
  }
  return typeof due_s === 'number'
    ? trans.__('idle limit in %1', formatAge(due_s))
    : '';
}
