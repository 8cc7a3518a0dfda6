import { NotebookActions } from '@jupyterlab/notebook';
import { Navigator } from '../src/cells/navigator';

jest.mock('@jupyterlab/notebook', () => ({
  NotebookPanel: class {},
  NotebookActions: { insertBelow: jest.fn(), run: jest.fn() }
}));

/** A notebook in front, whose kernel is idle, with one cell. */
function open(source: string) {
  const model = { id: 'c', sharedModel: { getSource: () => source } };
  const added = { setSource: jest.fn() };
  const panel = {
    id: 'p',
    context: { localPath: 'a.ipynb', ready: Promise.resolve() },
    sessionContext: { session: { kernel: { id: 'k', status: 'idle' } } },
    content: {
      widgets: [{ model }],
      activeCell: { model: { sharedModel: added } },
      deselectAll: jest.fn(),
      activate: jest.fn(),
      scrollToItem: () => Promise.resolve()
    }
  };
  const show = jest.fn(() => true);
  const tracker = { find: () => panel };
  const parts = [{}, tracker, jest.fn(), { show }] as unknown;
  const navigator = new Navigator(
    ...(parts as ConstructorParameters<typeof Navigator>)
  );
  const target = { key: 'run:r', run: 'r', notebook: 'a.ipynb', cell: 'c' };
  return { navigator, show, added, target };
}

describe('attaching to a run', () => {
  beforeEach(() => jest.clearAllMocks());

  it.each(['%%gpu_train --async\nf()', '%%gpu_train\nf()'])(
    'shows it in its own cell where its kernel waits in the background: %j',
    async source => {
      const { navigator, show, target } = open(source);
      await navigator.attach({ ...target, kernel: 'k' });
      expect(show).toHaveBeenCalledWith(expect.anything(), 'c', 'r');
      expect(NotebookActions.insertBelow).not.toHaveBeenCalled();
    }
  );

  it.each([undefined, 'other'])(
    'takes a new cell where no kernel here waits for it: %s',
    async kernel => {
      const { navigator, show, added, target } = open('%%gpu_train --async\n1');
      await navigator.attach({ ...target, kernel });
      expect(show).not.toHaveBeenCalled();
      expect(added.setSource).toHaveBeenCalledWith('%gpu_attach r');
      expect(NotebookActions.run).toHaveBeenCalled();
    }
  );
});
