import {
  act,
  fireEvent,
  render,
  screen,
  waitFor,
  within
} from '@testing-library/react';
import { nullTranslator } from '@jupyterlab/translation';
import * as React from 'react';
import { MagicForm, offerOf } from '../src/cells/form';
import { NO_OPTIONS, readMagic } from '../src/cells/magic';
import { ActionRunner } from '../src/model/actions';
import { beganAt, groupSweeps } from '../src/model/sweeps';
import { IClusterStart, IRunRow } from '../src/model/types';
import { GpuModel } from '../src/model/model';
import { ISnapshot, NOTHING, Situation } from '../src/model/snapshot';
import { Gpus } from '../src/view/gpus';
import { ROW } from '../src/view/list/row-heights';
import { Queue, queueHeight } from '../src/view/queue';
import { Runs } from '../src/view/runs';
import { SituationView } from '../src/view/empty-states';
import { Summary } from '../src/view/summary';
import { NotifyForm } from '../src/plugins/notify';
import { INotifyChange } from '../src/model/types';
import { Usage, usageHeight } from '../src/view/usage';
import { Age } from '../src/view/widgets';
import { FakeApi, gpu, run, status } from './samples';

const trans = nullTranslator.load('');
const arrangement = {
  grouping: 'node' as const,
  sorting: 'index' as const,
  onlyMine: false
};

async function known(
  api: FakeApi
): Promise<{ model: GpuModel; runner: ActionRunner }> {
  const model = new GpuModel(api);
  await model.refresh();
  return { model, runner: new ActionRunner(model, api, trans, null) };
}

describe('Gpus', () => {
  it('draws only what is seen of 512 GPUs; keys go everywhere', async () => {
    const api = new FakeApi();
    const gpus = Array.from({ length: 512 }, (_, n) => gpu(n));
    api.answer = status(gpus);
    const parts = await known(api);
    render(
      <Gpus {...parts} trans={trans} arrangement={arrangement} filter="" />
    );
    const items = screen.getAllByRole('treeitem');
    expect(items.length).toBeLessThan(40);
    act(() => items[0].focus());
    fireEvent.keyDown(items[0], { key: 'End' });
    const label = document.activeElement?.getAttribute('aria-label');
    expect(label).toContain('GPU 511');
    fireEvent.keyDown(document.activeElement!, { key: 'ArrowLeft' });
    expect(document.activeElement?.getAttribute('aria-level')).toBe('1');
    fireEvent.keyDown(document.activeElement!, { key: 'ArrowLeft' });
    expect(screen.getAllByRole('treeitem')).toHaveLength(1);
    parts.model.dispose();
  });

  it('says state, holder and use in words, and offers Release on my warm GPU', async () => {
    const api = new FakeApi();
    const mine = { user: 'ada', run: 'r1', lease: 'L1', notebook: 'a.ipynb' };
    api.answer = status([
      gpu(0, { state: 'warm', ...mine }),
      gpu(1, { state: 'warm', user: 'bob', run: 'r2' })
    ]);
    const parts = await known(api);
    render(
      <Gpus {...parts} trans={trans} arrangement={arrangement} filter="" />
    );
    const row = screen.getByRole('treeitem', {
      name: /GPU 0, Warm, you/
    });
    fireEvent.click(within(row).getByRole('button', { name: 'Release' }));
    expect(api.calls).toContain('release L1');
    fireEvent.click(within(row).getByRole('button', { name: 'Extend' }));
    const said = () => [...parts.model.feedback.values()].map(f => f.text);
    await waitFor(() => expect(said()[0]).toMatch(/^Kept until .*\d:00:00/));
    expect(api.calls).toContain('extend L1 1800');
    const others = screen.getByRole('treeitem', { name: /GPU 1/ });
    expect(within(others).queryByRole('button')).toBeNull();
    parts.model.dispose();
  });
});

describe('A GPU that is shared', () => {
  it('names everybody with a part of it, and counts once', async () => {
    const api = new FakeApi();
    const parts = [
      { run: 'r1', user: 'bob', gpus: 0.5 },
      { run: 'r2', user: 'ada', gpus: 0.25 }
    ];
    const first = { user: 'bob', run: 'r1', parts };
    api.answer = status([gpu(0, { state: 'running', ...first }), gpu(1)]);
    const found = await known(api);
    render(
      <Gpus {...found} trans={trans} arrangement={arrangement} filter="" />
    );
    screen.getByRole('treeitem', { name: /GPU 0, .*bob 0.5, you 0.25/ });
    screen.getByText('1 of 2 free');
    const { hosts, counts } = found.model.snapshot;
    expect(hosts[0].gpus[0]).toMatchObject({ mine: true, run: 'r2' });
    expect(counts.mine).toBe(0.25);
    found.model.dispose();
  });
});

describe('Runs', () => {
  const opened = jest.fn();
  const shown = async (row: IRunRow) => {
    const api = new FakeApi();
    api.rows = [row];
    api.answer = status([], {}, row.finished_at ? [] : [row]);
    const parts = await known(api);
    const runner = new ActionRunner(parts.model, api, trans, null, opened);
    render(
      <Runs model={parts.model} runner={runner} trans={trans} filter="" />
    );
    parts.model.dispose();
    return screen.getByRole('treeitem');
  };

  it('a receipt: held, free after; its page is a click or a key away', async () => {
    const item = await shown(
      run('r1', {
        state: 'succeeded',
        gone_at: 1062,
        finished_at: 1063,
        release_ms: 31.4,
        results: [{ name: 'model', type: 'Net', bytes: 2048 }]
      })
    );
    expect(item.textContent).toContain('free after 31 ms');
    fireEvent.keyDown(item, { key: 'Enter' });
    fireEvent.click(screen.getByText('digits.ipynb'));
    expect(opened.mock.calls).toEqual([['r1'], ['r1']]);
  });

  it('a failure: the error', async () => {
    const error = { ename: 'ValueError', evalue: 'no' };
    const item = await shown(
      run('r1', { state: 'failed', finished_at: 1063, error })
    );
    expect(item.textContent).toContain('ValueError: no');
  });

  it('the trials of a sweep: one row that opens, and one cancel', async () => {
    const api = new FakeApi();
    const trial = (id: string, more: Partial<IRunRow>) =>
      run(id, { sweep: 's1', name: `widths ${id}`, notebook: '', ...more });
    const queued = trial('2', {
      state: 'queued',
      held_s: 0,
      granted_at: null
    });
    const ended = trial('1', { state: 'succeeded', finished_at: 1063 });
    api.rows = [run('r9', { title: 'later' }), queued, ended, run('r1')];
    api.answer = status([gpu(0)], {}, [queued]);
    const parts = await known(api);
    const runner = new ActionRunner(parts.model, api, trans, null, opened);
    render(
      <Runs model={parts.model} runner={runner} trans={trans} filter="" />
    );
    expect(screen.getAllByRole('treeitem')).toHaveLength(3);
    const sweep = screen.getByRole('treeitem', { name: /^widths/ });
    expect(sweep.textContent).toContain('1 queued, 1 succeeded');
    fireEvent.click(within(sweep).getByText('widths'));
    const levels = screen
      .getAllByRole('treeitem')
      .map(item => item.getAttribute('aria-level'));
    expect(levels.sort()).toEqual(['1', '1', '1', '2', '2']);
    fireEvent.click(within(sweep).getByRole('button', { name: 'Cancel' }));
    expect(api.calls).toContain('cancel s1'); // nothing runs: no question
    expect(beganAt([queued, trial('3', { granted_at: 1005 })])).toBe(1005);
    expect(beganAt([queued])).toBe(1000);
    parts.model.dispose();
  });

  it('a detached sweep goes on as long as its driver, which is no trial', () => {
    const driver = run('s1', { sweep: 's1', name: 'widths', detached: true });
    const over = run('1', {
      sweep: 's1',
      name: 'widths 1',
      state: 'succeeded'
    });
    expect(groupSweeps([driver])).toEqual([{ row: driver, trials: [] }]);
    const [group] = groupSweeps([over, driver]);
    expect(group.trials).toEqual([over]);
    expect(group.row).toMatchObject({
      run: 's1',
      state: 'running',
      title: 'widths',
      detached: true
    });
  });
});

describe('Queue', () => {
  it('position, reason, estimate; Cancel on mine only', async () => {
    const api = new FakeApi();
    const row = (user: string, position: number) =>
      run(`q${position}`, {
        user,
        state: 'queued',
        gpus: 2,
        position,
        reason: 'waits for 2 GPUs',
        start_estimate_s: 720
      });
    const document = status([gpu(0)]);
    document.cluster!.queue = [row('bob', 1), row('ada', 2)];
    api.answer = document;
    const parts = await known(api);
    render(<Queue {...parts} trans={trans} filter="" />);
    const [first, second] = screen.getAllByRole('treeitem');
    expect(first.textContent).toContain('starts in about 12 min');
    expect(within(first).queryByRole('button')).toBeNull();
    fireEvent.click(within(second).getByRole('button', { name: 'Cancel' }));
    expect(api.calls).toContain('cancel q2'); // waits: nothing is lost, so no question
    parts.model.dispose();
  });
});

describe('several queues', () => {
  it('who waits stands below the queue, with what it uses and is due', async () => {
    const api = new FakeApi();
    const row = (user: string, queue: string, position: number) =>
      run(`${user}-${queue}`, {
        user,
        queue,
        state: 'queued',
        gpus: 2,
        position,
        reason: `${position} in ${queue}`
      });
    const share = (name: string, leaf = true) => ({
      name,
      parent: name === 'vision' ? 'research' : '',
      leaf,
      usable: true,
      guaranteed: name === 'vision' ? 2 : 0,
      max: null,
      used: 3,
      fair_share: 4,
      waiting_runs: 1,
      waiting_gpus: 2
    });
    const document = status([gpu(0)]);
    document.cluster!.queues = [
      share('research', false),
      share('vision'),
      share('idle'),
      {
        ...share('text'),
        by_type: [
          { gpu_type: 'h100', guaranteed: 2, max: null, used: 1, fair_share: 2 }
        ]
      }
    ];
    document.cluster!.queue = [
      row('bob', 'text', 1),
      row('ada', 'vision', 1),
      row('ada', 'gone', 1)
    ];
    api.answer = document;
    const parts = await known(api);
    render(<Queue {...parts} trans={trans} filter="" />);
    const items = screen.getAllByRole('treeitem');
    const height = queueHeight(parts.model.snapshot);
    expect(height).toBeGreaterThanOrEqual(items.length * ROW); // none is cut off
    expect(items.map(item => item.getAttribute('aria-level'))).toEqual([
      '1',
      '2',
      '1',
      '2',
      '1'
    ]);
    expect(items.map(item => item.textContent)).toEqual([
      'research › vision1 queued3 GPUs used · guaranteed 2 · fair share 4',
      '1you2 GPUs1 in vision',
      'text1 queued3 GPUs used · fair share 4 · h100: 1 of 2',
      '1bob2 GPUs1 in text',
      '1you2 GPUsgone · 1 in gone'
    ]);
    expect(items[0].getAttribute('aria-label')).toContain(
      'vision, 1 queued, 3 GPUs'
    );
    parts.model.dispose();
  });
});

describe('situations', () => {
  const all: [Situation, RegExp][] = [
    ['loading', /Looking/],
    ['no-cluster', /jupyter gpu start/],
    ['no-gpu', /no GPUs/],
    ['gateway-down', /Running cells go on/],
    ['refused', /refuses/],
    ['not-permitted', /Not permitted/],
    ['not-enabled', /server extension enable/],
    ['offline', /No contact/]
  ];

  it.each(all)('%s', (situation, words) => {
    const { container } = render(
      <SituationView
        snapshot={{ ...NOTHING, situation }}
        trans={trans}
        onRetry={() => undefined}
        onStart={() => undefined}
      />
    );
    expect(container.textContent).toMatch(words);
  });

  it('calls old only what is shown', () => {
    const draw = (more: Partial<ISnapshot>) =>
      render(
        <SituationView
          snapshot={{ ...NOTHING, situation: 'offline', ...more }}
          trans={trans}
          onRetry={() => undefined}
          onStart={() => undefined}
        />
      ).container.textContent;
    expect(draw({})).toMatch(/Runs on a cluster go on/);
    expect(draw({})).not.toMatch(/out of date/);
    expect(draw({ runs: [run('a')] })).toMatch(/may be out of date/);
  });

  it('starts a cluster where that is possible, and nowhere else', () => {
    const asked: string[] = [];
    const draw = (start: IClusterStart | null, more = {}) => (
      <SituationView
        snapshot={{ ...NOTHING, situation: 'no-cluster', start, ...more }}
        trans={trans}
        onRetry={() => undefined}
        onStart={() => asked.push('start')}
      />
    );
    const { container, rerender } = render(
      draw({ state: 'possible' }, { mayAct: true })
    );
    fireEvent.click(screen.getByRole('button', { name: 'Start' }));
    expect(asked).toEqual(['start']);
    rerender(draw({ state: 'possible' }, { mayAct: false }));
    expect(screen.queryByRole('button', { name: 'Start' })).toBeNull();
    rerender(
      draw({ state: 'starting', step: 'starting Ray', elapsed_s: 3 }, { at: 1 })
    );
    expect(container.textContent).toMatch(/is starting.*Starting Ray · /);
    const failed = { message: 'no room', mend: 'run `jupyter gpu gc`' };
    rerender(draw({ state: 'failed', ...failed }, { mayAct: true }));
    expect(container.textContent).toContain('No room; run jupyter gpu gc.');
    expect(screen.getByRole('button', { name: 'Try again' })).toBeTruthy();
    rerender(draw({ state: 'refused', message: 'this server uses another' }));
    expect(container.textContent).toContain('This server uses another.');
    expect(screen.queryByRole('button')).toBeNull();
  });

  it('none when all is well', () => {
    const { container } = render(
      <SituationView
        snapshot={{ ...NOTHING, situation: 'ready' }}
        trans={trans}
        onRetry={() => undefined}
        onStart={() => undefined}
      />
    );
    expect(container.textContent).toBe('');
  });
});

describe('Summary', () => {
  it('says that GPUs are simulated', () => {
    render(
      <Summary snapshot={{ ...NOTHING, simulated: true }} trans={trans} />
    );
    expect(screen.getByText('simulated')).toBeTruthy();
  });
});

describe('Usage', () => {
  const nothing = { held_s: 0, used_s: 0, saved_s: 0, others_s: 0 };
  const hours = (held: number) => ({ ...nothing, held_s: held * 3600 });

  it('shows the days of all; each user’s week only where it is told', () => {
    const days = [1, 2].map(day => ({
      since: Date.UTC(2026, 10, 15 + day) / 1000,
      own: hours(1),
      all: hours(8 * day),
      capacity_s: 96 * 3600
    }));
    const usage = { today: hours(1), week: hours(2), days };
    const { container, rerender } = render(
      <Usage usage={usage} me="ada" trans={trans} />
    );
    expect(screen.getAllByRole('listitem')).toHaveLength(2);
    expect(container.textContent).toContain(
      'all users: 24 h held · 13 % of what the cluster had'
    );
    expect(container.textContent).toContain('all held 16 h and used 0 h');
    expect(screen.queryByText('User, 7 days')).toBeNull();
    const users = { bob: hours(3), ada: hours(21) };
    rerender(<Usage usage={{ ...usage, users }} me="ada" trans={trans} />);
    const rows = screen.getAllByRole('row').map(row => row.textContent);
    expect(rows.slice(-2)).toEqual(['you21 h0 h0 h', 'bob3 h0 h0 h']);
    expect(usageHeight({ ...usage, users })).toBeGreaterThan(
      usageHeight(usage)
    );
  });
});

describe('the form', () => {
  it('offers the cluster’s choices, and shows the line that it makes', async () => {
    const api = new FakeApi();
    api.answer = status([gpu(0)], {
      choices: { queues: ['default', 'research'], options: ['gpus', 'queue'] }
    });
    const { model } = await known(api);
    const offer = offerOf(model.snapshot);
    const line = { options: { ...NO_OPTIONS }, rest: ['--fresh'] };
    render(
      <MagicForm
        line={line}
        offer={offer}
        trans={trans}
        onChange={() => undefined}
      />
    );
    expect(screen.queryByLabelText(/Keep warm/)).toBeNull();
    fireEvent.change(screen.getByLabelText('Queue'), {
      target: { value: 'research' }
    });
    fireEvent.change(screen.getByLabelText('GPUs'), { target: { value: '1' } });
    expect(
      screen.getByText('%%gpu_train --gpus 1 --queue research --fresh')
    ).toBeTruthy();
    expect(screen.getByText('1 of 1 free now')).toBeTruthy();
    expect(screen.queryByText(/price/)).toBeNull();
    model.dispose();
  });

  it('offers the named environments, and keeps one that the cell names', async () => {
    const api = new FakeApi();
    api.answer = status([gpu(0)], {
      choices: { environments: ['text', 'vision'] }
    });
    const { model } = await known(api);
    const offered = offerOf(model.snapshot);
    const show = (environments: string[], source: string) =>
      render(
        <MagicForm
          line={readMagic(source)}
          offer={{ ...offered, environments }}
          trans={trans}
          onChange={() => undefined}
        />
      );
    const words = () =>
      Array.from(screen.getByLabelText('Environment').children).map(
        option => option.textContent
      );
    const first = show(offered.environments, 'x');
    expect(words()).toEqual([
      'the notebook’s packages',
      'text',
      'vision',
      'the cluster’s own packages'
    ]);
    fireEvent.change(screen.getByLabelText('Environment'), {
      target: { value: 'vision' }
    });
    expect(screen.getByText('%%gpu_train --environment vision')).toBeTruthy();
    first.unmount();
    const second = show([], '%%gpu_train --environment gone\nx');
    expect(words()).toContain('gone');
    second.unmount();
    show([], 'x');
    expect(screen.queryByLabelText('Environment')).toBeNull();
    model.dispose();
  });

  it('says what the cell would cost while one types', () => {
    const prices = {
      hourly: { '': 2.5, 'NVIDIA A100-SXM4-80GB': 1, 'NVIDIA H100 NVL': 2.5 },
      unit: 'EUR',
      warn_above: 20
    };
    const offer = {
      ...{
        mostGpus: 8,
        freeGpus: 8,
        types: [],
        queues: [],
        environments: [],
        options: null
      },
      prices
    };
    const line = readMagic('%%gpu_train --gpu-type a100\n');
    render(
      <MagicForm {...{ line, offer, trans, onChange: () => undefined }} />
    );
    const set = (label: string, value: string) =>
      fireEvent.change(screen.getByLabelText(label), { target: { value } });
    expect(screen.getByText('price: 1 EUR an hour')).toBeTruthy();
    set('GPU type', '');
    set('GPUs', '4');
    set('Time limit', '1h30m');
    expect(
      screen.getByText('price: 10 EUR an hour, at most 15 EUR')
    ).toBeTruthy();
    set('Time limit', '3h');
    expect(screen.getByText(/more than 20 EUR, is all of it/)).toBeTruthy();
    set('GPUs', '0');
    expect(screen.queryByText(/price/)).toBeNull();
  });
});

describe('NotifyForm', () => {
  it('changes what is touched; a webhook that is set is not shown', () => {
    const document = {
      ...new FakeApi().notifyAnswer,
      email: 'ada@example.org',
      webhook: 'hooks.slack.com',
      deliveries: [
        { channel: 'mail', at: 0 },
        {
          channel: 'webhook',
          at: 0,
          error: 'the webhook answers with HTTP 404'
        }
      ]
    };
    let told: INotifyChange = {};
    const onChange = (change: INotifyChange) => {
      told = change;
    };
    render(<NotifyForm {...{ document, trans, onChange }} />);
    const webhook = screen.getByLabelText<HTMLInputElement>('Webhook');
    expect(webhook.value).toBe('');
    expect(webhook.type).toBe('password');
    expect(webhook.placeholder).toBe('one on hooks.slack.com is set');
    expect(screen.getByText(/HTTP 404/)).toBeTruthy();
    fireEvent.click(screen.getByLabelText('starts after waiting'));
    expect(told).toEqual({ starts: false });
    fireEvent.click(screen.getByLabelText('No longer tell the webhook'));
    fireEvent.change(screen.getByLabelText('E-mail'), {
      target: { value: 'ada@example.com ' }
    });
    expect(told).toEqual({
      starts: false,
      webhook: '',
      email: 'ada@example.com'
    });
  });
});

describe('an age', () => {
  beforeEach(() => void jest.useFakeTimers({ now: 1_000_000 }));
  afterEach(() => void jest.useRealTimers());

  it('counts on while nobody answers, and never back when somebody does', () => {
    const { container, rerender } = render(<Age seconds={10} at={1000} />);
    expect(container.textContent).toBe('10 s');
    act(() => void jest.advanceTimersByTime(30_000));
    expect(container.textContent).toBe('40 s');
    rerender(<Age seconds={39.6} at={1030} />); // the answer took its time
    expect(container.textContent).toBe('40 s');
    rerender(<Age seconds={3} at={1030} />); // another run
    expect(container.textContent).toBe('3 s');
  });
});
