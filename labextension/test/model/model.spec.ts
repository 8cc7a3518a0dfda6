import { nullTranslator } from '@jupyterlab/translation';
import { ApiError } from '../../src/model/api';
import { IRunRow, IServerStatus } from '../../src/model/types';
import { GpuModel } from '../../src/model/model';
import { pauseText } from '../../src/plugins/notifications';
import { FakeApi, gpu, run, status } from '../samples';

const trans = nullTranslator.load('');

describe('GpuModel', () => {
  let api: FakeApi;
  let model: GpuModel;
  let now = 0;

  beforeEach(() => {
    now = 1000;
    api = new FakeApi();
    model = new GpuModel(api, 5000, () => now);
  });

  afterEach(() => model.dispose());

  it('knows nothing before the first answer', async () => {
    expect(model.snapshot.situation).toBe('loading');
    api.answer = status([gpu(0)]);
    await model.refresh();
    expect(model.snapshot.situation).toBe('ready');
    expect(model.snapshot.counts.free).toBe(1);
  });

  it.each([
    [403, 'not-permitted'],
    [404, 'not-enabled'],
    [500, 'offline'],
    [0, 'offline']
  ])('HTTP %d: %s', async (code, situation) => {
    api.answer = new ApiError(code, 'no');
    await model.refresh();
    expect(model.snapshot.situation).toBe(situation);
  });

  it('looks again after an action, also while an older look is on its way', async () => {
    let answer: (document: IServerStatus) => void = () => undefined;
    const older = new Promise<IServerStatus>(resolve => (answer = resolve));
    const look = jest.spyOn(api, 'status').mockReturnValueOnce(older);
    const looking = model.refresh();
    while (look.mock.calls.length === 0) {
      await new Promise(resolve => setTimeout(resolve));
    }
    await model.act('k', 'Doing…', () => Promise.resolve('Done'));
    const shown = model.refresh();
    api.answer = status([gpu(0), gpu(1)]);
    answer(status([gpu(0)]));
    await looking;
    await shown;
    expect(model.snapshot.counts.free).toBe(2);
  });

  it('looks as rarely as the settings can ask for', async () => {
    model.interval = 300_000;
    api.answer = status([gpu(0)]);
    await model.refresh();
    expect(model.snapshot.situation).toBe('ready');
  });

  it('keeps what it knew while there is no contact, and comes back', async () => {
    api.answer = status([gpu(0)]);
    await model.refresh();
    api.answer = new ApiError(0, 'gone');
    await model.refresh();
    expect(model.snapshot).toMatchObject({ situation: 'offline' });
    expect(model.snapshot.hosts).toHaveLength(1);
    api.answer = status([gpu(0)]);
    await model.refresh();
    expect(model.snapshot.situation).toBe('ready');
  });

  it('shows nothing any more once it may not', async () => {
    api.answer = status([gpu(0)]);
    await model.refresh();
    api.answer = new ApiError(403, 'no');
    await model.refresh();
    expect(model.snapshot.hosts).toEqual([]);
  });

  it('asks for runs when a GPU is kept after one that it never saw active', async () => {
    const asked = () => api.calls.filter(call => call === 'runs').length;
    api.answer = status([gpu(0)]);
    await model.refresh();
    expect(asked()).toBe(1);
    api.answer = status([gpu(0, { state: 'warm', run: 'short' })]);
    await model.refresh();
    await model.refresh();
    expect(asked()).toBe(2);
  });

  it('asks for runs only when a run changed', async () => {
    const mine = run('r1');
    api.rows = [mine];
    api.answer = status([gpu(0)], {}, [mine]);
    await model.refresh();
    await model.refresh();
    expect(api.calls.filter(call => call === 'runs')).toHaveLength(1);
    api.answer = status([gpu(0)], {}, []);
    await model.refresh();
    expect(api.calls.filter(call => call === 'runs')).toHaveLength(2);
  });

  it('asks for kernels only where this machine has GPUs', async () => {
    api.answer = status([gpu(0)]);
    await model.refresh();
    expect(api.calls).not.toContain('kernels');
  });

  it('tells of the end of a run once, and only of one that it saw alive', async () => {
    const ended: string[] = [];
    model.ended.connect((_, { run: row }) => ended.push(row.run));
    const mine = run('r1');
    api.rows = [mine, run('r0', { state: 'failed' })];
    api.answer = status([gpu(0)], {}, [mine]);
    await model.refresh();
    api.rows = [{ ...mine, state: 'succeeded' }, api.rows[1]];
    api.answer = status([gpu(0)]);
    await model.refresh();
    now += 60;
    await model.refresh();
    expect(ended).toEqual(['r1']);
  });

  it('tells each time that a run of mine was preempted', async () => {
    const told: string[] = [];
    model.paused.connect((_, row) => told.push(pauseText(trans, row)));
    const mine = run('r1', { title: 'fit()' });
    const states: [string, string[]][] = [
      ['running', []],
      ['queued', ['preempted for bob at epoch 37']],
      ['running', ['preempted for bob at epoch 37, waited 2 s']],
      ['queued', ['…', 'the node gpu3 is gone: again from epoch 40']]
    ];
    for (const [state, earlier] of states) {
      const row = { ...mine, state: state as IRunRow['state'], earlier };
      api.rows = [row];
      api.answer = status([gpu(0)], {}, [row]);
      await model.refresh();
    }
    expect(told).toEqual([
      'fit(): preempted for bob at epoch 37. It goes on later.',
      'fit(): the node gpu3 is gone: again from epoch 40. It goes on later.'
    ]);
  });

  it('records utilisation for the sparklines', async () => {
    for (const utilization of [0.1, 0.9]) {
      api.answer = status([gpu(0, { utilization })]);
      await model.refresh();
      now += 5;
    }
    expect(model.history.of('n1/0').map(({ value }) => value)).toEqual([
      0.1, 0.9
    ]);
  });

  it('shows progress and result of an action where it was asked for', async () => {
    const seen: string[] = [];
    model.stateChanged.connect(() => {
      const said = model.feedback.get('k');
      if (said) {
        seen.push(`${said.kind} ${said.text}`);
      }
    });
    await model.act('k', 'Doing…', () => Promise.resolve('Done'));
    const refused = new ApiError(409, 'it is gone', 'look again');
    const isDone = await model.act('k', 'Doing…', () =>
      Promise.reject(refused)
    );
    expect(isDone).toBe(false);
    expect([...new Set(seen)]).toEqual([
      'busy Doing…',
      'ok Done',
      'error it is gone: look again'
    ]);
  });

  it('an event makes it look; many at once make it look once more', async () => {
    jest.useFakeTimers();
    try {
      api.answer = status([gpu(0)]);
      for (let i = 0; i < 20; i++) {
        model.nudge();
      }
      await jest.advanceTimersByTimeAsync(1000);
      const looks = api.calls.filter(call => call === 'status').length;
      expect(looks).toBeGreaterThanOrEqual(1);
      expect(looks).toBeLessThanOrEqual(3);
    } finally {
      jest.useRealTimers();
    }
  });

  it('sees an end and the start after it at once, and of many changes five a second', async () => {
    jest.useFakeTimers();
    try {
      const looks = () => api.calls.filter(call => call === 'status').length;
      api.answer = status([gpu(0)]);
      const passes = async (ms: number) => {
        now += ms / 1000;
        await jest.advanceTimersByTimeAsync(ms);
      };
      for (const expected of [1, 2, 3, 4, 5, 5]) {
        model.nudge();
        await passes(20);
        expect(looks()).toBe(expected);
      }
      await passes(200);
      expect(looks()).toBe(6);
      for (let passed = 0; passed < 10_000; passed += 20) {
        model.nudge();
        await passes(20);
      }
      expect(looks()).toBeLessThanOrEqual(6 + 51);
    } finally {
      jest.useRealTimers();
    }
  });

  it('takes one look at a time: no older answer is shown last', async () => {
    jest.useFakeTimers();
    try {
      let answer: (document: IServerStatus) => void = () => undefined;
      const older = new Promise<IServerStatus>(resolve => (answer = resolve));
      model.interval = 100;
      model.start();
      await jest.advanceTimersByTimeAsync(10);
      for (let looks = 1; looks < 5; looks++) {
        model.nudge();
        await jest.advanceTimersByTimeAsync(10); // five looks: the next one is not at once
      }
      const look = jest.spyOn(api, 'status').mockReturnValueOnce(older);
      api.answer = status([gpu(0), gpu(1)]);
      model.nudge(); // it is due while the look that comes by itself is on its way
      await jest.advanceTimersByTimeAsync(120);
      expect(look).toHaveBeenCalledTimes(1);
      model.interval = 300_000;
      await jest.advanceTimersByTimeAsync(400);
      answer(status([gpu(0)]));
      await jest.advanceTimersByTimeAsync(1000);
      expect(model.snapshot.counts.free).toBe(2);
    } finally {
      jest.useRealTimers();
    }
  });

  it('asks again soon for runs that it did not get, however rarely it looks', async () => {
    jest.useFakeTimers();
    try {
      const mine = run('r1');
      api.rows = [mine];
      api.answer = status([gpu(0)], {}, [mine]);
      jest.spyOn(api, 'runs').mockRejectedValueOnce(new ApiError(503, 'gone'));
      model.interval = 300_000;
      model.nudge();
      await jest.advanceTimersByTimeAsync(500);
      expect(model.snapshot.active).toHaveLength(1);
      expect(model.snapshot.runs).toEqual([]);
      await jest.advanceTimersByTimeAsync(1000);
      expect(model.snapshot.runs).toHaveLength(1);
      await jest.advanceTimersByTimeAsync(10_000);
      expect(api.calls.filter(call => call === 'status')).toHaveLength(2);
    } finally {
      jest.useRealTimers();
    }
  });
});
