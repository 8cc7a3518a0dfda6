import { OutputAreaModel } from '@jupyterlab/outputarea';
import { nullTranslator } from '@jupyterlab/translation';
import { act, render, screen } from '@testing-library/react';
import * as React from 'react';
import { ApiError } from '../src/model/api';
import { IRunRow } from '../src/model/types';
import { GpuModel } from '../src/model/model';
import { RunPageModel } from '../src/run-page/model';
import { applyChanges } from '../src/run-page/output';
import { linesOf } from '../src/run-page/plot';
import { Earlier, fenced, Options, Place } from '../src/run-page/sections';
import { momentsOf } from '../src/run-page/times';
import { Trials } from '../src/run-page/trials';
import { FakeApi, page, run } from './samples';

const trans = nullTranslator.load('');

describe('what a run shows', () => {
  const text = (words: string) => ({
    output_type: 'stream' as const,
    name: 'stdout' as const,
    text: words
  });

  it('text goes on, displays are replaced, what is cleared is gone', () => {
    const model = new OutputAreaModel();
    applyChanges(model, [
      { op: 'add', output: text('lost') },
      { op: 'clear' },
      { op: 'add', output: text('one ') },
      { op: 'add', output: text('two') },
      {
        op: 'add',
        output: { output_type: 'display_data', data: {}, metadata: {} }
      },
      { op: 'set', index: 1, output: text('three') },
      { op: 'set', index: 9, output: text('nowhere') }
    ]);
    expect(model.toJSON().map(output => output.text)).toEqual([
      'one two',
      'three'
    ]);
  });
});

describe('its code', () => {
  it('is fenced so that nothing in it ends the block', () => {
    const code = 'text = """\n````\n"""\n';
    expect(fenced(code)).toBe('`````python\ntext = """\n````\n"""\n`````');
  });
});

describe('its times', () => {
  const labels = (more: object, facts = {}) =>
    momentsOf(page(run('r', more), facts), trans).map(moment => moment.label);

  it('only moments that have been', () => {
    const waits = { state: 'queued', granted_at: null, running_at: null };
    expect(labels(waits)).toEqual(['Queued']);
    expect(labels({ ...waits, state: 'cancelled', gone_at: 1005 })).toEqual([
      'Queued'
    ]);
    const over = { state: 'succeeded', gone_at: 1062, finished_at: 1063 };
    expect(labels(over, { started_at: 1003, ended_at: 1061 })).toEqual([
      'Queued',
      'Got its GPUs',
      'First statement',
      'Last statement',
      'GPUs free',
      'Results saved'
    ]);
  });

  it('what it has held, and its price where the team has prices', () => {
    const over = { gone_at: 1062, finished_at: 1063, release_ms: 90 };
    const note = (more: Partial<IRunRow>) =>
      momentsOf(page(run('r', { state: 'succeeded', ...over, ...more })), trans)
        .filter(moment => moment.label === 'GPUs free')
        .map(moment => moment.note);
    expect(note({ price: '1.3 EUR' })).toEqual(['after 90 ms, price: 1.3 EUR']);
    expect(note({})).toEqual(['after 90 ms']);
  });
});

describe('what is beside its output', () => {
  it('says in which Python it ran, and with which packages', () => {
    const packages = {
      torch: '2.4',
      einops: '0.8.1 sha256:12',
      lost: 'absent',
      mine: 'files:12'
    };
    const shown = page(run('r'), {
      environment: { python: '3.11.7', packages, digest: 'abcdef'.repeat(5) },
      options: { environment: 'vision' }
    });
    const { rerender } = render(<Place page={shown} trans={trans} />);
    expect(screen.getByText('einops 0.8.1, mine, torch 2.4')).toBeTruthy();
    expect(screen.getByText('vision · abcdefabcdef')).toBeTruthy();
    rerender(<Place page={page(run('r'))} trans={trans} />);
    expect(screen.queryByText('Packages')).toBeNull();
    expect(screen.queryByText('Environment')).toBeNull();
  });

  it('says why it was off its GPUs, and quotes options as a cell takes them', () => {
    const why = ['preempted for bob at epoch 37, waited 2 s'];
    const shown = page(run('r', { earlier: why }), {
      options: { name: 'fit it', gpus: '2', restartable: '' }
    });
    render(<Earlier page={shown} trans={trans} />);
    expect(screen.getByRole('heading').textContent).toBe('Went on once');
    expect(screen.getByRole('listitem').textContent).toBe(why[0]);
    const waits = page(run('r', { earlier: why, state: 'queued' }));
    render(<Earlier page={waits} trans={trans} />);
    expect(screen.getByText('Goes on later')).toBeTruthy();
    const { container } = render(<Options page={shown} trans={trans} />);
    const options = [...container.querySelectorAll('code')];
    expect(options.map(option => option.textContent)).toEqual([
      '--name "fit it"',
      '--gpus 2',
      '--restartable'
    ]);
  });
});

describe('the plot', () => {
  it('a step for each value; a gap where nothing was told', () => {
    expect(linesOf([0, 100, null, 50], 40, 10)).toEqual([
      '0.0,10.0 10.0,10.0 10.0,0.0 20.0,0.0',
      '30.0,5.0 40.0,5.0'
    ]);
    expect(linesOf([null], 40, 10)).toEqual([]);
  });
});

describe('RunPageModel', () => {
  beforeEach(() => {
    jest.useFakeTimers();
  });
  afterEach(() => {
    jest.useRealTimers();
  });

  it('looks while the run goes on, until its record is whole', async () => {
    const api = new FakeApi();
    const gpus = new GpuModel(api);
    api.pageAnswer = new Error('the gateway is away');
    const model = new RunPageModel('r', api, gpus);
    const passed = (ms: number) =>
      act(async () => void (await jest.advanceTimersByTimeAsync(ms)));
    const asked = () => api.calls.filter(call => call === 'page r').length;
    await passed(0);
    expect([model.problem, model.isAway]).toEqual([
      'the gateway is away',
      true
    ]);
    api.rows = [run('r', { title: 'fit' })];
    void gpus.refresh();
    await passed(10);
    expect(model.row?.title).toBe('fit'); // the list has its name
    api.pageAnswer = page(run('r'));
    gpus.stateChanged.emit(undefined);
    gpus.stateChanged.emit(undefined);
    await passed(2000);
    expect([model.problem, model.isAway]).toEqual(['', false]);
    const before = asked();
    const over = run('r', { state: 'succeeded', finished_at: 1063 });
    api.pageAnswer = page(over, { started_at: 1003 });
    gpus.stateChanged.emit(undefined);
    await passed(1000 + 1000 + 2000 + 4000); // on a slow store
    api.pageAnswer = page(over, { started_at: 1003, ended_at: 1060 });
    await passed(60_000);
    gpus.stateChanged.emit(undefined);
    await passed(60_000);
    expect(model.page?.ended_at).toBe(1060);
    expect(asked()).toBe(before + 5);
    model.dispose();
    gpus.dispose();
  });

  it('looks only while it is seen, and stops where it is refused', async () => {
    const api = new FakeApi();
    const gpus = new GpuModel(api);
    let isSeen = false;
    api.pageAnswer = page(run('r'));
    const model = new RunPageModel('r', api, gpus, () => isSeen);
    const asked = () => api.calls.filter(call => call === 'page r').length;
    const changed = async () => {
      gpus.stateChanged.emit(undefined);
      await act(async () => void (await jest.advanceTimersByTimeAsync(2000)));
    };
    await changed();
    await changed();
    expect(asked()).toBe(1); // for its name
    isSeen = true;
    model.onShown();
    await changed();
    expect(asked()).toBe(3);
    api.pageAnswer = new ApiError(404, 'there is no such run');
    await changed();
    await changed();
    await changed();
    expect([asked(), model.problem]).toEqual([4, 'there is no such run']);
    model.onShown();
    await changed();
    expect(asked()).toBe(5);
    api.pageAnswer = page(run('r'));
    void gpus.refresh(); // the cluster is there now
    await changed();
    expect([asked(), model.problem]).toEqual([6, '']);
    model.dispose();
    gpus.dispose();
  });

  it('looks again after a slow answer', async () => {
    const api = new FakeApi();
    const gpus = new GpuModel(api);
    api.pageAnswer = page(run('r', { state: 'queued' }));
    const runPage = api.runPage.bind(api);
    jest.spyOn(api, 'runPage').mockImplementationOnce(async asked => {
      const answer = await runPage(asked);
      await new Promise(resolve => window.setTimeout(resolve, 4000));
      return answer;
    });
    const model = new RunPageModel('r', api, gpus);
    const passed = (ms: number) =>
      act(async () => void (await jest.advanceTimersByTimeAsync(ms)));
    await passed(0);
    gpus.stateChanged.emit(undefined); // its look comes while the first goes on
    await passed(6000);
    api.pageAnswer = page(run('r', { state: 'running' }));
    gpus.stateChanged.emit(undefined);
    await passed(2000);
    expect(model.page?.run.state).toBe('running');
    model.dispose();
    gpus.dispose();
  });
});

describe('the page of a sweep', () => {
  const trial = (number: number, more: Partial<IRunRow>) =>
    run(`t${number}`, {
      name: `fit ${number}`,
      title: `fit ${number}(lr=0.${number}, width=64)`,
      sweep: 's',
      state: 'succeeded',
      held_s: 10 * number,
      ...more
    });

  it('each trial with its value; a click on a head sorts', () => {
    const trials = [
      trial(1, { metric: { loss: 0.25 }, gpus: 2 }),
      trial(2, { metric: { loss: 0.12345678 } }),
      trial(3, { state: 'failed' })
    ];
    const opened: string[] = [];
    const { container } = render(
      <Trials
        page={page(run('s'), { trials })}
        trans={trans}
        onOpen={run => opened.push(run)}
      />
    );
    const rows = () =>
      [...container.querySelectorAll('tbody tr')].map(row =>
        [...row.querySelectorAll('td')].map(cell => cell.textContent).join('|')
      );
    expect(rows()).toEqual([
      '1|lr=0.1, width=64|0.25|Succeeded|20 s',
      '2|lr=0.2, width=64|0.123457|Succeeded|20 s',
      '3|lr=0.3, width=64||Failed|30 s'
    ]);
    const first = () => rows().map(row => row[0]);
    act(() => screen.getByRole('button', { name: 'loss' }).click());
    expect(first()).toEqual(['2', '1', '3']);
    act(() => screen.getByRole('button', { name: /loss/ }).click());
    expect(first()).toEqual(['1', '2', '3']); // without a value: last
    act(() => screen.getByRole('link', { name: '2' }).click());
    expect(opened).toEqual(['t2']);
  });

  it('is looked at again for as long as the list has another trial', async () => {
    jest.useFakeTimers();
    const api = new FakeApi();
    const gpus = new GpuModel(api);
    const passed = (ms: number) =>
      act(async () => void (await jest.advanceTimersByTimeAsync(ms)));
    const asked = () => api.calls.filter(call => call === 'page s').length;
    const over = { started_at: 1003, ended_at: 1060 };
    const first = trial(1, {});
    api.pageAnswer = page(first, { ...over, trials: [first] });
    const model = new RunPageModel('s', api, gpus);
    await passed(2000);
    gpus.stateChanged.emit(undefined);
    await passed(2000);
    expect(asked()).toBe(1); // all of it is over
    api.rows = [first, trial(2, { state: 'running' })];
    void gpus.refresh();
    await passed(2000);
    expect(asked()).toBe(2);
    model.dispose();
    gpus.dispose();
    jest.useRealTimers();
  });
});
