import type { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import type { ServerConnection } from '@jupyterlab/services';
import { VDomRenderer } from '@jupyterlab/ui-components';
import type { Message } from '@lumino/messaging';
import { Panel, PanelLayout, Widget } from '@lumino/widgets';
import * as React from 'react';
import { RUN_ICONS } from '../icons';
import { runLabel } from '../labels';
import { titleOf } from '../model/run-titles';
import type { IGpus } from '../tokens';
import { Head } from './head';
import { RunPageModel } from './model';
import { RunOutput } from './output';
import { UsePlot } from './plot';
import {
  Code,
  Earlier,
  Files,
  Lineage,
  Options,
  Place,
  Section,
  SweepLink,
  Times
} from './sections';
import { Trials } from './trials';

export interface IRunPageOptions {
  run: string;
  gpus: IGpus;
  rendermime: IRenderMimeRegistry;
  settings: ServerConnection.ISettings;
  /** where this page is found again */
  link: string;
}

/** A part of the page that React draws. */
class Part extends VDomRenderer<RunPageModel> {
  constructor(
    model: RunPageModel,
    name: string,
    private _draw: () => JSX.Element | null
  ) {
    super(model);
    this.addClass(name);
  }

  protected render(): JSX.Element | null {
    return this._draw();
  }
}

/** The page of one run: live output, code, times, use of GPUs, lineage, files. */
export class RunPage extends Widget {
  constructor(private _options: IRunPageOptions) {
    super();
    const { run, gpus, rendermime, settings } = _options;
    const isSeen = () => this.isVisible && !document.hidden;
    this.model = new RunPageModel(run, gpus.api, gpus.model, isSeen);
    this.addClass('jp-GpuRelease-page');
    this.title.label = run;
    this.title.icon = RUN_ICONS.queued;
    const parts = new Panel();
    parts.addClass('jp-GpuRelease-pageGrid');
    const layout = (this.layout = new PanelLayout());
    layout.addWidget(parts);
    const output = new RunOutput({
      run,
      settings,
      rendermime,
      trans: gpus.trans,
      onEnd: () => void this.model.look()
    });
    parts.addWidget(
      new Part(this.model, 'jp-GpuRelease-pageTop', () => this._drawHead())
    );
    parts.addWidget(output);
    parts.addWidget(
      new Part(this.model, 'jp-GpuRelease-pageTrials', () => this._drawTrials())
    );
    // a sweep's own output is that of its trials
    this.model.stateChanged.connect(({ page }) =>
      output.setHidden((page?.trials.length ?? 0) > 0)
    );
    parts.addWidget(
      new Part(this.model, 'jp-GpuRelease-pageCode', () => this._drawCode())
    );
    parts.addWidget(
      new Part(this.model, 'jp-GpuRelease-pageFacts', () => this._drawFacts())
    );
    this.model.stateChanged.connect(this._name, this);
  }

  readonly model: RunPageModel;

  get run(): string {
    return this._options.run;
  }

  override dispose(): void {
    if (!this.isDisposed) {
      this.model.dispose();
      super.dispose();
    }
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this.model.onShown();
  }

  private _name(): void {
    const row = this.model.row;
    if (row) {
      this.title.label = titleOf(row);
      this.title.caption = row.run;
      this.title.icon = RUN_ICONS[row.state];
    }
  }

  private _drawHead(): JSX.Element {
    const { gpus, link, run } = this._options;
    const { page, row } = this.model;
    return (
      <>
        {page ? (
          <Head
            page={page}
            gpus={gpus.model}
            runner={gpus.runner}
            link={link}
            trans={gpus.trans}
          />
        ) : (
          <div className="jp-GpuRelease-pageHead">
            <h1>{row ? titleOf(row) : run}</h1>
            {row && <div>{runLabel(gpus.trans, row.state)}</div>}
          </div>
        )}
        {this._problem && (
          <p role="alert" className="jp-GpuRelease-feedback jp-mod-error">
            {this._problem}
          </p>
        )}
      </>
    );
  }

  private get _problem(): string {
    const { isAway, page, problem } = this.model;
    const { trans } = this._options.gpus;
    if (!isAway) {
      return problem;
    }
    return page
      ? trans.__(
          'No contact with the Jupyter server: this is the last that is known.'
        )
      : trans.__(
          'No contact with the Jupyter server: more is shown when it is back.'
        );
  }

  private _drawTrials(): JSX.Element | null {
    const { trans, openRun } = this._options.gpus;
    const { page } = this.model;
    return page && <Trials page={page} trans={trans} onOpen={openRun} />;
  }

  private _drawCode(): JSX.Element | null {
    const { gpus, rendermime } = this._options;
    const { page } = this.model;
    return (
      page && <Code page={page} trans={gpus.trans} rendermime={rendermime} />
    );
  }

  private _drawFacts(): JSX.Element | null {
    const { trans, api, openRun } = this._options.gpus;
    const { page } = this.model;
    if (!page) {
      return null;
    }
    const hasUse = (page.gpu_use?.utilization ?? []).length > 1;
    const common = { page, trans };
    return (
      <>
        <SweepLink {...common} onOpen={openRun} />
        {page.trials.length === 0 && <Times {...common} />}
        <Earlier {...common} />
        {page.gpu_use && hasUse && (
          <Section title={trans.__('GPU use')}>
            <UsePlot use={page.gpu_use} now={page.now} trans={trans} />
          </Section>
        )}
        <Options {...common} />
        <Place {...common} />
        <Lineage {...common} onOpen={openRun} />
        <Files {...common} urlOf={path => api.fileUrl(page.run.run, path)} />
      </>
    );
  }
}
