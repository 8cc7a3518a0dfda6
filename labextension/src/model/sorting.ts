import { GPU_STATES, GpuState } from './types';
import { IGpu, IHost } from './gpus';

export type Grouping = 'node' | 'user' | 'state' | 'none';
export type Sorting = 'index' | 'memory' | 'utilization' | 'age';

/** How the list of GPUs is arranged; part of the settings. */
export interface IArrangement {
  grouping: Grouping;
  sorting: Sorting;
  onlyMine: boolean;
}

export interface IGroup {
  key: string;
  title: string;
  /** words after the title */
  note: string;
  /** the name of a node's GPUs, where it has one kind */
  gpuName: string;
  gpus: IGpu[];
}

/** Whether every word of the filter occurs in one of the texts (case does not matter). */
export function matches(filter: string, texts: readonly string[]): boolean {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) {
    return true;
  }
  const all = texts.join('\n').toLowerCase();
  return words.every(word => all.includes(word));
}

/** The GPUs that pass, in groups, sorted. `named` translates states and the names of groups without one. */
export function arrange(
  hosts: readonly IHost[],
  { grouping, sorting, onlyMine }: IArrangement,
  filter: string,
  named: (state: GpuState | 'nobody' | 'this-machine') => string
): IGroup[] {
  const gpus = hosts
    .flatMap(host => host.gpus)
    .filter(gpu => !onlyMine || gpu.mine)
    .filter(
      gpu =>
        filter === '' ||
        matches(filter, [
          gpu.host,
          `gpu ${gpu.index}`,
          gpu.name,
          gpu.user,
          gpu.notebook,
          gpu.run,
          ...gpu.parts.map(([user]) => user),
          named(gpu.state)
        ])
    );
  const titled = new Map(hosts.map(host => [host.id, host]));
  const groups = new Map<string, IGroup>();
  for (const gpu of gpus) {
    const key = groupKey(gpu, grouping);
    let group = groups.get(key);
    if (!group) {
      const title = groupTitle(key, gpu, grouping, named);
      const notes = titled.get(nodeOf(gpu))?.notes ?? [];
      const note = grouping === 'node' ? notes.join(' · ') : '';
      const gpuName = grouping === 'node' ? gpu.name : '';
      group = { key, title, note, gpuName, gpus: [] };
      groups.set(key, group);
    }
    group.gpus.push(gpu);
    group.gpuName = group.gpuName === gpu.name ? gpu.name : '';
  }
  const compare = comparison(sorting);
  const sorted = [...groups.values()];
  sorted.forEach(group => group.gpus.sort(compare));
  return sorted.sort(groupComparison(grouping));
}

function nodeOf(gpu: IGpu): string {
  return gpu.key.slice(0, gpu.key.indexOf('/'));
}

function groupKey(gpu: IGpu, grouping: Grouping): string {
  switch (grouping) {
    case 'node':
      return nodeOf(gpu) + (gpu.sliceOf && `/${gpu.sliceOf}`); // slices are below their GPU
    case 'user':
      return gpu.user;
    case 'state':
      return gpu.state;
    case 'none':
      return '';
  }
}

function groupTitle(
  key: string,
  gpu: IGpu,
  grouping: Grouping,
  named: (state: GpuState | 'nobody' | 'this-machine') => string
): string {
  switch (grouping) {
    case 'node':
      return [
        gpu.host || named('this-machine'),
        gpu.sliceOf && `GPU ${gpu.sliceOf}`
      ]
        .filter(Boolean)
        .join(' · ');
    case 'user':
      return key || named('nobody');
    case 'state':
      return named(gpu.state);
    case 'none':
      return '';
  }
}

function groupComparison(grouping: Grouping): (a: IGroup, b: IGroup) => number {
  switch (grouping) {
    case 'state':
      return (a, b) => rankOf(a.gpus[0]) - rankOf(b.gpus[0]);
    case 'user': // nobody last
      return (a, b) =>
        Number(a.key === '') - Number(b.key === '') ||
        b.gpus.length - a.gpus.length ||
        byText(a.title, b.title);
    default:
      return (a, b) => byText(a.title, b.title);
  }
}

function rankOf(gpu: IGpu): number {
  return GPU_STATES.indexOf(gpu.state);
}

const collator = new Intl.Collator(undefined, { numeric: true });

function byText(a: string, b: string): number {
  return collator.compare(a, b);
}

function comparison(sorting: Sorting): (a: IGpu, b: IGpu) => number {
  const byPlace = (a: IGpu, b: IGpu) =>
    byText(a.host, b.host) || byText(a.index, b.index);
  const falling = (of: (gpu: IGpu) => number) => (a: IGpu, b: IGpu) =>
    of(b) - of(a) || byPlace(a, b);
  switch (sorting) {
    case 'memory':
      return falling(gpu => gpu.usedBytes);
    case 'utilization':
      return falling(gpu => gpu.utilization ?? -1);
    case 'age':
      return falling(gpu => gpu.heldS ?? -1);
    case 'index':
      return byPlace;
  }
}
