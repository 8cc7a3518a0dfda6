import { nullTranslator } from '@jupyterlab/translation';
import { refusal } from '../src/api';
import { arrange, IArrangement, matches } from '../src/arrange';
import { readMagic, writeMagic } from '../src/cells/magic';
import { serverPath } from '../src/cells/paths';
import { cullOf } from '../src/events';
import {
  formatBytes,
  formatCountdown,
  formatDuration,
  formatGpuHours,
  formatShare
} from '../src/format';
import { sparklinePoints, UtilizationHistory } from '../src/history';
import {
  cardActions,
  losesWork,
  queueActions,
  runActions
} from '../src/permitted';
import { takeSnapshot } from '../src/snapshot';
import { usageOf } from '../src/usage';
import { shareOut } from '../src/view/share';
import { positions, windowOf } from '../src/view/window';
import { CardState } from '../src/documents';
import { cardWord } from '../src/words';
import { active, GIB, gpu, kernel, run, status } from './samples';

const trans = nullTranslator.load('');
const NOW = 10_000;

describe('format', () => {
  it.each([
    [0, '0 B'],
    [1536, '1.5 KiB'],
    [80 * GIB, '80 GiB'],
    [12.34 * GIB, '12.3 GiB']
  ])('%d bytes', (bytes, text) => expect(formatBytes(bytes)).toBe(text));

  it('shares are in the unit of the whole', () => {
    expect(formatShare(512 * 2 ** 20, 80 * GIB)).toBe('0.5 / 80 GiB');
  });

  it.each([
    [59.9, '59 s'],
    [60, '1 min'],
    [3900, '1 h 05 min'],
    [2 * 86400 + 3 * 3600, '2 d 3 h'],
    [-5, '0 s']
  ])('%d s', (s, text) => expect(formatDuration(s)).toBe(text));

  it('counts down and never below zero', () => {
    expect(formatCountdown(244.2)).toBe('4:05');
    expect(formatCountdown(3723)).toBe('1:02:03');
    expect(formatCountdown(-3)).toBe('0:00');
  });

  it('GPU-hours', () => {
    expect(formatGpuHours(0)).toBe('0 h');
    expect(formatGpuHours(90)).toBe('2 min');
    expect(formatGpuHours(8100)).toBe('2.3 h');
    expect(formatGpuHours(72_000)).toBe('20 h');
  });
});

describe('history', () => {
  it('keeps the last minutes, and forgets cards that are gone', () => {
    const history = new UtilizationHistory(300);
    for (let at = 0; at <= 600; at += 100) {
      history.record(at, [
        ['a', at / 1000],
        ['b', at < 300 ? 0.5 : null]
      ]);
    }
    expect(history.of('a').map(({ at }) => at)).toEqual([300, 400, 500, 600]);
    history.record(700, [['a', 1]]);
    expect(history.of('b')).toEqual([]);
  });

  it('draws from left to right, busy is up', () => {
    const samples = [
      { at: 0, value: 0 },
      { at: 150, value: 1 },
      { at: 300, value: 0.5 }
    ];
    expect(sparklinePoints(samples, 300, 40, 10)).toBe(
      '0.0,10.0 20.0,0.0 40.0,5.0'
    );
    expect(sparklinePoints(samples.slice(1, 2), 300, 40, 10)).toBe('');
  });
});

describe('window', () => {
  it('holds what is seen, and no more than a few rows around it', () => {
    const rows = Array.from({ length: 1000 }, () => ({ height: 40 }));
    const tops = positions(rows);
    const [first, last] = windowOf(tops, 10_000, 400);
    expect(first).toBeLessThanOrEqual(250);
    expect(last).toBeGreaterThanOrEqual(260);
    expect(last - first).toBeLessThan(20);
    expect(windowOf(tops, 0, 400)[0]).toBe(0);
    expect(windowOf(tops, 39_600, 400)[1]).toBe(1000);
    expect(windowOf([0], 0, 400)).toEqual([0, 0]);
  });

  it('shares the height: small ones get all, the others the rest', () => {
    expect(shareOut([500, 42, 800], 642)).toEqual([300, 42, 300]);
    expect(shareOut([100, 42], 642)).toEqual([100, 542]);
    expect(shareOut([], 642)).toEqual([]);
  });
});

describe('snapshot', () => {
  it('joins cards with runs: notebook, cell, age', () => {
    const mine = run('r1');
    const cards = [
      gpu(0, { state: 'running', user: 'ada', run: 'r1' }),
      gpu(1)
    ];
    const snapshot = takeSnapshot(
      status(cards, {}, [active(mine, { held_s: 75 })]),
      [mine],
      null,
      NOW
    );
    const [held, free] = snapshot.hosts[0].cards;
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

  it('a card that a local kernel holds is found by its UUID', () => {
    const document = { schema_version: 1, gpus: [], kernels: [kernel()] };
    const take = (busy: boolean) =>
      takeSnapshot(
        status([gpu(0, { state: 'unattributed' })]),
        [],
        { ...document, kernels: [kernel({ busy })] },
        NOW
      ).hosts[0].cards[0];
    expect(take(false)).toMatchObject({
      state: 'idle-kernel',
      kernel: 'k1',
      heldS: 600
    });
    expect(take(true).state).toBe('running');
  });

  it('a leased card stays its run’s, whatever a kernel does on it', () => {
    const cards = [gpu(0, { state: 'running', user: 'bob', run: 'x' })];
    const document = { schema_version: 1, gpus: [], kernels: [kernel()] };
    const [card] = takeSnapshot(status(cards), [], document, NOW).hosts[0]
      .cards;
    expect(card).toMatchObject({ user: 'bob', kernel: '', mine: false });
  });

  it('without a cluster, this machine’s cards are shown', () => {
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
    expect(hosts[0].cards[0].state).toBe('unattributed');
    expect(counts).toMatchObject({ total: 1, held: 1, free: 0 });
  });

  it.each([
    ['unreachable', 'gateway-down'],
    ['refused', 'refused'],
    ['connected', 'no-gpu']
  ] as const)('gateway %s: %s', (state, situation) => {
    const document = status([], { gateway: { state } });
    expect(takeSnapshot(document, [], null, NOW).situation).toBe(situation);
  });

  it('runs that go on come first, with their newest state', () => {
    const runs = [
      run('old', { state: 'succeeded', submitted_at: 3000 }),
      run('waits', { state: 'queued', submitted_at: 2000 }),
      run('goes', { state: 'queued', submitted_at: 1000 })
    ];
    const live = [active(runs[2], { state: 'running', held_s: 7 })];
    const snapshot = takeSnapshot(status([], {}, live), runs, null, NOW);
    expect(snapshot.runs.map(row => row.run)).toEqual(['goes', 'waits', 'old']);
    expect(snapshot.runs[0]).toMatchObject({ state: 'running', held_s: 7 });
  });
});

describe('what may be done', () => {
  const cardOf = (state: CardState, user: string) =>
    takeSnapshot(
      status([gpu(0, { state, user, run: 'r', notebook: 'n.ipynb' })]),
      [],
      null,
      NOW
    ).hosts[0].cards[0];
  const ada = {
    isAdmin: false,
    mayAct: true,
    me: 'ada',
    situation: 'ready' as const
  };

  it('mine: release and extend warm ones, cancel running ones', () => {
    expect(cardActions(cardOf('warm', 'ada'), ada)).toEqual([
      'release',
      'extend',
      'open'
    ]);
    expect(cardActions(cardOf('running', 'ada'), ada)).toEqual([
      'cancel',
      'open'
    ]);
    expect(cardActions(cardOf('free', ''), ada)).toEqual([]);
  });

  it('others’: nothing, unless I am an administrator', () => {
    expect(cardActions(cardOf('warm', 'bob'), ada)).toEqual([]);
    expect(queueActions({ user: 'bob' }, ada)).toEqual([]);
    const admin = { ...ada, isAdmin: true };
    expect(cardActions(cardOf('warm', 'bob'), admin)).toEqual([
      'release',
      'extend'
    ]);
    expect(queueActions({ user: 'bob' }, admin)).toEqual(['cancel']);
  });

  it('nothing where the server forbids it, or the gateway is down', () => {
    const forbidden = { ...ada, mayAct: false };
    expect(cardActions(cardOf('warm', 'ada'), forbidden)).toEqual(['open']);
    const down = { ...ada, situation: 'gateway-down' as const };
    expect(runActions(run('r'), down)).toEqual(['open']);
  });

  it('runs: attach to what goes on, or was detached', () => {
    expect(runActions(run('r'), ada)).toEqual(['cancel', 'attach', 'open']);
    expect(runActions(run('r', { state: 'queued' }), ada)).toEqual([
      'cancel',
      'open'
    ]);
    const done = run('r', { state: 'succeeded' });
    expect(runActions(done, ada)).toEqual(['open']);
    expect(runActions({ ...done, detached: true }, ada)).toEqual([
      'attach',
      'open'
    ]);
  });

  it('work is lost only by what has begun', () => {
    expect(losesWork({ state: 'running' })).toBe(true);
    expect(losesWork({ state: 'queued' })).toBe(false);
    expect(losesWork(undefined)).toBe(false);
  });
});

describe('arrange', () => {
  const plain: IArrangement = {
    grouping: 'node',
    sorting: 'index',
    onlyMine: false
  };
  const cards = [
    gpu(10, { state: 'running', user: 'bob', used_bytes: 5 }),
    gpu(2, { state: 'warm', user: 'ada', used_bytes: 9 }),
    gpu(1, { state: 'running', user: 'bob', utilization: 0.9 })
  ];
  const { hosts } = takeSnapshot(status(cards), [], null, NOW);
  const named = (word: CardState | 'nobody' | 'this-machine') =>
    word === 'nobody' || word === 'this-machine' ? word : cardWord(trans, word);
  const titles = (arrangement: IArrangement, filter = '') =>
    arrange(hosts, arrangement, filter, named).map(group => [
      group.title,
      group.cards.map(card => card.index).join()
    ]);

  it('by node, in the order of numbers', () => {
    expect(titles(plain)).toEqual([['gpu-01', '1,2,10']]);
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
      ['Kept warm', '2']
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

describe('usage', () => {
  it('counts held and used, and as saved what lies between cells of a notebook', () => {
    const day = new Date(2026, 10, 21, 12).getTime() / 1000;
    const at = (from: number, to: number, more = {}) =>
      run(`r${from}`, {
        granted_at: day + from,
        running_at: day + from + 1,
        gone_at: day + to,
        ...more
      });
    const { today, week } = usageOf(
      [
        at(0, 100),
        at(400, 500, { gpus: 2 }),
        at(50, 60, { notebook: 'other.ipynb' }),
        at(-3 * 86400, -3 * 86400 + 10)
      ],
      day + 600
    );
    expect(today).toEqual({ held_s: 310, used_s: 306, saved_s: 600 });
    expect(week.held_s).toBe(320);
  });
});

describe('magic', () => {
  it('puts the line above the code, and reads it back', () => {
    const line = readMagic('x = 1');
    line.options.gpus = '2';
    line.options['gpu-type'] = 'NVIDIA H100';
    const cell = writeMagic('x = 1', line);
    expect(cell).toBe('%%gpu_train --gpus 2 --gpu-type "NVIDIA H100"\nx = 1');
    expect(readMagic(cell).options.gpus).toBe('2');
  });

  it('keeps what the form does not know', () => {
    const cell = '%%gpu_train --out model,x --gpus=1 --fresh\ncode()';
    const line = readMagic(cell);
    expect(line.rest).toEqual(['--out', 'model,x', '--fresh']);
    line.options.gpus = '4';
    expect(writeMagic(cell, line)).toBe(
      '%%gpu_train --gpus 4 --out model,x --fresh\ncode()'
    );
  });

  it('is not fooled by names that begin alike', () => {
    const cell = '%%gpu_trainer\nx';
    expect(writeMagic(cell, readMagic(cell))).toBe(`%%gpu_train\n${cell}`);
  });
});

describe('paths', () => {
  const home = ['', 'home', 'ada'].join('/');
  it.each([
    ['a/b.ipynb', '/data/work', 'a/b.ipynb'],
    ['/data/work/a/b.ipynb', '/data/work', 'a/b.ipynb'],
    [`${home}/work/b.ipynb`, '~/work', 'b.ipynb'],
    [`${home}/b.ipynb`, '~', 'b.ipynb'],
    ['/data/b.ipynb', '/', 'data/b.ipynb']
  ])('%s below %s', (path, root, expected) =>
    expect(serverPath(path, root)).toBe(expected)
  );
});

describe('events', () => {
  const schema_id = 'https://schema.jupyter-gpu-release.org/idle_policy/v1';
  const warn = {
    schema_id,
    action: 'warn',
    kind: 'kernel',
    subject: 'k1',
    reason: 'idle for 42 min',
    due_s: 300,
    path: 'a.ipynb',
    dry_run: false,
    done: false
  };

  it('a warning, what was done, an answer', () => {
    expect(cullOf(warn)).toMatchObject({ phase: 'warning', id: 'k1' });
    const done = { ...warn, action: 'release', done: true };
    expect(cullOf(done)?.phase).toBe('done');
    const answer = {
      schema_id: 'https://schema.jupyter-gpu-release.org/request/v1',
      action: 'keep',
      subject: 'k1',
      user: 'ada'
    };
    expect(cullOf(answer)?.phase).toBe('answered');
  });

  it('nothing that was only tried, or concerns others', () => {
    expect(cullOf({ ...warn, dry_run: true })).toBeNull();
    expect(cullOf({ ...warn, action: 'release', done: false })).toBeNull();
    expect(cullOf({ ...warn, subject: '' })).toBeNull();
    expect(
      cullOf({
        schema_id: schema_id.replace('idle_policy', 'changed'),
        what: 'cluster'
      })
    ).toBeNull();
  });
});

describe('refusals', () => {
  it('say what the server says, whoever wrote it', () => {
    const ours = '{"error": {"message": "not yours", "mend": "ask bob"}}';
    expect(refusal(403, ours)).toMatchObject({
      status: 403,
      message: 'not yours',
      mend: 'ask bob'
    });
    expect(refusal(502, '<html>').message).toBe('HTTP 502');
    expect(refusal(403, '{"message": "Forbidden"}').message).toBe('Forbidden');
  });
});
