import type { NotebookPanel } from '@jupyterlab/notebook';
import { Peers } from '../../src/outputs/peers';
import { Awareness } from './awareness';

describe('pages that share a notebook', () => {
  const open = (client: number, room: Awareness[]) => {
    const awareness = new Awareness(client, room);
    const model = { sharedModel: { awareness } };
    const panel = { content: { model } } as unknown as NotebookPanel;
    const onParted = jest.fn();
    const peers = new Peers(panel, () => undefined, onParted);
    return { awareness, peers, onParted };
  };

  it('know of each other at once, whoever came first, so one of them writes', () => {
    const room: Awareness[] = [];
    const pages = [20, 10, 30].map(client => open(client, room));
    expect(pages.map(({ peers }) => peers.isMine('cell'))).toEqual([
      false,
      true,
      false
    ]);
    expect(pages[0].awareness.said).toBeLessThan(20); // and then they are silent
    pages[2].peers.tell(['cell']);
    expect(pages.map(({ peers }) => peers.isMine('cell'))).toEqual([
      false,
      false,
      false
    ]);
  });

  it.each([
    [[0, 1], 'server', [0, 1]],
    [[0, 1], 'server', [1, 0]],
    [[0], 'line of one', [0]],
    [[1], 'line of the other', [1]]
  ])('lose %s the %s, and know of each other again: %s', (gone, _, back) => {
    const room: Awareness[] = [];
    const pages = [20, 10].map(client => open(client, room));
    gone.forEach(at => pages[at].awareness.connect(false));
    for (const at of gone) {
      expect(pages[at].peers.areApart).toBe(true); // not alone
      expect(pages[at].onParted).toHaveBeenCalledTimes(1);
    }
    back.forEach(at => pages[at].awareness.connect(true));
    expect(pages.map(({ peers }) => peers.areApart)).toEqual([false, false]);
    expect(pages.map(({ peers }) => peers.isMine('cell'))).toEqual([
      false,
      true
    ]);
  });
});
