import type { Cell } from '@jupyterlab/cells';
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { ReactWidget } from '@jupyterlab/ui-components';
import type { TranslationBundle } from '@jupyterlab/translation';
import { PanelLayout } from '@lumino/widgets';
import * as React from 'react';
import { ActionRunner, runTarget } from '../model/actions';
import { groupSweeps, IRunGroup } from '../model/sweeps';
import { isTerminal, waitingS, waits } from '../model/types';
import { RUN_ICONS } from '../icons';
import { GpuModel } from '../model/model';
import { runActions } from '../model/permissions';
import { Age, Button, Feedback, Icon } from '../view/widgets';
import { runLabel, trialsText } from '../labels';
import { isAt } from './paths';

interface IHintParts {
  model: GpuModel;
  runner: ActionRunner;
  trans: TranslationBundle;
}

/** Below a GPU cell that waits or runs: for how long, and Cancel. The kernel's line below says where, or why not. */
class Hint extends ReactWidget {
  constructor(
    private _parts: IHintParts,
    group: IRunGroup
  ) {
    super();
    this._group = group;
    this.addClass('jp-GpuRelease-hint');
  }

  set group(group: IRunGroup) {
    this._group = group;
    this.update();
  }

  protected render(): JSX.Element {
    const { model, runner, trans } = this._parts;
    const { row: run, trials } = this._group;
    const target = runTarget(run);
    const feedback = model.feedback.get(target.key);
    const seconds = waits(run.state) ? waitingS(run) : run.held_s;
    const canCancel = runActions(run, model.snapshot).includes('cancel');
    return (
      <>
        <Icon icon={RUN_ICONS[run.state]} kind={run.state} />
        {trials.length > 0 ? (
          <span>{trialsText(trials, trans)}</span>
        ) : (
          <span>
            {runLabel(trans, run.state)}{' '}
            <Age seconds={seconds} at={model.snapshot.at} />
          </span>
        )}
        {feedback ? (
          <Feedback feedback={feedback} />
        ) : (
          canCancel && (
            <Button
              label={trans.__('Cancel')}
              onClick={() => void runner.run('cancel', target)}
            />
          )
        )}
      </>
    );
  }

  private _group: IRunGroup;
}

/** Keeps the hints of all open notebooks as the model says. */
export class CellHints {
  constructor(
    private _tracker: INotebookTracker,
    private _parts: IHintParts,
    private _isWanted: () => boolean
  ) {
    _parts.model.stateChanged.connect(this.update, this);
    _tracker.widgetAdded.connect(this._onNotebook, this);
  }

  update(): void {
    const { runs } = this._parts.model.snapshot;
    const live = this._isWanted()
      ? groupSweeps(runs.filter(run => run.cell && !isTerminal(run.state)))
      : [];
    const seen = new Set<string>();
    if (live.length > 0) {
      this._tracker.forEach(panel => this._show(panel, live, seen));
    }
    for (const [key, hint] of this._hints) {
      if (!seen.has(key)) {
        hint.dispose();
        this._hints.delete(key);
      }
    }
  }

  private _onNotebook(_: INotebookTracker, panel: NotebookPanel): void {
    void panel.revealed.then(() => this.update());
  }

  private _show(
    panel: NotebookPanel,
    live: readonly IRunGroup[],
    seen: Set<string>
  ): void {
    const { localPath } = panel.context;
    for (const group of live) {
      const run = group.row;
      const cell = isAt(run.notebook, localPath)
        ? panel.content.widgets.find(({ model }) => model.id === run.cell)
        : undefined;
      if (cell) {
        const key = `${panel.id}/${run.run}`;
        seen.add(key);
        this._place(key, cell, group);
      }
    }
  }

  private _place(key: string, cell: Cell, group: IRunGroup): void {
    const known = this._hints.get(key);
    if (known && !known.isDisposed) {
      known.group = group;
      return;
    }
    const layout = cell.layout as PanelLayout;
    const wrapper = layout.widgets.findIndex(widget =>
      widget.hasClass('jp-Cell-inputWrapper')
    );
    if (wrapper < 0) {
      this._later(cell);
      return;
    }
    const hint = new Hint(this._parts, group);
    layout.insertWidget(wrapper + 1, hint);
    this._hints.set(key, hint);
  }

  /** A cell that was not seen yet has no parts, between which a hint could be. */
  private _later(cell: Cell): void {
    if (!this._awaited.has(cell)) {
      this._awaited.add(cell);
      void cell.ready.then(() => this.update());
    }
  }

  private _awaited = new WeakSet<Cell>();
  private _hints = new Map<string, Hint>();
}
