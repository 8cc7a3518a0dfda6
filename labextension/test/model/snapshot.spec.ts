import { takeSnapshot } from '../../src/model/snapshot';
import { GIB, gpu, kernel, run, status } from '../samples';

const NOW = 10_000;

describe('snapshot', () => {
  it('joins GPUs with runs: notebook, cell, age', () => {
    const mine = run('r1');
    const gpus = [gpu(0, { state: 'running', user: 'ada', run: 'r1' }), gpu(1)];
    const snapshot = takeSnapshot(
      status(gpus, {}, [{ ...mine, held_s: 75 }]),
      [mine],
      null,
      NOW
    );
    const [held, free] = snapshot.hosts[0].gpus;
    expect(held).toMatchObject({
      notebook: '/home/ada/digits.ipynb',
      cell: 'c1',
      heldS: 75,
      mine: true,
      lease: 'r1'
    });
    expect(free).toMatchObject({ mine: false, heldS: null });
    expect(snapshot.counts).toMatchObject({ free: 1, held: 1, mine: 1 });
    expect(snapshot.cluster).toBe('gpu.example.org');
  });

  it('a GPU that a local kernel holds is found by its UUID', () => {
    const document = { schema_version: 1, gpus: [], kernels: [kernel()] };
    const take = (busy: boolean) =>
      takeSnapshot(
        status([gpu(0, { state: 'unattributed' })]),
        [],
        { ...document, kernels: [kernel({ busy })] },
        NOW
      ).hosts[0].gpus[0];
    expect(take(false)).toMatchObject({
      state: 'idle-kernel',
      kernel: 'k1',
      heldS: 600
    });
    expect(take(true).state).toBe('running');
  });

  it('a leased GPU stays its run’s, whatever a kernel does on it', () => {
    const gpus = [gpu(0, { state: 'running', user: 'bob', run: 'x' })];
    const document = { schema_version: 1, gpus: [], kernels: [kernel()] };
    const [held] = takeSnapshot(status(gpus), [], document, NOW).hosts[0].gpus;
    expect(held).toMatchObject({ user: 'bob', kernel: '', mine: false });
  });

  it('without a cluster, this machine’s GPUs are shown', () => {
    const local = {
      index: 0,
      uuid: 'GPU-0',
      name: 'T4',
      memory_bytes: GIB,
      used_bytes: 0,
      utilization: null,
      unattributed_bytes: 5
    };
    const { situation, hosts, counts } = takeSnapshot(
      status([], { cluster: null, gpus: [local], gateway: { state: 'none' } }),
      [],
      null,
      NOW
    );
    expect(situation).toBe('no-cluster');
    expect(hosts[0].gpus[0].state).toBe('unattributed');
    expect(counts).toMatchObject({ total: 1, held: 1, free: 0 });
  });

  it('of a GPU that is divided its MIG instances are shown, below its number', () => {
    const mig = ['a', 'b'].map(letter => ({
      uuid: `MIG-${letter}`,
      name: 'H100 MIG 1g.10gb',
      memory_bytes: 10 * GIB,
      used_bytes: 0,
      unattributed_bytes: letter === 'b' ? 5 : 0
    }));
    const card = {
      index: 3,
      uuid: 'GPU-3',
      name: 'H100',
      memory_bytes: 80 * GIB,
      used_bytes: 0,
      utilization: null,
      unattributed_bytes: 5,
      mig
    };
    const gpus = [{ index: 3, uuid: 'MIG-a', used_bytes: 1, pids: [7] }];
    const { hosts, counts } = takeSnapshot(
      status([], { cluster: null, gpus: [card], gateway: { state: 'none' } }),
      [],
      { schema_version: 1, gpus: [], kernels: [kernel({ gpus })] },
      NOW
    );
    expect(
      hosts[0].gpus.map(gpu => [
        gpu.index,
        gpu.name,
        gpu.sliceOf,
        gpu.memoryBytes,
        gpu.state
      ])
    ).toEqual([
      ['MIG-a', 'H100 MIG 1g.10gb', '3', 10 * GIB, 'idle-kernel'],
      ['MIG-b', 'H100 MIG 1g.10gb', '3', 10 * GIB, 'unattributed']
    ]);
    expect(counts.total).toBe(2);
  });

  it.each([
    ['unreachable', 'gateway-down'],
    ['refused', 'refused'],
    ['connected', 'no-gpu']
  ] as const)('gateway %s: %s', (state, situation) => {
    const document = status([], { gateway: { state } });
    expect(takeSnapshot(document, [], null, NOW).situation).toBe(situation);
  });

  it('a silent gateway: what was heard of last, and how old it is', () => {
    const document = status([gpu(0, { state: 'running', user: 'grace' })], {
      gateway: { state: 'unreachable', age_s: 40 }
    });
    const snapshot = takeSnapshot(document, [], null, NOW);
    expect(snapshot).toMatchObject({ staleS: 40, at: NOW - 40 });
    expect(snapshot.hosts[0].gpus[0].user).toBe('grace');
  });

  it('durations count from the moment at which the gateway said them, not from when they were asked for', () => {
    const document = status([gpu(0)], {
      gateway: { state: 'connected', age_s: 4 }
    });
    const snapshot = takeSnapshot(document, [], null, NOW);
    expect(snapshot).toMatchObject({ staleS: 0, at: NOW - 4 });
  });

  it('runs that go on come first, with their newest state', () => {
    const runs = [
      run('old', { state: 'succeeded', submitted_at: 3000 }),
      run('waits', { state: 'queued', submitted_at: 2000 }),
      run('goes', { state: 'queued', submitted_at: 1000 })
    ];
    const live = [{ ...runs[2], state: 'running', held_s: 7 } as const];
    const snapshot = takeSnapshot(status([], {}, live), runs, null, NOW);
    expect(snapshot.runs.map(row => row.run)).toEqual(['goes', 'waits', 'old']);
    expect(snapshot.runs[0]).toMatchObject({ state: 'running', held_s: 7 });
  });
});
