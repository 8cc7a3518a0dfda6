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

class Held extends Set<string> {
  areDrawn = true;
}

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
    const held = new Held();
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

  it('are left with what they read last, written once', () => {
    const held = new Held(['m', 'n']);
    const views = new WidgetViews(held);
    views.show([add(view('m', '0/7')), add(view('n', 'n'))]);
    expect(views.latest()).toEqual([]);
    const set: Change = { op: 'set', index: 0, output: view('m', '7/7') };
    expect(views.show([set])).toEqual([]);
    expect(views.latest()).toEqual([set]);
    expect(views.latest()).toEqual([]);
  });

  it('do not move by themselves where nothing draws them', () => {
    const held = new Held(['m']);
    held.areDrawn = false;
    const views = new WidgetViews(held);
    views.show([add(view('m', '0/7'))]);
    const set: Change = { op: 'set', index: 0, output: view('m', '7/7') };
    expect(views.show([set])).toEqual([set]);
    expect(views.latest()).toEqual([]);
  });
});
