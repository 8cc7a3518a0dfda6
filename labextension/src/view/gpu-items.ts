import type { TranslationBundle } from '@jupyterlab/translation';
import { IGroup } from '../model/sorting';
import { baseName, formatAge, formatPercent, formatPart } from '../format';
import { IGpu } from '../model/gpus';
import { IFeedback } from '../model/model';
import { gpuActions } from '../model/permissions';
import { ISnapshot } from '../model/snapshot';
import { gpuLabel } from '../labels';
import { Fact, factsHeight, feedbackHeight } from './details';
import * as heights from './list/row-heights';
import { ITreeItem } from './list/tree';

export interface IGroupItem extends ITreeItem {
  kind: 'group';
  group: IGroup;
}

export interface IGpuItem extends ITreeItem {
  kind: 'gpu';
  gpu: IGpu;
  feedback: IFeedback | undefined;
}

export type GpuItem = IGroupItem | IGpuItem;

export function itemsOf(
  groups: IGroup[],
  snapshot: ISnapshot,
  feedback: ReadonlyMap<string, IFeedback>,
  closed: ReadonlySet<string>,
  opened: ReadonlySet<string>,
  trans: TranslationBundle
): GpuItem[] {
  const hasTitles = groups.some(group => group.title !== '');
  return groups.flatMap((group, place): GpuItem[] => {
    const key = `group:${group.key}`;
    const isClosed = hasTitles && closed.has(key);
    const head: IGroupItem = {
      kind: 'group',
      key,
      level: 1,
      height: heights.GROUP,
      expanded: !isClosed,
      setSize: groups.length,
      posInSet: place + 1,
      group
    };
    const gpus = isClosed
      ? []
      : group.gpus.map((gpu, index) => ({
          ...gpuItem(gpu, snapshot, feedback, opened, trans),
          level: hasTitles ? (2 as const) : (1 as const),
          setSize: group.gpus.length,
          posInSet: index + 1
        }));
    return hasTitles ? [head, ...gpus] : gpus;
  });
}

function gpuItem(
  gpu: IGpu,
  snapshot: ISnapshot,
  feedbacks: ReadonlyMap<string, IFeedback>,
  opened: ReadonlySet<string>,
  trans: TranslationBundle
): IGpuItem {
  const isOpen = opened.has(gpu.key);
  const feedback = feedbacks.get(gpu.key);
  const height =
    gpuHeight(gpu) +
    feedbackHeight(feedback) +
    (isOpen ? openedHeight(gpu, snapshot, trans) : 0);
  return {
    kind: 'gpu',
    key: gpu.key,
    level: 1,
    height,
    expanded: isOpen,
    setSize: 0,
    posInSet: 0,
    gpu,
    feedback
  };
}

function openedHeight(
  gpu: IGpu,
  snapshot: ISnapshot,
  trans: TranslationBundle
): number {
  const facts = factsOf(gpu, trans).length;
  return factsHeight(facts, gpuActions(gpu, snapshot).length);
}

/** How high a GPU's row is before it is opened. */
export function gpuHeight(gpu: IGpu): number {
  return heights.GPU + (hasMeters(gpu) ? heights.METERS : 0);
}

export function hasMeters(gpu: IGpu): boolean {
  return gpu.memoryBytes > 0 || gpu.utilization !== null;
}

export function summary(trans: TranslationBundle, group: IGroup): string {
  const free = group.gpus.filter(gpu => gpu.state === 'free').length;
  return trans.__('%1 of %2 free', free, group.gpus.length);
}

/** `ann 0.5, you 0.25`: everybody with a part of a GPU. */
function sharers(gpu: IGpu): string {
  return gpu.parts.map(([user, part]) => `${user} ${part}`).join(', ');
}

export function holder(gpu: IGpu, trans: TranslationBundle): string {
  if (gpu.parts.length > 0) {
    return sharers(gpu);
  }
  const user = gpu.mine && gpu.user ? trans.__('you') : gpu.user;
  return [user, gpu.notebook && baseName(gpu.notebook)]
    .filter(Boolean)
    .join(' · ');
}

/** What a screen reader says of a row. */
export function spoken(item: GpuItem, trans: TranslationBundle): string {
  return item.kind === 'group'
    ? spokenGroup(item.group, trans)
    : spokenGpu(item.gpu, trans);
}

function spokenGroup(group: IGroup, trans: TranslationBundle): string {
  const texts = [group.title, summary(trans, group), group.note];
  return texts.filter(Boolean).join(', ');
}

function spokenGpu(gpu: IGpu, trans: TranslationBundle): string {
  const parts = [
    trans.__('GPU %1', gpu.index),
    gpuLabel(trans, gpu.state),
    holder(gpu, trans)
  ];
  if (gpu.heldS !== null && gpu.state !== 'free') {
    parts.push(formatAge(gpu.heldS));
  }
  if (gpu.memoryBytes > 0) {
    const share = formatPart(gpu.usedBytes, gpu.memoryBytes);
    parts.push(trans.__('memory %1', share));
  }
  if (gpu.utilization !== null) {
    parts.push(trans.__('busy %1', formatPercent(gpu.utilization)));
  }
  return parts.filter(Boolean).join(', ');
}

export function factsOf(gpu: IGpu, trans: TranslationBundle): Fact[] {
  const facts: Fact[] = [[trans.__('State'), gpuLabel(trans, gpu.state)]];
  const add = (name: string, value: string) => {
    if (value) {
      facts.push([name, value]);
    }
  };
  add(trans.__('Type'), gpu.name);
  add(trans.__('Holder'), gpu.mine ? trans.__('you') : gpu.user);
  add(trans.__('Shared by'), sharers(gpu));
  add(trans.__('Notebook'), gpu.notebook);
  add(trans.__('Run'), gpu.run);
  if (gpu.heldS !== null && gpu.state !== 'free') {
    add(trans.__('Held for'), formatAge(gpu.heldS));
  }
  if (gpu.memoryBytes > 0) {
    add(trans.__('Memory'), formatPart(gpu.usedBytes, gpu.memoryBytes));
  }
  if (gpu.temperature !== null) {
    add(trans.__('Temperature'), `${Math.round(gpu.temperature)} °C`);
  }
  add(trans.__('UUID'), gpu.uuid);
  return facts;
}
