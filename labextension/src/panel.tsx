import type { TranslationBundle } from '@jupyterlab/translation';
import {
  filterListIcon,
  PanelWithToolbar,
  refreshIcon,
  SidePanel,
  ToolbarButton
} from '@jupyterlab/ui-components';
import { MessageLoop } from '@lumino/messaging';
import { type AccordionPanel, Widget } from '@lumino/widgets';
import * as React from 'react';
import type { Advisor } from './cells/advice';
import { IArrangement } from './model/sorting';
import { ActionRunner, START_KEY } from './model/actions';
import { gpuIcon } from './icons';
import { GpuModel } from './model/model';
import { ISnapshot } from './model/snapshot';
import { Advice, AdviceButton, adviceHeight } from './view/advice';
import { Filter } from './view/filter';
import { gpuHeight } from './view/gpu-items';
import { Gpus } from './view/gpus';
import { FocusMemory } from './view/list/focus-memory';
import * as heights from './view/list/row-heights';
import { Kernels } from './view/kernels';
import { LiveView, ViewState } from './view/live-view';
import { Queue, queueHeight } from './view/queue';
import { Runs } from './view/runs';
import { shareOut } from './view/list/section-heights';
import { SituationView } from './view/empty-states';
import { Summary } from './view/summary';
import { Usage, usageHeight } from './view/usage';

export const PANEL_ID = 'jupyter-gpu-release-panel';
const FILTER_FROM_ROWS = 9;
/** share of the height */
const MOST_FOR_ADVICE = 0.6;

/** What the panel is made of. */
export interface IPanelOptions {
  model: GpuModel;
  runner: ActionRunner;
  trans: TranslationBundle;
  /** none: there are no notebooks here */
  advisor: Advisor | null;
  /** shows the menu of arrangements below a button */
  onArrange: (button: HTMLElement) => void;
  /** looks for what is wrong; none: nothing can, for now */
  readonly onCheck?: () => void;
}

interface ISection {
  widget: PanelWithToolbar;
  /** how high its content is, in pixels; 0: not shown */
  wants: (snapshot: ISnapshot) => number;
  title: (snapshot: ISnapshot) => string;
  /** its part of the room beside the others' (1) */
  weight?: number;
}

/** The sidebar. */
export class GpuPanel extends SidePanel {
  constructor(private _options: IPanelOptions) {
    super();
    const { model, trans, advisor } = _options;
    this.id = PANEL_ID;
    this.addClass('jp-GpuRelease');
    this.title.icon = gpuIcon;
    this.title.caption = trans.__('GPUs');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', trans.__('GPUs'));
    this.header.addWidget(
      new LiveView(model, this._state, () => this._drawHeader())
    );
    this._sections = this._makeSections();
    this._focus = new FocusMemory(this.node);
    model.stateChanged.connect(this._arrangeSections, this);
    advisor?.changed.connect(this._onAdvice, this);
    this._arrangeSections();
    // the header takes from the sections' height when it grows, and nobody tells Lumino
    if (typeof ResizeObserver !== 'undefined') {
      this._observer = new ResizeObserver(() => this._fitSections());
      this._observer.observe(this.content.node);
    }
  }

  set arrangement(arrangement: IArrangement) {
    this._state.arrangement = arrangement;
  }

  override dispose(): void {
    const { model, advisor } = this._options;
    model.stateChanged.disconnect(this._arrangeSections, this);
    advisor?.changed.disconnect(this._onAdvice, this);
    this._focus.dispose();
    this._observer?.disconnect();
    const hidden = this._sections.filter(({ widget }) => !widget.parent);
    super.dispose();
    hidden.forEach(({ widget }) => widget.dispose());
  }

  private _drawHeader(): JSX.Element {
    const { model, runner, trans, advisor, onCheck } = this._options;
    const { snapshot } = model;
    const gpus = snapshot.hosts.flatMap(host => host.gpus).length;
    const rows = Math.max(gpus, snapshot.queue.length, snapshot.runs.length);
    const hasSummary =
      snapshot.hosts.length > 0 || snapshot.situation === 'ready';
    return (
      <>
        {hasSummary && <Summary snapshot={snapshot} trans={trans} />}
        <SituationView
          snapshot={snapshot}
          trans={trans}
          onRetry={() => void model.refresh()}
          onStart={() => void runner.startCluster()}
          onCheck={onCheck}
          feedback={model.feedback.get(START_KEY)}
        />
        {advisor && <AdviceButton advisor={advisor} trans={trans} />}
        {(rows >= FILTER_FROM_ROWS || this._state.filter) && (
          <Filter
            trans={trans}
            text={this._state.filter}
            onChange={text => (this._state.filter = text)}
          />
        )}
      </>
    );
  }

  private _makeSections(): ISection[] {
    const { model, runner, trans, advisor } = this._options;
    const state = this._state;
    const common = { model, runner, trans };
    const gpus = this._section(() => (
      <Gpus {...common} arrangement={state.arrangement} filter={state.filter} />
    ));
    this._addButtons(gpus);
    const hasCluster = ({ situation }: ISnapshot) => situation === 'ready';
    return [
      {
        widget: this._section(() =>
          advisor ? <Advice advisor={advisor} trans={trans} /> : <></>
        ),
        wants: () => (advisor ? adviceHeight(advisor) : 0),
        title: () =>
          trans.__('Advice') + (advisor?.name ? `: ${advisor.name}` : '')
      },
      {
        widget: gpus,
        wants: ({ hosts }) =>
          hosts
            .flatMap(({ gpus }) => [heights.GROUP, ...gpus.map(gpuHeight)])
            .reduce((sum, height) => sum + height, 0),
        title: () => trans.__('GPUs'),
        weight: 2
      },
      {
        widget: this._section(() => <Runs {...common} filter={state.filter} />),
        wants: snapshot =>
          hasCluster(snapshot) || snapshot.runs.length > 0
            ? rowsPx(snapshot.runs.length)
            : 0,
        title: () => trans.__('My runs')
      },
      {
        widget: this._section(() => (
          <Queue {...common} filter={state.filter} />
        )),
        wants: snapshot =>
          hasCluster(snapshot) || snapshot.queue.length > 0
            ? queueHeight(snapshot)
            : 0,
        title: ({ queue }) =>
          trans.__('Queue') + (queue.length ? ` (${queue.length})` : '')
      },
      {
        widget: this._section(() => <Kernels {...common} />),
        wants: ({ kernels }) => kernels.length * heights.ROW,
        title: () => trans.__('Kernels with GPU memory')
      },
      {
        widget: this._section(() =>
          model.snapshot.usage ? (
            <Usage
              usage={model.snapshot.usage}
              me={model.snapshot.me}
              trans={trans}
            />
          ) : (
            <></>
          )
        ),
        wants: ({ usage, runs, isAdmin }) =>
          usage && (runs.length > 0 || isAdmin) ? usageHeight(usage) : 0,
        title: () => trans.__('GPU-hours'),
        weight: 0.75
      }
    ];
  }

  private _section(draw: () => JSX.Element): PanelWithToolbar {
    const section = new PanelWithToolbar();
    section.addClass('jp-GpuRelease-section');
    section.addWidget(new LiveView(this._options.model, this._state, draw));
    return section;
  }

  private _addButtons(section: PanelWithToolbar): void {
    const { model, trans, onArrange } = this._options;
    const arrangeButton: ToolbarButton = new ToolbarButton({
      icon: filterListIcon,
      tooltip: trans.__('Group and sort'),
      onClick: () => onArrange(arrangeButton.node)
    });
    section.toolbar.addItem('arrange', arrangeButton);
    section.toolbar.addItem(
      'refresh',
      new ToolbarButton({
        icon: refreshIcon,
        tooltip: trans.__('Look again now'),
        onClick: () => void model.refresh()
      })
    );
    section.toolbar.node.setAttribute('aria-label', trans.__('GPU list'));
  }

  protected override onResize(message: Widget.ResizeMessage): void {
    super.onResize(message);
    this._shareHeight();
  }

  private _fitSections(): void {
    MessageLoop.sendMessage(this.content, Widget.ResizeMessage.UnknownSize);
    this._shareHeight();
  }

  private _onAdvice(): void {
    this._arrangeSections();
    this._state.renew();
  }

  /** Show the sections that have something to say. */
  private _arrangeSections(): void {
    const { snapshot } = this._options.model;
    const content = this.content as AccordionPanel;
    let index = 0;
    for (const { widget, title, wants } of this._sections) {
      const label = title(snapshot);
      if (widget.title.label !== label) {
        widget.title.label = label;
      }
      const isWanted = wants(snapshot) > 0;
      if (isWanted && widget.parent === null) {
        content.insertWidget(index, widget);
        this._placeInDocument(index);
      } else if (!isWanted && widget.parent !== null) {
        widget.parent = null;
      }
      index += isWanted ? 1 : 0;
    }
    this._shareHeight();
    content.handles.forEach(handle => {
      handle.onpointerdown = () => (this._isSized = true);
    });
  }

  /** Lumino appends a new section: keys and screen readers would meet it last, wherever it is shown. */
  private _placeInDocument(index: number): void {
    const { node, titles, widgets, handles } = this.content as AccordionPanel;
    for (const each of [titles[index], widgets[index].node, handles[index]]) {
      node.insertBefore(each, titles[index + 1] ?? null);
    }
  }

  /** Give each open section the height that its content needs, as far as there is room. */
  private _shareHeight(): void {
    const { snapshot } = this._options.model;
    const content = this.content as AccordionPanel;
    const shown = this._sections.filter(({ widget }) => widget.parent);
    const open = shown.filter(({ widget }) => !widget.isHidden);
    const gap = content.titleSpace + content.spacing;
    const room = content.node.clientHeight - shown.length * gap;
    const wanted = open.map(({ wants }) =>
      Math.max(heights.SECTION, wants(snapshot))
    );
    const shape = [room, ...wanted].join();
    if (this._isSized || room <= 0 || shape === this._shape) {
      return;
    }
    this._shape = shape;
    // advice has just been asked for: it comes first
    const first =
      this._options.advisor?.isOpen && open[0] === this._sections[0]
        ? Math.min(wanted[0], MOST_FOR_ADVICE * room)
        : 0;
    const skip = first ? 1 : 0;
    const weights = open.slice(skip).map(({ weight }) => weight ?? 1);
    const rest = shareOut(wanted.slice(skip), room - first, weights);
    const shares = first ? [first, ...rest] : rest;
    content.setRelativeSizes(
      shown.map(section => shares[open.indexOf(section)] ?? 0)
    );
  }

  private _state = new ViewState();
  private _sections: ISection[];
  private _focus: FocusMemory;
  private _observer?: ResizeObserver;
  private _shape = '';
  /** the user has moved a border: sizes are his from then on */
  private _isSized = false;
}

function rowsPx(rows: number): number {
  return Math.max(1, rows) * heights.ROW;
}
