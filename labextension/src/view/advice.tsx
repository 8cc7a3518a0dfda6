import type { TranslationBundle } from '@jupyterlab/translation';
import { closeIcon } from '@jupyterlab/ui-components';
import * as React from 'react';
import type { Advisor } from '../cells/advice';
import { formatSeconds } from '../format';
import type { ICellAdvice } from '../model/types';
import * as heights from './list/row-heights';
import { Button } from './widgets';

const MOST_NAMES = 6;

interface IAdviceProps {
  advisor: Advisor;
  trans: TranslationBundle;
}

/** How high all of it is, more or less; 0: there is none. */
export function adviceHeight({ isOpen, advice }: Advisor): number {
  return isOpen
    ? heights.CONCLUSION + heights.ADVICE * (advice?.cells.length ?? 0)
    : 0;
}

/** Asks for advice on the notebook in front. */
export function AdviceButton(props: IAdviceProps): React.ReactElement | null {
  const { advisor, trans } = props;
  return advisor.isAskable ? (
    <div className="jp-GpuRelease-ask">
      <Button
        label={trans.__('Advise on this notebook')}
        onClick={() => void advisor.ask()}
      />
    </div>
  ) : null;
}

/** Which cells of a notebook are worth a GPU cell, what would travel, and what that saves. */
export function Advice({ advisor, trans }: IAdviceProps): React.ReactElement {
  const { advice, notice } = advisor;
  const worth = advice?.cells.filter(cell => cell.advice === 'gpu') ?? [];
  return (
    <div className="jp-GpuRelease-advice">
      <div className="jp-GpuRelease-adviceHead">
        <p role="status">
          {[notice, advice?.conclusion].filter(Boolean).join(' ')}
        </p>
        <Button
          icon={closeIcon}
          label={trans.__('Close the advice')}
          onClick={() => advisor.close()}
        />
      </div>
      {worth.length > 1 && (
        <Button
          label={trans.__('Make all %1 GPU cells', worth.length)}
          kind="accept"
          onClick={() => void advisor.make(worth)}
        />
      )}
      <ul aria-label={trans.__('Advice')}>
        {advice?.cells.map(cell => (
          <Row key={cell.at} cell={cell} advisor={advisor} trans={trans} />
        ))}
      </ul>
    </div>
  );
}

function Row(props: IAdviceProps & { cell: ICellAdvice }): React.ReactElement {
  const { cell, advisor, trans } = props;
  const isWorth = cell.advice === 'gpu';
  const travels = isWorth || cell.advice === 'already';
  const line = cell.line.replace('%%gpu_train', '').trim();
  return (
    <li className={isWorth ? 'jp-mod-worth' : ''}>
      <div className="jp-GpuRelease-adviceTitle">
        <button
          type="button"
          title={trans.__('Show the cell: %1', cell.first_line)}
          onClick={() => void advisor.show(cell)}
        >
          {cell.first_line || trans.__('Cell %1', cell.number)}
        </button>
        {cell.took_s !== null && (
          <span className="jp-GpuRelease-when">
            {formatSeconds(cell.took_s)}
          </span>
        )}
      </div>
      <div>
        <strong>{cell.verdict}</strong>
        {` · ${[cell.reason, line].filter(Boolean).join(' · ')}`}
      </div>
      {travels && (
        <div className="jp-GpuRelease-travels">
          {trans.__('sent: %1', names(cell.sent, trans))}
          {' · '}
          {trans.__('back: %1', names(cell.back, trans))}
        </div>
      )}
      {isWorth && (
        <Button
          label={trans.__('Make it a GPU cell')}
          onClick={() => void advisor.make([cell])}
        />
      )}
    </li>
  );
}

function names(all: string[], trans: TranslationBundle): string {
  const more = all.length - MOST_NAMES;
  const shown = all.slice(0, MOST_NAMES).join(', ');
  return more > 0
    ? trans.__('%1 and %2 more', shown, more)
    : shown || trans.__('nothing');
}
