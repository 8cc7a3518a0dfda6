import { CodeCellModel } from '@jupyterlab/cells';
import type { JSONObject } from '@lumino/coreutils';
import { showLocalTimes } from '../../src/outputs/clocks';
import { CellWriter, LineWriter } from '../../src/outputs/cell-writer';
import {
  indexOf,
  isOfOthers,
  isOneRun,
  liveMarks,
  mentions
} from '../../src/outputs/marks';
import { SharedCellWriter } from '../../src/outputs/shared-cell';
import { OutputStream } from '../../src/outputs/output-stream';

const ours = (facts: JSONObject, text: string) => ({
  output_type: 'display_data',
  data: { 'text/plain': text },
  metadata: { jupyter_gpu_release: facts }
});
const line = (run: string, live: boolean, text = 'running') =>
  ours(live ? { run, live } : { run, status: 'ok' }, text);
const heading = (run: string) => ours({ run }, 'ran on node');
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

  it('tell where a run begins, and what is of another one', () => {
    const outputs = [print('a'), heading('one'), print('b'), line('one', true)];
    expect(indexOf(outputs, 'one')).toBe(1);
    expect(indexOf(outputs, 'two')).toBe(-1);
    expect(mentions([heading('one')], 'one')).toBe(false);
    expect(isOfOthers(outputs, 'one')).toBe(false);
    expect(isOfOthers(outputs, 'two')).toBe(true);
  });

  it('stand for the rest of the cell where nothing else can follow', () => {
    expect(isOneRun('%%gpu_train --gpus 2\nx')).toBe(true);
    expect(isOneRun('%gpu_attach last')).toBe(true);
    expect(isOneRun('%gpu_train --async f()\nprint(1)')).toBe(false);
  });
});

describe.each([false, true])('a cell (shared: %s)', isShared => {
  const writerOf = (model: CodeCellModel, base: number) =>
    isShared
      ? new SharedCellWriter(model, 'run', base)
      : new CellWriter(model, base);

  it('gets the run below what stood above it, in one order', () => {
    const model = new CodeCellModel();
    [print('before\n'), line('run', true), print('old')].forEach(output =>
      model.outputs.add(output)
    );
    const writer = writerOf(model, 1);
    writer.begin();
    writer.apply([
      { op: 'add', output: line('run', true) },
      { op: 'add', output: print('one\n') }
    ]);
    writer.write();
    writer.apply([
      { op: 'add', output: print('two\n') },
      { op: 'set', index: 0, output: line('run', false, 'done') }
    ]);
    writer.write();
    expect(writer.isDisturbed).toBe(false);
    expect(model.sharedModel.getOutputs()).toMatchObject([
      { text: 'before\n' },
      { data: { 'text/plain': 'done' } },
      { text: 'one\ntwo\n' }
    ]);
    model.outputs.clear();
    expect(writer.isDisturbed).toBe(true);
  });

  it('is trusted only where nothing else stands in it', () => {
    for (const base of [0, 1]) {
      const model = new CodeCellModel();
      [ours({}, '<script>'), line('run', true)].forEach(output =>
        model.outputs.add(output)
      );
      const writer = writerOf(model, base);
      writer.begin();
      writer.trust();
      writer.write();
      expect(model.trusted).toBe(base === 0);
    }
  });

  it('is emptied by the run itself', () => {
    const model = new CodeCellModel();
    model.outputs.add(print('before\n'));
    const writer = writerOf(model, 1);
    writer.begin();
    writer.apply([{ op: 'clear' }, { op: 'add', output: print('new') }]);
    writer.write();
    expect(model.outputs.toJSON()).toMatchObject([{ text: 'new' }]);
  });
});

it('one line among others becomes the receipt, and nothing else changes', () => {
  const model = new CodeCellModel();
  [line('one', true), line('two', true), print('mine')].forEach(output =>
    model.outputs.add(output)
  );
  const writer = new LineWriter(model, 'two');
  let changes = 0;
  model.outputs.changed.connect(() => (changes += 1));
  writer.begin();
  writer.trust();
  writer.apply([
    { op: 'add', output: line('two', true) },
    { op: 'add', output: print('printed by the run') }
  ]);
  writer.write();
  expect([changes, model.trusted]).toEqual([0, false]); // nothing new
  writer.apply([
    { op: 'set', index: 0, output: heading('two') },
    { op: 'add', output: line('two', true, 'writing') }
  ]);
  writer.write();
  expect(model.outputs.toJSON()[1]).toMatchObject(line('two', true, 'writing'));
  writer.apply([
    { op: 'set', index: 2, output: line('two', false, 'receipt') }
  ]);
  writer.write();
  expect(model.outputs.toJSON()).toMatchObject([
    { data: { 'text/plain': 'running' } },
    { data: { 'text/plain': 'receipt' } },
    { text: 'mine' }
  ]);
});

it.each([false, true])(
  'a server that never answers is given up (it did once: %s)',
  answered => {
    jest.useFakeTimers();
    const sockets: {
      onclose?: () => void;
      onmessage?: (event: object) => void;
    }[] = [];
    const settings = {
      wsUrl: 'ws://x/',
      token: '',
      appendToken: false,
      WebSocket: class {
        onclose?: () => void;
        onmessage?: (event: object) => void;
        constructor() {
          sockets.push(this);
        }
        close(): void {}
      }
    };
    const onEnd = jest.fn();
    new OutputStream(settings as never, 'run', {
      onBegin: () => undefined,
      onMessage: () => undefined,
      onEnd
    });
    for (let n = 0; n < 10 && !onEnd.mock.calls.length; n++) {
      const socket = sockets[sockets.length - 1];
      if (answered && n === 0) {
        socket.onmessage?.({ data: '{"live": true}' });
      }
      socket.onclose?.();
      jest.runOnlyPendingTimers();
    }
    expect(sockets.length).toBe(answered ? 11 : 5);
    expect(onEnd).toHaveBeenCalledTimes(answered ? 0 : 1);
    jest.useRealTimers();
  }
);

describe('times in our lines', () => {
  it('are shown in the zone of the browser, and keep what was written', () => {
    const at = Date.UTC(2026, 10, 21, 14, 3, 10);
    const root = document.createElement('div');
    root.innerHTML =
      `kept until <time class="jgr-clock jgr-at-${at / 1000}">19:33:10 IST</time>, ` +
      '<time class="other">19:33:10 IST</time>, <time class="jgr-clock">1</time>';
    showLocalTimes(root, at);
    showLocalTimes(root, at);
    const [ours, theirs, odd] = root.querySelectorAll('time');
    expect(ours.textContent).toBe(new Date(at).toLocaleTimeString());
    expect(ours.title).toBe('19:33:10 IST');
    expect([theirs.textContent, odd.textContent]).toEqual([
      '19:33:10 IST',
      '1'
    ]);
    ours.classList.remove('jgr-mod-local');
    showLocalTimes(root, at + 86400e3);
    expect(ours.textContent).toBe(new Date(at).toLocaleString());
  });
});
