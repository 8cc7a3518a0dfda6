import { nullTranslator } from '@jupyterlab/translation';
import { arrange, IArrangement, matches } from '../../src/model/sorting';
import { takeSnapshot } from '../../src/model/snapshot';
import { GpuState } from '../../src/model/types';
import { gpuLabel } from '../../src/labels';
import { gpu, status } from '../samples';

const trans = nullTranslator.load('');
const NOW = 10_000;

describe('arrange', () => {
  const plain: IArrangement = {
    grouping: 'node',
    sorting: 'index',
    onlyMine: false
  };
  const gpus = [
    gpu(10, { state: 'running', user: 'bob', used_bytes: 5 }),
    gpu(2, { state: 'warm', user: 'ada', used_bytes: 9 }),
    gpu(1, { state: 'running', user: 'bob', utilization: 0.9 })
  ];
  const { hosts } = takeSnapshot(status(gpus), [], null, NOW);
  const named = (word: GpuState | 'nobody' | 'this-machine') =>
    word === 'nobody' || word === 'this-machine' ? word : gpuLabel(trans, word);
  const titles = (arrangement: IArrangement, filter = '') =>
    arrange(hosts, arrangement, filter, named).map(group => [
      group.title,
      group.gpus.map(gpu => gpu.index).join()
    ]);

  it('by node, in the order of numbers', () => {
    expect(titles(plain)).toEqual([['gpu-01', '1,2,10']]);
  });

  it('shows MIG instances below their GPU', () => {
    const slice = { name: 'H100 MIG 1g.10gb', slice_of: '5' };
    const all = [
      ...gpus,
      ...['MIG-b', 'MIG-GPU-a/1/0'].map(index => gpu(0, { ...slice, index }))
    ];
    const found = takeSnapshot(status(all), [], null, NOW).hosts;
    const groups = arrange(found, plain, '', named);
    expect(groups.map(({ title, gpuName }) => [title, gpuName])).toEqual([
      ['gpu-01', gpus[0].name],
      ['gpu-01 · GPU 5', slice.name]
    ]);
    expect(groups[1].gpus.map(({ index }) => index)).toEqual([
      'MIG-b',
      'MIG-GPU-a/1/0'
    ]);
  });

  it('by holder, the largest first', () => {
    expect(titles({ ...plain, grouping: 'user' })).toEqual([
      ['bob', '1,10'],
      ['ada', '2']
    ]);
  });

  it('by state, running first', () => {
    expect(titles({ ...plain, grouping: 'state' })).toEqual([
      ['Running', '1,10'],
      ['Warm', '2']
    ]);
  });

  it('sorted by memory and by use', () => {
    const none = { ...plain, grouping: 'none' as const };
    expect(titles({ ...none, sorting: 'memory' })[0][1]).toBe('2,10,1');
    expect(titles({ ...none, sorting: 'utilization' })[0][1]).toBe('1,2,10');
  });

  it('filters by words and by owner', () => {
    expect(titles(plain, 'BOB gpu-01')).toEqual([['gpu-01', '1,10']]);
    expect(titles({ ...plain, onlyMine: true })).toEqual([['gpu-01', '2']]);
    expect(titles(plain, 'nobody there')).toEqual([]);
    expect(matches('', [])).toBe(true);
  });
});
