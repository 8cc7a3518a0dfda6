/** One notebook with a run's cell, as several pages have it. */

import { CodeCellModel } from '@jupyterlab/cells';
import { YNotebook, YCodeCell } from '@jupyter/ydoc';
import type { JSONObject } from '@lumino/coreutils';
import * as Y from 'yjs';

export const ours = (facts: JSONObject, text: string) => ({
  output_type: 'display_data',
  data: { 'text/plain': text },
  metadata: { jupyter_gpu_release: facts }
});
export const line = ours({ run: 'run', live: true }, 'running');
export const heading = ours({ run: 'run' }, 'ran on node');
export const receipt = ours({ run: 'run', status: 'ok' }, 'free');
export const print = (text: string) => ({
  output_type: 'stream',
  name: 'stdout',
  text
});
export const begun = [
  { op: 'add', output: line },
  { op: 'add', output: print('first\n') }
] as const;
export const ended = [
  { op: 'add', output: print('second\n') },
  { op: 'set', index: 0, output: heading },
  { op: 'add', output: receipt }
] as const;
export const whole = [
  { data: { 'text/plain': 'ran on node' } },
  { text: 'first\nsecond\n' },
  { data: { 'text/plain': 'free' } }
];

/** Pages that have one notebook with one cell; what they write comes to the others when they meet. */
export class Room {
  readonly pages: CodeCellModel[] = [];

  constructor(count: number) {
    const notebooks = Array.from({ length: count }, () => YNotebook.create());
    notebooks[0].addCell({ cell_type: 'code', source: '%%gpu_train' });
    this._docs = notebooks.map(({ ydoc }) => ydoc);
    this.meet();
    for (const { cells } of notebooks) {
      this.pages.push(
        new CodeCellModel({ sharedModel: cells[0] as YCodeCell })
      );
    }
  }

  meet(): void {
    const updates = this._docs.map(doc => Y.encodeStateAsUpdate(doc));
    this._docs.forEach(doc =>
      updates.forEach(update => Y.applyUpdate(doc, update))
    );
  }

  /** What the page has written and heard of. */
  stateOf(page: number): Uint8Array {
    return Y.encodeStateVector(this._docs[page]);
  }

  private _docs: Y.Doc[];
}
