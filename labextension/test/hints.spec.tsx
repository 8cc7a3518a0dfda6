import type { INotebookTracker } from '@jupyterlab/notebook';
import { nullTranslator } from '@jupyterlab/translation';
import { PanelLayout, Widget } from '@lumino/widgets';
import { act } from '@testing-library/react';
import { CellHints } from '../src/cells/hints';
import { ActionRunner } from '../src/model/actions';
import { GpuModel } from '../src/model/model';
import { FakeApi, gpu, run, status } from './samples';

// of which jsdom has none
window.requestIdleCallback ??= (draw: IdleRequestCallback) =>
  window.setTimeout(draw, 0);

const trans = nullTranslator.load('');

/** A notebook with one cell, as far as hints look at it. */
function notebook(): { tracker: INotebookTracker; cell: Widget } {
  const cell = new Widget();
  const layout = (cell.layout = new PanelLayout());
  const code = new Widget();
  code.addClass('jp-Cell-inputWrapper');
  layout.addWidget(code);
  const panel = {
    id: 'p1',
    context: { localPath: 'digits.ipynb' },
    content: { widgets: [Object.assign(cell, { model: { id: 'c1' } })] }
  };
  const tracker = {
    widgetAdded: { connect: () => true },
    forEach: (look: (each: unknown) => void) => look(panel)
  };
  Widget.attach(cell, document.body);
  return { tracker: tracker as unknown as INotebookTracker, cell };
}

describe('CellHints', () => {
  it('many runs of one cell are one line that opens and closes', async () => {
    const api = new FakeApi();
    const runs = Array.from({ length: 5 }, (_, n) =>
      run(`r${n}`, {
        notebook: 'digits.ipynb',
        state: n < 4 ? 'queued' : 'running'
      })
    );
    const model = new GpuModel(api);
    const runner = new ActionRunner(model, api, trans, null);
    const { tracker, cell } = notebook();
    const hints = new CellHints(tracker, { model, runner, trans }, () => true);
    const show = (count: number) =>
      act(async () => {
        api.rows = runs.slice(runs.length - count);
        api.answer = status([gpu(0)], {}, api.rows);
        await model.refresh();
      });
    const lines = () =>
      [...cell.node.querySelectorAll('.jp-GpuRelease-hint')].map(
        line => line.textContent ?? ''
      );
    await show(3);
    expect(lines()).toHaveLength(3);
    await show(5);
    expect(lines()).toEqual(['1 running, 4 queuedShow each']);
    const press = () =>
      act(async () => cell.node.querySelector('button')!.click());
    await press();
    expect(lines()[0]).toBe('1 running, 4 queuedShow less');
    expect(lines().slice(1)).toHaveLength(5);
    await press();
    expect(lines()).toEqual(['1 running, 4 queuedShow each']);
    await show(2);
    expect(lines().filter(line => line.includes('Show'))).toEqual([]);
    expect(lines()).toHaveLength(2);
    await show(0);
    expect(lines()).toEqual([]);
    hints.update();
    model.dispose();
  });
});
