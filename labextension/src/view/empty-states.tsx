import { Clipboard } from '@jupyterlab/apputils';
import type { TranslationBundle } from '@jupyterlab/translation';
import { copyIcon } from '@jupyterlab/ui-components';
import * as React from 'react';
import { formatAge, formatSeconds } from '../format';
import { gpuIcon } from '../icons';
import { IFeedback } from '../model/model';
import { ISnapshot, Situation } from '../model/snapshot';
import { Age, Button, Feedback } from './widgets';

interface ISituationProps {
  snapshot: ISnapshot;
  trans: TranslationBundle;
  onRetry: () => void;
  onStart: () => void;
  /** looks for the reason, where there may be one; none: nobody can */
  onCheck?: () => void;
  /** what came of asking for a start, where it was refused */
  feedback?: IFeedback;
}

interface IWords {
  title: string;
  text: string;
  /** what to type in a terminal */
  command?: string;
  isRetryable?: boolean;
  /** what the button says that starts a cluster */
  start?: string;
  /** seconds for which it has been under way */
  elapsedS?: number;
}

/** In these the server answers, and can look for what is wrong. */
const CHECKED: ReadonlySet<Situation> = new Set<Situation>([
  'no-cluster',
  'no-gpu',
  'gateway-down',
  'refused'
]);

/** Why there is nothing (or not all) to see, and what to do about it; nothing when all is well. */
export function SituationView(
  props: ISituationProps
): React.ReactElement | null {
  const { snapshot, trans, onRetry, onStart, onCheck, feedback } = props;
  if (snapshot.situation === 'loading') {
    return (
      <div className="jp-GpuRelease-situation" role="status" aria-busy={true}>
        <div className="jp-GpuRelease-spinner" aria-hidden={true} />
        <p>{trans.__('Looking at the GPUs…')}</p>
      </div>
    );
  }
  const words = wordsOf(snapshot, trans);
  if (words === null) {
    return null;
  }
  const isCheckable =
    CHECKED.has(snapshot.situation) && words.elapsedS === undefined;
  const isBanner = snapshot.hosts.length > 0;
  return (
    <div
      className={`jp-GpuRelease-situation${isBanner ? ' jp-mod-banner' : ''}`}
      role={isBanner ? 'alert' : 'status'}
    >
      {!isBanner && (
        <gpuIcon.react tag="span" width="40px" height="40px" aria-hidden />
      )}
      <h3>{words.title}</h3>
      {words.elapsedS !== undefined && (
        <div className="jp-GpuRelease-spinner" aria-hidden={true} />
      )}
      <p>
        {words.text}
        {words.elapsedS !== undefined && (
          <>
            {' · '}
            <Age seconds={words.elapsedS} at={snapshot.at} />
          </>
        )}
      </p>
      {words.start && (
        <Button
          label={words.start}
          kind="accept"
          isDisabled={feedback?.kind === 'busy'}
          onClick={onStart}
        />
      )}
      {feedback?.kind === 'error' && <Feedback feedback={feedback} />}
      {words.command && <Command command={words.command} trans={trans} />}
      {words.isRetryable && (
        <Button label={trans.__('Try now')} onClick={onRetry} />
      )}
      {onCheck && isCheckable && (
        <Button label={trans.__('Check…')} onClick={onCheck} />
      )}
    </div>
  );
}

function Command(props: {
  command: string;
  trans: TranslationBundle;
}): React.ReactElement {
  const { command, trans } = props;
  return (
    <div className="jp-GpuRelease-command">
      <code>{command}</code>
      <Button
        icon={copyIcon}
        label={trans.__('Copy')}
        onClick={() => Clipboard.copyToSystem(command)}
      />
    </div>
  );
}

function wordsOf(snapshot: ISnapshot, trans: TranslationBundle): IWords | null {
  const { message, mend, nextTryS, staleS } = snapshot;
  switch (snapshot.situation) {
    case 'ready':
    case 'loading':
      return null;
    case 'no-cluster':
      return withoutCluster(snapshot, trans);
    case 'no-gpu':
      return {
        title: trans.__('The cluster has no GPUs'),
        text: trans.__(
          'It answers, but none of its nodes offers a GPU now. Nodes that start later appear by themselves.'
        ),
        command: 'jupyter gpu doctor'
      };
    case 'gateway-down': {
      const next =
        nextTryS >= 1
          ? ' ' + trans.__('Next try in %1.', formatSeconds(nextTryS))
          : '';
      return {
        title: trans.__('The cluster does not answer'),
        text:
          sentence(message, mend) +
          trans.__(
            'Running cells go on, and notebooks keep their variables and results. New GPU cells have to wait.'
          ) +
          (staleS >= 1
            ? ' ' + trans.__('What is shown is %1 old.', formatAge(staleS))
            : '') +
          next,
        isRetryable: true
      };
    }
    case 'refused':
      return {
        title: trans.__('The cluster refuses this server'),
        text: sentence(message, mend).trim(),
        isRetryable: true
      };
    case 'not-permitted':
      return {
        title: trans.__('Not permitted'),
        text: trans.__(
          'You may not see the GPUs through this Jupyter server. Ask its administrator.'
        )
      };
    case 'not-enabled':
      return {
        title: trans.__('The server extension is not enabled'),
        text: trans.__('Enable it, then restart the Jupyter server.'),
        command: 'jupyter server extension enable jupyter_gpu_release'
      };
    case 'offline':
      return {
        title: trans.__('No contact with the Jupyter server'),
        text: isKnown(snapshot)
          ? trans.__('What is shown may be out of date.')
          : trans.__(
              'What the GPUs do is seen when it answers again. Runs on a cluster go on without it.'
            ),
        isRetryable: true
      };
  }
}

/** Something was seen before. */
function isKnown({ hosts, runs, queue }: ISnapshot): boolean {
  return hosts.length + runs.length + queue.length > 0;
}

/** No cluster is a normal state: it says how to get one. */
function withoutCluster(
  { start, mayAct }: ISnapshot,
  trans: TranslationBundle
): IWords {
  const title = trans.__('No GPU cluster');
  const team = trans.__('A team’s cluster is named by JUPYTER_GPU_URL.');
  if (start?.state === 'starting') {
    const text = sentence(start.step ?? '', '')
      .trim()
      .replace(/\.$/, '');
    return {
      title: trans.__('The cluster is starting'),
      text,
      elapsedS: start.elapsed_s ?? 0
    };
  }
  if (start?.state === 'refused' || (start && !mayAct)) {
    return {
      title,
      text: `${trans.__('None runs on this machine.')} ${sentence(start.message ?? '', start.mend ?? '')}`
    };
  }
  if (start?.state === 'failed') {
    return {
      title: trans.__('The cluster did not start'),
      text: sentence(start.message ?? '', start.mend ?? '').trim(),
      start: trans.__('Try again'),
      command: 'jupyter gpu doctor'
    };
  }
  const here = trans.__(
    'Start one on this machine, here or with the first %1 cell. GPUs are simulated where there are none.',
    '%%gpu_train'
  );
  return {
    title,
    text: `${here} ${team}`,
    start: start ? trans.__('Start') : undefined,
    command: 'jupyter gpu start'
  };
}

function sentence(message: string, mend: string): string {
  const words = [message, mend]
    .filter(Boolean)
    .join('; ')
    .replace(/`([^`]*)`/g, '$1');
  const isWord = /^[a-z]+\s/.test(words); // an address is not
  const first = isWord ? words[0].toUpperCase() : words.slice(0, 1);
  return words ? `${first}${words.slice(1)}. ` : '';
}
