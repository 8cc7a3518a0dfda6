import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { withoutBackticks } from '../format';
import { RUN_ICONS } from '../icons';
import { actionLabel, whyText, stateText, waitText } from '../labels';
import { ActionRunner, runTarget } from '../model/actions';
import type { GpuModel } from '../model/model';
import { pinActions, runActions } from '../model/permissions';
import { titleOf } from '../model/run-titles';
import { IRunPage, IRunRow, isTerminal, waitingS, waits } from '../model/types';
import { Outcome } from '../view/details';
import { Age, Button, Icon } from '../view/widgets';
import { CopyButton } from './copy';

interface IHeadProps {
  page: IRunPage;
  gpus: GpuModel;
  runner: ActionRunner;
  link: string;
  trans: TranslationBundle;
}

/** What the run is, how it stands, and what can be done. */
export function Head(props: IHeadProps): React.ReactElement {
  const { page, gpus, runner, trans } = props;
  const { run } = page;
  const { snapshot } = gpus;
  const feedback = gpus.feedback.get(`run:${run.run}`);
  const who = { ...snapshot, me: page.mine ? run.user : snapshot.me };
  // a sweep's trials are pinned one by one, and what follows it is its cell
  const isSweep = page.trials.length > 0;
  const own = isSweep ? [] : pinActions(run, who);
  const actions = [...runActions(run, who), ...own].filter(action =>
    action === 'open' ? runner.canOpen : action !== 'attach' || !isSweep
  );
  return (
    <div className="jp-GpuRelease-pageHead">
      <h1>
        <Icon icon={RUN_ICONS[run.state]} kind={run.state} />
        <span>{titleOf(run)}</span>
      </h1>
      <p className="jp-GpuRelease-standing">
        <Standing page={page} trans={trans} />
      </p>
      {!page.is_cluster_known && (
        <p className="jp-mod-quiet">
          {trans.__(
            'No cluster answers now: this is what the store has of the run.'
          )}
        </p>
      )}
      <div className="jp-GpuRelease-buttons">
        {actions.map(action => (
          <Button
            key={action}
            label={actionLabel(trans, action)}
            kind={action === 'cancel' ? 'warn' : undefined}
            isDisabled={feedback?.kind === 'busy'}
            onClick={() => void runner.run(action, runTarget(run))}
          />
        ))}
        <CopyButton label={trans.__('Copy id')} text={run.run} trans={trans} />
        {(!isSweep || run.detached) && (
          <CopyButton
            label={trans.__('Copy %1 line', '%gpu_attach')}
            text={`%gpu_attach ${run.run}`}
            trans={trans}
          />
        )}
        <CopyButton
          label={trans.__('Copy link')}
          text={props.link}
          trans={trans}
        />
      </div>
      <Outcome feedback={feedback} />
    </div>
  );
}

/** Its state, and the most important figure or reason. */
function Standing(props: {
  page: IRunPage;
  trans: TranslationBundle;
}): React.ReactElement {
  const { page, trans } = props;
  const { run, now } = page;
  const word = <strong>{stateText(trans, run)}</strong>;
  if (waits(run.state)) {
    return (
      <>
        {word} <Age seconds={waitingS(run)} at={now} />
        {run.reason && ` · ${run.reason}`}
      </>
    );
  }
  if (!isTerminal(run.state) && run.gone_at === null) {
    return (
      <>
        {word} <Age seconds={run.held_s} at={now} />
      </>
    );
  }
  const mend = withoutBackticks(run.error?.mend ?? '');
  const texts = [endOf(run, trans), mend].filter(Boolean);
  return (
    <>
      {word}
      {texts.map((text, index) => (
        <React.Fragment key={index}>
          {' · '}
          {text}
        </React.Fragment>
      ))}
    </>
  );
}

function endOf(run: IRunRow, trans: TranslationBundle): string {
  if (!isTerminal(run.state)) {
    const last = run.earlier?.[run.earlier.length - 1] ?? '';
    return waitText(trans, run) || (waits(run.state) ? last : '');
  }
  return whyText(trans, run);
}
