import { CodeCellModel } from '@jupyterlab/cells';
import { CellWriter, LineWriter } from '../src/heal/cell-writer';
import { isOneRun, liveMarks, mentions } from '../src/heal/marks';

const line = (run: string, live: boolean, text = 'running') => ({
  output_type: 'display_data',
  data: { 'text/plain': text },
  metadata: { jupyter_gpu_release: live ? { run, live } : { run } }
});
const print = (text: string) => ({
  output_type: 'stream',
  name: 'stdout',
  text
});

describe('marks', () => {
  it('are the lines of runs that are not over', () => {
    const outputs = [print('a'), line('one', false), line('two', true)];
    expect(liveMarks(outputs)).toEqual([{ run: 'two', index: 2 }]);
    expect(mentions(outputs, 'one')).toBe(true);
    expect(mentions(outputs, 'three')).toBe(false);
  });

  it('stand for the rest of the cell where nothing else can follow', () => {
    expect(isOneRun('%%gpu_train --gpus 2\nx')).toBe(true);
    expect(isOneRun('%gpu_attach last')).toBe(true);
    expect(isOneRun('%gpu_train --async f()\nprint(1)')).toBe(false);
  });
});

describe.each([false, true])('a cell (shared: %s)', isShared => {
  it('gets the run below what stood above it, in one order', () => {
    const model = new CodeCellModel();
    [print('before\n'), line('run', true), print('old')].forEach(output =>
      model.outputs.add(output)
    );
    const writer = new CellWriter(model, 1, () => isShared);
    writer.begin();
    writer.apply([
      { op: 'add', output: line('run', true) },
      { op: 'add', output: print('one\n') }
    ]);
    writer.apply([
      { op: 'add', output: print('two\n') },
      { op: 'set', index: 0, output: line('run', false, 'done') }
    ]);
    expect(writer.isDisturbed).toBe(false);
    expect(model.sharedModel.getOutputs()).toMatchObject([
      { text: 'before\n' },
      { data: { 'text/plain': 'done' } },
      { text: 'one\ntwo\n' }
    ]);
    model.outputs.clear();
    expect(writer.isDisturbed).toBe(true);
  });

  it('is emptied by the run itself', () => {
    const model = new CodeCellModel();
    model.outputs.add(print('before\n'));
    const writer = new CellWriter(model, 1, () => isShared);
    writer.begin();
    writer.apply([{ op: 'clear' }, { op: 'add', output: print('new') }]);
    expect(model.outputs.toJSON()).toMatchObject([{ text: 'new' }]);
  });
});

it('one line among others becomes the receipt, and nothing else changes', () => {
  const model = new CodeCellModel();
  [line('one', true), line('two', true), print('mine')].forEach(output =>
    model.outputs.add(output)
  );
  const writer = new LineWriter(model, 'two');
  writer.begin();
  writer.apply([
    { op: 'add', output: line('two', true) },
    { op: 'add', output: print('printed by the run') },
    { op: 'set', index: 0, output: line('two', false, 'receipt') }
  ]);
  expect(model.outputs.toJSON()).toMatchObject([
    { data: { 'text/plain': 'running' } },
    { data: { 'text/plain': 'receipt' } },
    { text: 'mine' }
  ]);
});
