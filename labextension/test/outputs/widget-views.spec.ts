import type { NotebookPanel } from '@jupyterlab/notebook';
import { Signal } from '@lumino/signaling';
import { HeldModels } from '../../src/outputs/held-models';
import type { Output } from '../../src/outputs/marks';
import type { Change } from '../../src/outputs/output-stream';
import { NO_MODELS, WidgetViews } from '../../src/outputs/widget-views';

const VIEW = 'application/vnd.jupyter.widget-view+json';
const view = (model: string, text: string) => ({
  output_type: 'display_data',
  data: { 'text/plain': text, [VIEW]: { model_id: model } },
  metadata: {}
});
const text = (words: string) => ({
  output_type: 'display_data',
  data: { 'text/plain': words },
  metadata: {}
});
const print = (words: string) => ({
  output_type: 'stream',
  name: 'stdout',
  text: words
});
const add = (output: Output): Change => ({
  op: 'add',
  output
});

describe('the views of widgets', () => {
  it('are their text where the models are gone', () => {
    const views = new WidgetViews(NO_MODELS);
    const told = [add(print('a')), add(view('m', '3/7')), add(text('b'))];
    expect(views.show(told)).toEqual([
      add(print('a')),
      add(text('3/7')),
      add(text('b'))
    ]);
    const set: Change = { op: 'set', index: 1, output: view('m', '4/7') };
    expect(views.show([set])).toEqual([{ ...set, output: text('4/7') }]);
    expect(views.areAny).toBe(true);
  });

  it('come and go with the models, at their places', () => {
    const held = new Set<string>();
    const views = new WidgetViews(held);
    views.show([
      add(print('a')),
      add(print('goes on')),
      add(view('m', '3/7')),
      add(view('n', '0/2'))
    ]);
    expect(views.news()).toEqual([]);
    held.add('m');
    expect(views.news()).toEqual([
      { op: 'set', index: 1, output: view('m', '3/7') }
    ]);
    expect(views.news()).toEqual([]);
    // it moves by itself
    const set: Change = { op: 'set', index: 1, output: view('m', '7/7') };
    expect(views.show([set])).toEqual([]);
    held.clear();
    expect(views.news()).toEqual([
      { op: 'set', index: 1, output: text('7/7') }
    ]);
    expect(views.show([{ op: 'clear' }])).toEqual([{ op: 'clear' }]);
    held.add('n');
    expect(views.news()).toEqual([]);
  });
});

/** A kernel that answers what it holds when it is told to. */
function notebook(saved: object = {}) {
  const statusChanged = new Signal<object, string>({});
  const kernelChanged = new Signal<object, unknown>({});
  const asked: ((comms: string[]) => void)[] = [];
  const kernel = {
    requestCommInfo: () =>
      new Promise(resolve =>
        asked.push(comms =>
          resolve({
            content: {
              status: 'ok',
              comms: Object.fromEntries(comms.map(id => [id, {}]))
            }
          })
        )
      )
  };
  const panel = {
    content: { model: { getMetadata: () => saved } },
    sessionContext: { session: { kernel }, statusChanged, kernelChanged }
  };
  const onChange = jest.fn();
  const models = new HeldModels(panel as unknown as NotebookPanel, onChange);
  return { models, asked, onChange, statusChanged, kernelChanged, panel };
}

const settled = () => new Promise(resolve => setTimeout(resolve));

describe('the models that a kernel holds', () => {
  it('are those that it says, asked once for all that were looked for meanwhile', async () => {
    const { models, asked, onChange } = notebook();
    expect(models.has('m')).toBe(false);
    await settled();
    expect([models.has('n'), models.has('o'), models.has('m')]).toEqual([
      false,
      false,
      false
    ]);
    await settled();
    expect(asked.length).toBe(1); // the kernel may be busy for hours
    asked[0](['m']);
    await settled();
    expect(models.has('m')).toBe(true);
    expect(onChange).toHaveBeenCalledTimes(1);
    expect(asked.length).toBe(2);
    asked[1](['m', 'n']);
    await settled();
    expect([models.has('n'), models.has('o')]).toEqual([true, false]);
    expect(asked.length).toBe(2);
  });

  it('end with its process, whose late answer does not count', async () => {
    const { models, asked, onChange, statusChanged } = notebook();
    models.has('m');
    await settled();
    asked[0](['m']);
    await settled();
    const late = models.ask();
    await settled();
    statusChanged.emit('restarting');
    expect(models.has('m')).toBe(false);
    expect(onChange).toHaveBeenCalledTimes(2);
    asked[1](['m']);
    await late;
    expect(models.has('m')).toBe(false);
    statusChanged.emit('idle');
    await settled();
    expect(asked.length).toBe(3); // the next process is asked
    asked[2]([]);
    await settled();
    statusChanged.emit('idle');
    await settled();
    expect(asked.length).toBe(3);
    expect(models.has('m')).toBe(false);
  });

  it('may be in the document, and none is where there is no kernel', async () => {
    const state = { m: {} };
    const { models, asked, panel } = notebook({
      'application/vnd.jupyter.widget-state+json': { state }
    });
    panel.sessionContext.session = null as never;
    expect([models.has('m'), models.has('n')]).toEqual([true, false]);
    await models.ask();
    expect(asked.length).toBe(0);
    models.dispose();
  });
});
