import type { CodeCellModel } from '@jupyterlab/cells';
import { PageConfig } from '@jupyterlab/coreutils';
import type { NotebookPanel } from '@jupyterlab/notebook';
import type { ServerConnection } from '@jupyterlab/services';
import { Signal } from '@lumino/signaling';
import type { IApi } from '../../src/model/api';
import { OutputRestorer } from '../../src/outputs/restorer';
import { Awareness } from './awareness';
import {
  begun,
  ended,
  heading,
  line,
  print,
  receipt,
  Room,
  whole
} from './shared-notebook';

jest.mock('@jupyterlab/notebook', () => ({
  NotebookActions: {
    executionScheduled: { connect: jest.fn(), disconnect: jest.fn() }
  }
}));

interface ISocket {
  onmessage?: (event: { data: string }) => void;
  onclose?: () => void;
}

/** A page that shows a shared notebook, and its connections to the server. */
class Page {
  readonly sockets: ISocket[] = [];
  readonly awareness: Awareness;

  constructor(
    readonly model: CodeCellModel,
    client: number,
    room: Awareness[],
    saved?: string,
    runs: object[] = []
  ) {
    this.context = {
      contentsModel: saved ? { last_modified: saved } : null,
      localPath: 'a.ipynb'
    };
    this.awareness = new Awareness(client, room);
    const { sockets, awareness } = this;
    const signal = () => new Signal<object, unknown>({});
    const cells = {
      changed: signal(),
      [Symbol.iterator]: () => [model].values()
    };
    const panel = {
      isDisposed: false,
      disposed: signal(),
      content: {
        model: {
          collaborative: true,
          sharedModel: { awareness },
          cells,
          getMetadata: () => undefined,
          metadataChanged: signal()
        },
        rendermime: { getFactory: () => ({}) },
        widgets: [{ model, isDisposed: false, outputArea: this.area }]
      },
      context: this.context,
      sessionContext: {
        session: { kernel: this.kernel },
        statusChanged: this._statusChanged,
        kernelChanged: signal(),
        iopubMessage: signal()
      }
    };
    const settings = {
      wsUrl: 'ws://x/',
      WebSocket: class {
        constructor() {
          sockets.push(this as ISocket);
        }
        close(): void {}
      }
    };
    this.restorer = new OutputRestorer(
      panel as unknown as NotebookPanel,
      { cellRuns: () => Promise.resolve(runs) } as unknown as IApi,
      settings as unknown as ServerConnection.ISettings
    );
  }

  /** The server tells the run's output up to then, what it has told on this connection left out. */
  tell(live: boolean): void {
    const socket = this.sockets[this.sockets.length - 1];
    const told = this._told.get(socket) ?? 0;
    const changes = [...begun, ...(live ? [] : ended)].slice(told);
    this._told.set(socket, told + changes.length);
    const data = JSON.stringify({ changes, live });
    socket.onmessage?.({ data });
  }

  /** Say that the kernel is dead, then let go of what waits for it. */
  loseKernel(): void {
    this._statusChanged.emit('dead');
    this.area.future = undefined;
  }

  readonly context: {
    contentsModel: { last_modified: string } | null;
    localPath: string;
  };
  readonly restorer: OutputRestorer;
  /** it holds the models of some widgets, and says so if it is asked while it is not busy */
  readonly kernel = {
    status: 'idle',
    held: [] as string[],
    requestCommInfo: () =>
      this.kernel.status === 'idle'
        ? Promise.resolve({
            content: {
              status: 'ok',
              comms: Object.fromEntries(this.kernel.held.map(id => [id, {}]))
            }
          })
        : new Promise(() => undefined)
  };
  /** `future`: what the page's own kernel connection brings */
  readonly area: { future?: { isDisposed: boolean } } = {};
  private _statusChanged = new Signal<object, string>({});
  private _told = new Map<ISocket, number>();
}

describe('pages that share a document', () => {
  beforeEach(() => jest.useFakeTimers());
  afterEach(() => jest.useRealTimers());

  const SETTLED_MS = 2000;
  const setUp = () => {
    const room = new Room(2);
    room.pages[0].sharedModel.setOutputs([line]);
    room.meet();
    const awarenesses: Awareness[] = [];
    const pages = room.pages.map(
      (model, at) => new Page(model, 10 + at, awarenesses)
    );
    jest.advanceTimersByTime(SETTLED_MS);
    return { room, pages };
  };
  const meet = (room: Room) => {
    room.meet();
    jest.advanceTimersByTime(SETTLED_MS);
    room.meet();
  };

  it('restore a cell in one of them', () => {
    const { room, pages } = setUp();
    expect(pages.map(({ sockets }) => sockets.length)).toEqual([1, 0]);
    pages[0].tell(false);
    meet(room);
    room.pages.forEach(page =>
      expect(page.outputs.toJSON()).toMatchObject(whole)
    );
  });

  it.each([
    [0, 1],
    [1, 0]
  ])(
    'write nothing while the server is away; %s is back first',
    (one, other) => {
      const { room, pages } = setUp();
      pages[0].tell(true);
      room.meet();
      pages.forEach(({ awareness }) => awareness.connect(false));
      pages[0].sockets[0].onclose?.();
      jest.advanceTimersByTime(SETTLED_MS);
      const before = [0, 1].map(page => room.stateOf(page));
      pages[0].tell(false); // heard before the document's line is there
      jest.advanceTimersByTime(SETTLED_MS);
      expect([0, 1].map(page => room.stateOf(page))).toEqual(before);

      pages[one].awareness.connect(true);
      jest.advanceTimersByTime(SETTLED_MS);
      pages[one].tell(false);
      pages[other].awareness.connect(true);
      meet(room);
      for (const page of room.pages) {
        expect(page.sharedModel.getOutputs()).toMatchObject(whole);
        expect(page.outputs.toJSON()).toMatchObject(whole);
      }
    }
  );

  it('restore what the server had not saved when it ended', () => {
    const { room, pages } = setUp();
    pages[0].tell(true);
    room.meet();
    pages.forEach(({ awareness }) => awareness.connect(false));
    room.pages[1].sharedModel.setOutputs([]);
    pages.forEach(({ awareness }) => awareness.connect(true));
    meet(room);
    pages[0].tell(false);
    meet(room);
    room.pages.forEach(page =>
      expect(page.outputs.toJSON()).toMatchObject(whole)
    );
  });

  it.each([0, 1])(
    'restore it once page %s no longer waits for the kernel that ended, too',
    receiver => {
      const { room, pages } = setUp();
      pages[0].tell(true);
      room.meet();
      pages[receiver].area.future = { isDisposed: false };
      pages[receiver].restorer.look();
      pages.forEach(({ awareness }) => awareness.connect(false));
      room.pages[1].sharedModel.setOutputs([]);
      pages.forEach(({ awareness }) => awareness.connect(true));
      meet(room);
      room.pages.forEach(page => expect(page.outputs.length).toBe(0));

      pages[receiver].loseKernel();
      jest.advanceTimersByTime(SETTLED_MS);
      pages[0].tell(false);
      expect(pages[1].sockets).toEqual([]);
      meet(room);
      room.pages.forEach(page =>
        expect(page.outputs.toJSON()).toMatchObject(whole)
      );
    }
  );

  it('leave a cell to a server that executes cells, until the kernel is idle', () => {
    const executes = jest
      .spyOn(PageConfig, 'getOption')
      .mockImplementation(name =>
        name === 'serverSideExecution' ? 'true' : ''
      );
    const room = new Room(1);
    room.pages[0].sharedModel.setOutputs([line]);
    room.pages[0].executionState = 'running';
    const page = new Page(room.pages[0], 10, []);
    page.kernel.status = 'busy';
    jest.advanceTimersByTime(SETTLED_MS);
    expect(page.sockets).toEqual([]);

    page.kernel.status = 'idle'; // the server has ended, and its kernel with it: nobody else writes any more
    page.restorer.look();
    expect(page.sockets.length).toBe(1);
    executes.mockRestore();
  });

  describe('after a server that ended soon after a run', () => {
    /** Its document comes back with `left`; the run had ended so long before. */
    const comeBack = async (left: object[], age_s: number) => {
      const room = new Room(2);
      room.pages[0].sharedModel.setOutputs([
        heading,
        print('first\nsecond\n'),
        receipt
      ]);
      room.meet();
      const runs: object[] = [
        {
          cell: room.pages[0].id,
          run: 'run',
          ended_at: Date.now() / 1000 - age_s
        }
      ];
      const awarenesses: Awareness[] = [];
      const pages = room.pages.map(
        (model, at) => new Page(model, 10 + at, awarenesses, undefined, runs)
      );
      jest.advanceTimersByTime(SETTLED_MS);
      pages.forEach(({ awareness }) => awareness.connect(false));
      room.pages[1].sharedModel.setOutputs(left as never);
      pages.forEach(({ awareness }) => awareness.connect(true));
      meet(room);
      for (let turn = 0; turn < 5; turn++) {
        await Promise.resolve(); // what the server answers is heard
      }
      return { room, pages };
    };

    it.each([
      ['all', []],
      ['all but its receipt', [receipt]]
    ])('restore what it had not saved: %s', async (_, left) => {
      const { room, pages } = await comeBack(left, 5);
      pages[0].tell(false);
      meet(room);
      for (const page of room.pages) {
        expect(page.sharedModel.getOutputs()).toMatchObject(whole);
        expect(page.outputs.toJSON()).toMatchObject(whole);
      }
      expect(pages[1].sockets).toEqual([]);
    });

    it('leave a cell alone whose run it must have saved', async () => {
      const { pages } = await comeBack([], 3600);
      expect(pages.flatMap(({ sockets }) => sockets)).toEqual([]);
    });
  });

  it('try again to restore it while the server has nothing to tell', () => {
    const { room, pages } = setUp();
    pages[0].tell(true);
    room.meet();
    pages.forEach(({ awareness }) => awareness.connect(false));
    room.pages[1].sharedModel.setOutputs([]);
    pages.forEach(({ awareness }) => awareness.connect(true));
    meet(room);
    const { sockets } = pages[0];
    const count = sockets.length;
    sockets[count - 1].onmessage?.({ data: '{"problem": "not yet"}' });
    sockets[count - 1].onclose?.();
    jest.advanceTimersByTime(10_000);
    expect(sockets.length).toBe(count + 1);
    pages[0].tell(false);
    meet(room);
    room.pages.forEach(page =>
      expect(page.outputs.toJSON()).toMatchObject(whole)
    );
    expect(pages[1].sockets).toEqual([]);
  });

  it('show what others changed while they waited for a kernel', () => {
    const { room, pages } = setUp();
    const [{ sharedModel }, { outputs }] = room.pages;
    pages[1].area.future = { isDisposed: false };
    sharedModel.updateOutputs(0, 0, [print('first\n')]);
    meet(room);
    expect(outputs.toJSON()).toMatchObject([line, print('first\n')]); // as JupyterLab does
    pages[1].loseKernel();
    jest.advanceTimersByTime(SETTLED_MS);
    expect(outputs.toJSON()).toMatchObject([print('first\n'), line]);
  });

  it('restore what ended while no page was open', async () => {
    const room = new Room(1);
    const [model] = room.pages;
    const run = { cell: model.id, run: 'run', ended_at: 1000 };
    const page = new Page(model, 10, [], new Date(990e3).toISOString(), [run]);
    // the server has read the document, and saves it
    page.context.contentsModel = { last_modified: new Date().toISOString() };
    await jest.advanceTimersByTimeAsync(SETTLED_MS);
    page.tell(false);
    expect(model.outputs.toJSON()).toMatchObject(whole);
  });

  it.each(['idle', 'busy'])(
    'leave a view that moved by itself with its last text, written once; the kernel is %s then',
    async status => {
      const { room, pages } = setUp();
      const [page] = pages;
      const type = 'application/vnd.jupyter.widget-view+json';
      const view = (text: string) => ({
        output_type: 'display_data',
        data: { 'text/plain': text, [type]: { model_id: 'm' } },
        metadata: {}
      });
      const tell = async (live: boolean, ...changes: object[]) => {
        page.sockets[0].onmessage?.({
          data: JSON.stringify({ changes, live })
        });
        await jest.advanceTimersByTimeAsync(0);
      };
      const texts = () =>
        (room.pages[0].sharedModel.getOutputs() as (typeof line)[]).map(
          ({ data }) => data['text/plain']
        );
      page.kernel.held = ['m'];
      await tell(
        true,
        { op: 'add', output: line },
        { op: 'add', output: view('0/7') }
      );
      await tell(true, { op: 'set', index: 1, output: view('3/7') });
      expect(texts()).toEqual(['running', '0/7']);
      page.kernel.status = status;
      await tell(
        false,
        { op: 'set', index: 1, output: view('7/7') },
        { op: 'set', index: 0, output: heading },
        { op: 'add', output: receipt }
      );
      page.sockets[0].onclose?.();
      await jest.advanceTimersByTimeAsync(0);
      expect(texts()).toEqual(['ran on node', '7/7', 'free']);
      expect(room.pages[0].sharedModel.getOutputs()[1]).toMatchObject(
        view('7/7')
      );
      const before = room.stateOf(0);
      page.restorer.look();
      await jest.advanceTimersByTimeAsync(SETTLED_MS);
      expect(room.stateOf(0)).toEqual(before);
    }
  );

  it('mend what two of them wrote', () => {
    const { room, pages } = setUp();
    pages[0].tell(false);
    const copy = room.pages[0].sharedModel.getOutputs();
    room.pages[1].sharedModel.setOutputs(copy);
    meet(room);
    room.pages.forEach(page =>
      expect(page.outputs.toJSON()).toMatchObject(whole)
    );
  });
});
