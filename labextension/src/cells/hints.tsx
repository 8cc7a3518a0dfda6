import type { Cell } from '@jupyterlab/cells';
import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { ReactWidget } from '@jupyterlab/ui-components';
import type { TranslationBundle } from '@jupyterlab/translation';
import { PanelLayout } from '@lumino/widgets';
import * as React from 'react';
import { ActionRunner, runTarget } from '../model/actions';
import { groupSweeps, IRunGroup } from '../model/sweeps';
import { holdsGpu, isTerminal, waitingS, waits } from '../model/types';
import { RUN_ICONS } from '../icons';
import { GpuModel } from '../model/model';
import { runActions } from '../model/permissions';
import { Age, Button, Feedback, Icon } from '../view/widgets';
import { runLabel, trialsText } from '../labels';
import { isAt } from './paths';

/** a cell with more runs than this has one line for all of them, which opens */
const MOST_LINES = 3;

interface IHintParts {
  model: GpuModel;
  runner: ActionRunner;
  trans: TranslationBundle;
}

/** Opens the line of all runs of a cell, and closes it again. */
interface IFold {
  key: string;
  isOpen: boolean;
  toggle: () => void;
}

/** Below a GPU cell that waits or runs: for how long, and Cancel. The kernel's line below says where, or why not. */
class Hint extends ReactWidget {
  constructor(
    private _parts: IHintParts,
    group: IRunGroup,
    private _fold?: IFold
  ) {
    super();
    this._group = group;
    this.addClass('jp-GpuRelease-hint');
  }

  showGroup(group: IRunGroup, fold?: IFold): void {
    this._group = group;
    this._fold = fold;
    this.update();
  }

  protected render(): JSX.Element {
    const { model, runner, trans } = this._parts;
    const { row: run, trials } = this._group;
    const target = runTarget(run);
    const feedback = model.feedback.get(target.key);
    const seconds = waits(run.state) ? waitingS(run) : run.held_s;
    const canCancel = runActions(run, model.snapshot).includes('cancel');
    const fold = this._fold;
    if (fold) {
      return (
        <>
          <Icon icon={RUN_ICONS[run.state]} kind={run.state} />
          <span>{trialsText(trials, trans)}</span>
          <Button
            label={fold.isOpen ? trans.__('Show less') : trans.__('Show each')}
            onClick={fold.toggle}
          />
        </>
      );
    }
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

/** All runs of a cell as one; of a sweep its trials count. */
function foldedGroup(groups: readonly IRunGroup[]): IRunGroup {
  const runs = groups.flatMap(({ row, trials }) =>
    trials.length > 0 ? trials : [row]
  );
  return {
    row: runs.find(run => holdsGpu(run.state)) ?? runs[0],
    trials: runs
  };
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
    const here = live.filter(({ row }) => isAt(row.notebook, localPath));
    for (const cell of panel.content.widgets) {
      const groups = here.filter(({ row }) => row.cell === cell.model.id);
      const isFolded = groups.length > MOST_LINES;
      const fold = isFolded
        ? this._foldOf(`${panel.id}/${cell.model.id}`)
        : null;
      if (fold) {
        seen.add(fold.key);
        this._place(fold.key, cell, foldedGroup(groups), 1, fold);
      }
      for (const group of fold && !fold.isOpen ? [] : groups) {
        const key = `${panel.id}/${group.row.run}`;
        seen.add(key);
        this._place(key, cell, group, fold ? 2 : 1);
      }
    }
  }

  private _foldOf(key: string): IFold {
    const toggle = () => {
      if (!this._opened.delete(key)) {
        this._opened.add(key);
      }
      this.update();
    };
    return { key, isOpen: this._opened.has(key), toggle };
  }

  /** So many widgets below the cell's code. */
  private _place(
    key: string,
    cell: Cell,
    group: IRunGroup,
    place: number,
    fold?: IFold
  ): void {
    const known = this._hints.get(key);
    if (known && !known.isDisposed) {
      known.showGroup(group, fold);
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
    const hint = new Hint(this._parts, group, fold);
    layout.insertWidget(wrapper + place, hint);
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
  private _opened = new Set<string>();
  private _hints = new Map<string, Hint>();
}
