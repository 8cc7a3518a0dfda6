import {
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import {
  Dialog,
  ICommandPalette,
  ReactWidget,
  showDialog
} from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { withoutBackticks } from '../format';
import { IApi, sentenceOf } from '../model/api';
import { IFinding, IReport } from '../model/types';
import { CommandIDs, IGpus } from '../tokens';

const LEVELS: readonly IFinding['level'][] = ['broken', 'note', 'ok'];
const SIGNS = { broken: '✗', note: '·', ok: '✓' };

/** A newer server may have levels that are not known here. */
function levelOf({ level }: IFinding): IFinding['level'] {
  return LEVELS.includes(level) ? level : 'note';
}

/** What a sign means, for who does not see it. */
function levelText(trans: TranslationBundle, level: IFinding['level']): string {
  switch (level) {
    case 'broken':
      return trans.__('Broken');
    case 'note':
      return trans.__('Worth knowing');
    case 'ok':
      return trans.__('Fine');
  }
}

interface IFindingsProps {
  report: IReport;
  trans: TranslationBundle;
}

/** How many there are of each level. */
function summaryOf(report: IReport, trans: TranslationBundle): string {
  const number = (level: IFinding['level']) =>
    report.findings.filter(finding => levelOf(finding) === level).length;
  return trans.__(
    '%1 broken, %2 worth knowing, %3 fine',
    number('broken'),
    number('note'),
    number('ok')
  );
}

/** Findings, what is broken first, each with what to do about it. */
function Findings(props: IFindingsProps): React.ReactElement {
  const { report, trans } = props;
  const findings = LEVELS.flatMap(level =>
    report.findings
      .filter(finding => levelOf(finding) === level)
      .map(finding => ({ ...finding, level }))
  );
  return (
    <div
      role="region"
      aria-label={trans.__('Findings')}
      tabIndex={0} // there may be less room than it needs
    >
      <ul>
        {findings.map((finding, at) => (
          <li key={at} className={`jp-mod-${finding.level}`}>
            <span role="img" aria-label={levelText(trans, finding.level)}>
              {SIGNS[finding.level]}
            </span>
            <div>
              <small>
                {[finding.where, finding.check].filter(Boolean).join(' · ')}
              </small>
              <div>{withoutBackticks(finding.finding)}</div>
              {finding.mend && (
                <div className="jp-GpuRelease-mend">
                  → {withoutBackticks(finding.mend)}
                </div>
              )}
            </div>
          </li>
        ))}
      </ul>
    </div>
  );
}

interface IExaminationProps {
  api: Pick<IApi, 'doctor'>;
  trans: TranslationBundle;
}

/** Asks the server to look at everything now; then what it found, or why it could not. */
export function Examination(props: IExaminationProps): React.ReactElement {
  const { api, trans } = props;
  const [report, setReport] = React.useState<IReport | null>(null);
  const [problem, setProblem] = React.useState('');
  React.useEffect(() => {
    api
      .doctor()
      .then(setReport, (error: unknown) => setProblem(sentenceOf(error)));
  }, [api]);
  return (
    <div className="jp-GpuRelease-findings">
      {!problem && (
        <p role="status" aria-live="polite" aria-busy={!report}>
          {report
            ? summaryOf(report, trans)
            : trans.__('Looking at server, gateway and nodes…')}
        </p>
      )}
      {report && <Findings report={report} trans={trans} />}
      {problem && (
        <p className="jp-GpuRelease-refusal" role="alert">
          {problem}
        </p>
      )}
    </div>
  );
}

export const doctorPlugin: JupyterFrontEndPlugin<void> = {
  id: 'jupyter-gpu-release:doctor',
  description: 'Checks server, gateway and nodes, and says what to do.',
  autoStart: true,
  requires: [IGpus],
  optional: [ICommandPalette],
  activate: (
    { commands }: JupyterFrontEnd,
    { api, trans }: IGpus,
    palette: ICommandPalette | null
  ) => {
    const command = CommandIDs.doctor;
    commands.addCommand(command, {
      label: trans.__('Check the GPU Cluster…'),
      caption: trans.__(
        'What is wrong with server, gateway and nodes, and what to do'
      ),
      execute: async () => {
        await showDialog({
          title: trans.__('Check of the GPU Cluster'),
          body: ReactWidget.create(<Examination api={api} trans={trans} />),
          buttons: [Dialog.okButton({ label: trans.__('Close') })]
        });
      }
    });
    palette?.addItem({ command, category: trans.__('GPUs') });
  }
};
