import type { CodeCell, ICodeCellModel } from '@jupyterlab/cells';
import { PageConfig } from '@jupyterlab/coreutils';
import { NotebookActions, NotebookPanel } from '@jupyterlab/notebook';
import type { ServerConnection } from '@jupyterlab/services';
import { hasMagic } from '../cells/magic';
import type { IApi } from '../model/api';
import { CellWriter, LineWriter } from './cell-writer';
import { HeldModels } from './held-models';
import {
  doubledRuns,
  hasLiveMark,
  indexOf,
  isOfOthers,
  isOneRun,
  liveMarks,
  mentions,
  Output,
  runOfReceipt
} from './marks';
import { IOutputMessage, OutputStream } from './output-stream';
import { Peers } from './peers';
import { SharedCellWriter } from './shared-cell';
import { SharedViews } from './shared-views';
import { WidgetViews } from './widget-views';

const SETTLED_MS = 1500;
const AGAIN_MS = 10_000;
/** what ended so long before the server did may not have been saved */
const UNSAVED_S = 60;

type Writer = CellWriter | LineWriter | SharedCellWriter;

/** Whether a restoration goes on, whether it may write now. */
interface ILeave {
  isWanted: () => boolean;
  mayWrite: () => boolean;
}

/** What a cell showed of a run when the line to the server was lost. */
interface IShown {
  run: string;
  /** it is whole with so many outputs */
  outputs: number;
}

/** The receipts of a notebook whose line to the server was lost. */
interface IEnded {
  /** what ended before was saved */
  since_s: number;
  /** by cell */
  runs: { [cell: string]: IShown };
}

/** Brings one cell up to date with one run. */
class Restoration {
  constructor(
    settings: ServerConnection.ISettings,
    readonly model: ICodeCellModel,
    readonly run: string,
    private _writer: Writer,
    private _models: HeldModels,
    private _leave: ILeave,
    private _onEnd: () => void
  ) {
    this._isAtWork = model.executionState === 'running'; // maybe of a page that is closed
    this._views = new WidgetViews(_models);
    this._stream = new OutputStream(settings, run, {
      onBegin: () => (this._isNew = true),
      onMessage: message => this._onMessage(message),
      onEnd: () => this._onStreamEnd()
    });
  }

  /** The run's output is still told. */
  get isFollowing(): boolean {
    return this._isFollowing;
  }

  dispose(): void {
    if (!this._isOver) {
      this._isOver = true;
      this._isFollowing = false;
      this._stream.dispose();
      if (this._leave.isWanted() && this._leave.mayWrite()) {
        this._showAtWork(false);
      }
      this._writer.dispose();
      this._onEnd();
    }
  }

  /** Write what was told, and mend what others did, where that falls to this page now. */
  write(): void {
    if (this._isOver) {
      return;
    }
    if (this._writer.isDisturbed || !this._leave.isWanted()) {
      this.dispose();
      return;
    }
    const news = this._views.news();
    if (!this._isLive) {
      news.push(...this._views.latest());
    }
    if (news.length > 0) {
      this._writer.apply(news);
    }
    if (this._leave.mayWrite()) {
      if (this._gone) {
        this._sayGone(this._gone);
      }
      if (!this._isNew) {
        this._writer.write(!this._isLive);
        this._showAtWork(this._isLive);
      }
    }
  }

  private _onMessage(message: IOutputMessage): void {
    this._gone = message.gone ?? '';
    if (message.changes) {
      if (this._writer.isDisturbed || !this._leave.isWanted()) {
        this.dispose();
        return;
      }
      if (this._isNew) {
        this._isNew = false;
        this._writer.begin();
        this._views.begin();
      }
      if (message.mine) {
        this._writer.trust();
      }
      this._writer.apply(this._views.show(message.changes));
      this._isLive = message.live === true;
    }
    this.write();
  }

  /** Of a shared document the whole output is kept in mind: others may come back with what they wrote meanwhile. */
  private _onStreamEnd(): void {
    this._isFollowing = false;
    const isWhole = !this._isLive && !this._isNew;
    const isKept = isWhole && this._writer instanceof SharedCellWriter;
    if (isWhole && this._views.areAny) {
      void this._askOnceMore(isKept);
    } else if (!isKept) {
      this.dispose();
    }
  }

  /** The last widgets may have been told before the kernel knew of them. */
  private async _askOnceMore(isKept: boolean): Promise<void> {
    await this._models.ask();
    this.write();
    if (!isKept) {
      this.dispose();
    }
  }

  /** The cell's prompt: [*] while its run goes on. */
  private _showAtWork(isAtWork: boolean): void {
    const { model } = this;
    if (!model.isDisposed && isAtWork !== this._isAtWork) {
      this._isAtWork = isAtWork;
      model.executionState = isAtWork ? 'running' : 'idle';
    }
  }

  private _sayGone(why: string): void {
    const { outputs } = this.model;
    const mark = liveMarks(outputs.toJSON()).find(
      ({ run }) => run === this.run
    );
    if (mark) {
      outputs.set(mark.index, {
        output_type: 'display_data',
        data: { 'text/plain': `run ${this.run}: ${why}` },
        metadata: {}
      });
    }
  }

  private _stream: OutputStream;
  private _views: WidgetViews;
  /** what was told before is told again */
  private _isNew = true;
  private _isFollowing = true;
  private _isLive = true;
  private _gone = '';
  private _isAtWork: boolean;
  private _isOver = false;
}

/** Keeps the GPU cells of one notebook up to date where its kernel's messages do not reach this page. */
export class OutputRestorer {
  constructor(
    private _panel: NotebookPanel,
    private _api: IApi,
    private _settings: ServerConnection.ISettings
  ) {
    this._saved = _panel.context.contentsModel?.last_modified;
    NotebookActions.executionScheduled.connect(this._onScheduled, this);
    _panel.sessionContext.statusChanged.connect(this._onStatus, this);
    _panel.sessionContext.kernelChanged.connect(this.look, this);
    _panel.disposed.connect(this.dispose, this);
    this._models = new HeldModels(_panel, () => this.look());
    this._peers = new Peers(
      _panel,
      areNew => this._lookOnceSettled(areNew),
      () => this._remember()
    );
    if (this._isShared) {
      this._views = new SharedViews(
        _panel,
        model => this._receives(model),
        () => this.look()
      );
    }
    this._lookOnceSettled();
  }

  dispose(): void {
    const { sessionContext } = this._panel;
    NotebookActions.executionScheduled.disconnect(this._onScheduled, this);
    sessionContext.statusChanged.disconnect(this._onStatus, this);
    sessionContext.kernelChanged.disconnect(this.look, this);
    window.clearTimeout(this._timer);
    this._views?.dispose();
    this._models.dispose();
    this._peers.dispose();
    [...this._restorations].forEach(restoration => restoration.dispose());
  }

  /** Resolve every line that still stands for a run under way. */
  look(): void {
    if (this._panel.isDisposed || this._panel.content.model === null) {
      return;
    }
    const cells = this._codeCells();
    this._peers.tell(
      cells.filter(cell => receives(cell)).map(({ model }) => model.id)
    );
    this._views?.catchUp();
    if (!this._isSettled) {
      return;
    }
    [...this._restorations].forEach(restoration => restoration.write());
    for (const cell of cells) {
      this._restoreUnfinished(cell);
      if (this._isShared) {
        this._restoreDamaged(cell);
      }
    }
    if (this._ended && !this._peers.areApart) {
      const ended = this._ended;
      this._ended = null;
      this._lookAtEnded(ended).catch(reason => {
        this._ended ??= ended; // the next look tries again
        window.setTimeout(() => this.look(), AGAIN_MS);
        console.warn('The runs of a notebook are not known:', reason);
      });
    }
    if (!this._hasLookedAtRuns) {
      this._hasLookedAtRuns = true;
      this._lookAtRuns().catch(reason => {
        this._hasLookedAtRuns = false; // the next look tries again
        console.warn('The runs of a notebook are not known:', reason);
      });
    }
  }

  private _restoreUnfinished(cell: CodeCell): void {
    if (!hasLiveMark(cell.model)) {
      return;
    }
    const outputs = cell.model.outputs.toJSON();
    const runs = [...new Set(liveMarks(outputs).map(({ run }) => run))];
    const isWhole =
      runs.length === 1 && isOneRun(cell.model.sharedModel.getSource());
    for (const run of runs) {
      this._restore(cell, run, isWhole ? indexOf(outputs, run) : null);
    }
  }

  /** What pages wrote that did not hear of each other, or what a server lost that ended before it had saved it. */
  private _restoreDamaged(cell: CodeCell): void {
    const { model } = cell;
    if (!isOneRun(model.sharedModel.getSource())) {
      return;
    }
    for (const run of doubledRuns(model)) {
      this._restore(cell, run, indexOf(model.outputs.toJSON(), run));
    }
    const shown = this._remembered.get(model.id);
    if (shown === undefined || this._peers.areApart) {
      return;
    }
    // the document's own: the page may have heard only in part what is gone
    const outputs = model.sharedModel.getOutputs() as Output[];
    if (outputs.length < shown.outputs && !isOfOthers(outputs, shown.run)) {
      // not while a page waits for a kernel that ended with the server: then at the look after that
      if (this._restore(cell, shown.run, 0)) {
        shown.outputs = 1; // what is told may be fewer than a kernel showed: again only where nothing is there
      }
    } else {
      this._remembered.delete(model.id);
    }
  }

  /** A server that ended before it had saved a document comes back with an older one. */
  private _remember(): void {
    for (const { model } of this._codeCells()) {
      const [mark] = hasLiveMark(model)
        ? liveMarks(model.outputs.toJSON())
        : [];
      const ended = mark ? undefined : runOfReceipt(model);
      if (mark) {
        this._remembered.set(model.id, { run: mark.run, outputs: 1 });
      } else if (ended !== undefined) {
        this._ended ??= { since_s: Date.now() / 1000 - UNSAVED_S, runs: {} };
        this._ended.runs[model.id] = {
          run: ended,
          outputs: model.outputs.length
        };
      }
    }
  }

  /** Of the receipts that stood there those count that may not have been saved. */
  private async _lookAtEnded({ since_s, runs }: IEnded): Promise<void> {
    const rows = await this._api.cellRuns(this._panel.context.localPath);
    for (const { cell, run, ended_at } of rows) {
      const shown = runs[cell];
      if (shown?.run === run && ended_at !== null && ended_at > since_s) {
        this._remembered.set(cell, shown);
      }
    }
    this.look();
  }

  /** Who else has the document open is heard of a moment after it is there, or has changed. */
  private _lookOnceSettled(areNew = true): void {
    if (areNew) {
      this._areKnown = false;
      window.clearTimeout(this._timer);
    } else if (!this._isSettled) {
      return;
    }
    this._isSettled = false;
    this._timer = window.setTimeout(
      () => {
        this._isSettled = this._areKnown = true;
        this.look();
      },
      this._isShared ? SETTLED_MS : 0
    );
  }

  /** Show the run in its cell, live. False: the cell is not there, or holds something else, too. */
  show(cellId: string, run: string): boolean {
    const cell = this._codeCells().find(({ model }) => model.id === cellId);
    if (!cell || !isOneRun(cell.model.sharedModel.getSource())) {
      return false;
    }
    const outputs = cell.model.outputs.toJSON();
    if (isOfOthers(outputs, run)) {
      return false;
    }
    [...this._restorations]
      .filter(({ model, run: other }) => model === cell.model && other !== run)
      .forEach(restoration => restoration.dispose());
    return this._restore(cell, run, Math.max(0, indexOf(outputs, run)));
  }

  /** The notebook may have been saved last before a run ended, or showed anything at all. */
  private async _lookAtRuns(): Promise<void> {
    const saved = this._saved;
    const cells = this._codeCells().filter(({ model }) =>
      hasMagic(model.sharedModel.getSource())
    );
    if (!saved || cells.length === 0) {
      return;
    }
    const savedAt = Date.parse(saved) / 1000;
    const rows = await this._api.cellRuns(this._panel.context.localPath);
    for (const row of rows) {
      const cell = cells.find(({ model }) => model.id === row.cell);
      const isNewer = row.ended_at === null || savedAt < row.ended_at;
      if (
        cell &&
        isNewer &&
        !cell.isDisposed &&
        !this._scheduled.has(cell.model) &&
        !mentions(cell.model.outputs.toJSON(), row.run)
      ) {
        this._restore(cell, row.run, 0);
      }
    }
  }

  private _restore(cell: CodeCell, run: string, base: number | null): boolean {
    const { model } = cell;
    const isKnown = [...this._restorations].some(
      restoration => restoration.model === model && restoration.run === run
    );
    const isWanted = () => !receives(cell) && !this._isServers(model);
    const isMine = () => !this._peers.areApart && this._peers.isMine(model.id);
    if (isKnown || !isWanted() || !isMine()) {
      return isKnown;
    }
    const restoration = new Restoration(
      this._settings,
      model,
      run,
      this._writer(model, run, base),
      this._models,
      { isWanted, mayWrite: () => this._areKnown && isMine() },
      () => {
        this._restorations.delete(restoration);
        if (this._remembered.has(model.id)) {
          window.setTimeout(() => this.look(), AGAIN_MS); // the server has come back, its gateway maybe not
        }
      }
    );
    this._restorations.add(restoration);
    return true;
  }

  private _writer(
    model: ICodeCellModel,
    run: string,
    base: number | null
  ): Writer {
    if (base === null) {
      return new LineWriter(model, run);
    }
    return this._isShared
      ? new SharedCellWriter(model, run, base)
      : new CellWriter(model, base);
  }

  /** Where cells are executed by the server, it writes their outputs, too. */
  private _isServers(model: ICodeCellModel): boolean {
    return (
      PageConfig.getOption('serverSideExecution').toLowerCase() === 'true' &&
      model.executionState === 'running' &&
      !this._isBeingRestored(model) &&
      this._panel.sessionContext.session?.kernel?.status === 'busy'
    );
  }

  private _receives(model: ICodeCellModel): boolean {
    return this._codeCells().some(
      cell => cell.model === model && receives(cell)
    );
  }

  private _isBeingRestored(model: ICodeCellModel): boolean {
    return [...this._restorations].some(
      restoration => restoration.model === model && restoration.isFollowing
    );
  }

  /** What waits for a kernel that is dead is taken away after that was said, and nothing more is said for minutes. */
  private _onStatus(_: unknown, status: string): void {
    this.look();
    if (status === 'dead') {
      window.setTimeout(() => this.look());
    }
  }

  private _onScheduled(
    _: unknown,
    { cell }: { cell: { model: unknown } }
  ): void {
    const { id } = cell.model as ICodeCellModel;
    this._scheduled.add(cell.model as object);
    this._remembered.delete(id);
    delete this._ended?.runs[id];
    [...this._restorations]
      .filter(restoration => restoration.model === cell.model)
      .forEach(restoration => restoration.dispose());
    // its kernel connection brings its output from now on
    window.setTimeout(() => this.look());
  }

  /** Others may have the document open, too. */
  private get _isShared(): boolean {
    return this._panel.content.model?.collaborative === true;
  }

  private _codeCells(): CodeCell[] {
    return this._panel.content.widgets.filter(
      (cell): cell is CodeCell => cell.model.type === 'code'
    );
  }

  /** as it was opened: a server that shares documents saves at once what it has read */
  private _saved: string | undefined;
  private _models: HeldModels;
  private _peers: Peers;
  private _views: SharedViews | null = null;
  /** by cell: the run whose unfinished line stood there when the line to the server was lost */
  private _remembered = new Map<string, IShown>();
  /** receipts that stood there then */
  private _ended: IEnded | null = null;
  private _isSettled = false;
  /** the pages that have the document open, after one came or went */
  private _areKnown = false;
  private _hasLookedAtRuns = false;
  private _timer = 0;
  private _restorations = new Set<Restoration>();
  private _scheduled = new WeakSet<object>();
}

/** Whether this page's own connection to the kernel still brings the output of the cell's last execution. */
function receives(cell: CodeCell): boolean {
  if (cell.isDisposed) {
    return false;
  }
  const future = (cell.outputArea as CodeCell['outputArea'] | undefined)
    ?.future as { isDisposed: boolean } | undefined;
  return future !== undefined && !future.isDisposed;
}
