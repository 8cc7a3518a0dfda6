import type { CodeCellModel } from '@jupyterlab/cells';
import type { NotebookPanel } from '@jupyterlab/notebook';
import type { ServerConnection } from '@jupyterlab/services';
import { Signal } from '@lumino/signaling';
import type { IApi } from '../../src/model/api';
import { OutputRestorer } from '../../src/outputs/restorer';
import { Awareness } from './awareness';
import { begun, ended, line, Room, whole } from './shared-notebook';

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
    room: Awareness[]
  ) {
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
        model: { collaborative: true, sharedModel: { awareness }, cells },
        widgets: [{ model, isDisposed: false, outputArea: this.area }]
      },
      context: { contentsModel: null },
      sessionContext: { statusChanged: signal(), kernelChanged: signal() }
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
      {} as IApi,
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

  readonly restorer: OutputRestorer;
  /** `future`: what the page's own kernel connection brings */
  readonly area: { future?: { isDisposed: boolean } } = {};
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
      const future = { isDisposed: false };
      pages[receiver].area.future = future;
      pages[receiver].restorer.look();
      pages.forEach(({ awareness }) => awareness.connect(false));
      room.pages[1].sharedModel.setOutputs([]);
      pages.forEach(({ awareness }) => awareness.connect(true));
      meet(room);
      room.pages.forEach(page => expect(page.outputs.length).toBe(0));

      future.isDisposed = true;
      pages[receiver].restorer.look();
      jest.advanceTimersByTime(SETTLED_MS);
      pages[0].tell(false);
      expect(pages[1].sockets).toEqual([]);
      meet(room);
      room.pages.forEach(page =>
        expect(page.outputs.toJSON()).toMatchObject(whole)
      );
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
