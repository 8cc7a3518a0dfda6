import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { errorText, formatSeconds } from '../format';
import { runWord } from '../labels';
import { parametersOf, valueOf } from '../model/sweeps';
import { IRunPage, IRunRow } from '../model/types';
import { Section } from './sections';

type Column = 'trial' | 'value' | 'seconds';

interface ITrialsProps {
  page: IRunPage;
  trans: TranslationBundle;
  onOpen: (run: string) => void;
}

/** Of a sweep: each trial with its parameters, its value and what it took of GPUs. */
export function Trials(props: ITrialsProps): React.ReactElement | null {
  const { page, trans, onOpen } = props;
  const [{ by, isFalling }, sort] = React.useState<{
    by: Column;
    isFalling: boolean;
  }>({ by: 'trial', isFalling: false });
  if (page.trials.length === 0) {
    return null;
  }
  const named = page.trials.flatMap(trial => Object.keys(trial.metric ?? {}));
  const hasPrice = page.trials.some(trial => trial.price);
  const head = (column: Column, label: string) => (
    <th
      scope="col"
      aria-sort={
        by !== column ? 'none' : isFalling ? 'descending' : 'ascending'
      }
    >
      <button
        onClick={() =>
          sort({ by: column, isFalling: by === column && !isFalling })
        }
      >
        {label}
        {by === column && (isFalling ? ' ▾' : ' ▴')}
      </button>
    </th>
  );
  return (
    <Section title={trans.__('Trials')}>
      <div
        className="jp-GpuRelease-trials"
        role="region"
        aria-label={trans.__('Trials')}
        tabIndex={0}
      >
        <table>
          <thead>
            <tr>
              {head('trial', trans.__('Trial'))}
              <th scope="col">{trans.__('Parameters')}</th>
              {head('value', named[0] ?? trans.__('Value'))}
              <th scope="col">{trans.__('State')}</th>
              {head('seconds', trans.__('GPU time'))}
              {hasPrice && <th scope="col">{trans.__('Price')}</th>}
            </tr>
          </thead>
          <tbody>
            {sorted(page.trials, by, isFalling).map(trial => (
              <tr key={trial.run}>
                <td>
                  <a
                    href="#"
                    title={trial.run}
                    onClick={event => {
                      event.preventDefault();
                      onOpen(trial.run);
                    }}
                  >
                    {numberOf(trial)}
                  </a>
                </td>
                <td>
                  <code>{parametersOf(trial)}</code>
                </td>
                <td>{valueOf(trial)}</td>
                <td title={trial.error ? errorText(trial.error) : trial.reason}>
                  {runWord(trans, trial)}
                </td>
                <td>
                  {trial.granted_at !== null &&
                    formatSeconds(trial.held_s * trial.gpus)}
                </td>
                {hasPrice && <td>{trial.price}</td>}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Section>
  );
}

function numberOf(trial: IRunRow): number {
  return Number(/\d+$/.exec(trial.name)?.[0]);
}

/** Trials without a value come last. */
function sorted(
  trials: readonly IRunRow[],
  by: Column,
  isFalling: boolean
): IRunRow[] {
  const rank = (trial: IRunRow): number | undefined =>
    by === 'trial'
      ? numberOf(trial)
      : by === 'seconds'
        ? trial.held_s * trial.gpus
        : Object.values(trial.metric ?? {})[0];
  const sign = isFalling ? -1 : 1;
  return [...trials].sort((a, b) => {
    const [first, second] = [rank(a), rank(b)];
    if (first === undefined || second === undefined) {
      return Number(first === undefined) - Number(second === undefined);
    }
    return sign * (first - second);
  });
}
