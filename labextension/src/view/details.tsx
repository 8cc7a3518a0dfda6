import * as React from 'react';
import type { ActionRunner, ITarget } from '../model/actions';
import type { IFeedback } from '../model/model';
import { Action } from '../model/permissions';
import type { TranslationBundle } from '@jupyterlab/translation';
import { withoutBackticks } from '../format';
import { actionLabel } from '../labels';
import { attachIcon, extendIcon, pinIcon, releaseIcon } from '../icons';
import { launchIcon, LabIcon, stopIcon } from '@jupyterlab/ui-components';
import * as heights from './list/row-heights';
import { Button, Feedback } from './widgets';

/** A name and its value; a row of an opened item. */
export type Fact = [name: string, value: string];

const ICONS: Record<Action, LabIcon> = {
  release: releaseIcon,
  extend: extendIcon,
  cancel: stopIcon,
  attach: attachIcon,
  open: launchIcon,
  'release-kernel': releaseIcon,
  'keep-kernel': extendIcon,
  show: launchIcon,
  pin: pinIcon,
  unpin: pinIcon
};

/** How high the opened part of an item is. */
export function factsHeight(facts: number, actions: number): number {
  return (
    facts * heights.FACT + (actions ? heights.BUTTONS : 0) + heights.PADDING
  );
}

export function feedbackHeight(feedback: IFeedback | undefined): number {
  return feedback ? heights.FEEDBACK : 0;
}

interface IOfferProps {
  trans: TranslationBundle;
  actions: readonly Action[];
  runner: ActionRunner;
  target: ITarget;
  /** one thing is done at a time */
  isBusy: boolean;
}

/** The actions of a row as icons; they are seen when the row is hovered or has the focus. */
export function IconActions(
  props: IOfferProps & { isActive: boolean }
): React.ReactElement {
  return (
    <span className="jp-GpuRelease-actions">
      {props.actions.map(action => (
        <Button
          key={action}
          icon={ICONS[action]}
          label={actionLabel(props.trans, action)}
          tabIndex={props.isActive ? 0 : -1}
          isDisabled={props.isBusy}
          onClick={() => void props.runner.run(action, props.target)}
        />
      ))}
    </span>
  );
}

/** What an opened item tells, and its actions in words. */
export function Facts(
  props: IOfferProps & { facts: readonly Fact[]; isActive: boolean }
): React.ReactElement {
  return (
    <div className="jp-GpuRelease-facts">
      {props.facts.map(([name, value], index) => (
        <div key={index} className="jp-GpuRelease-fact">
          <span>{name}</span>
          <span title={withoutBackticks(value)}>{withoutBackticks(value)}</span>
        </div>
      ))}
      {props.actions.length > 0 && (
        <div className="jp-GpuRelease-buttons">
          {props.actions.map(action => (
            <Button
              key={action}
              label={actionLabel(props.trans, action)}
              kind={action === 'cancel' ? 'warn' : undefined}
              tabIndex={props.isActive ? 0 : -1}
              isDisabled={props.isBusy}
              onClick={() => void props.runner.run(action, props.target)}
            />
          ))}
        </div>
      )}
    </div>
  );
}

/** The result of an action, if there is one to show. */
export function Outcome({
  feedback
}: {
  feedback: IFeedback | undefined;
}): React.ReactElement | null {
  return feedback ? <Feedback feedback={feedback} /> : null;
}
