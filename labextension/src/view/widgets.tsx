import { LabIcon } from '@jupyterlab/ui-components';
import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import { formatAge, formatCountdown } from '../format';
import { ISample, sparklinePoints } from '../model/utilization';
import type { IFeedback } from '../model/model';

/** What all views are given. */
export interface IContext {
  trans: TranslationBundle;
}

const SPARK_WIDTH = 40;
const SPARK_HEIGHT = 14;

interface IIconProps {
  icon: LabIcon;
  /** spoken and shown on hover; none: the icon only decorates */
  label?: string;
  kind?: string;
}

export function Icon({ icon, label, kind }: IIconProps): React.ReactElement {
  return (
    <span
      className={`jp-GpuRelease-icon${kind ? ` jp-mod-${kind}` : ''}`}
      title={label}
      aria-hidden={true}
    >
      <icon.react tag={null} width="16px" height="16px" />
    </span>
  );
}

interface IButtonProps {
  label: string;
  onClick: () => void;
  icon?: LabIcon;
  tabIndex?: number;
  isDisabled?: boolean;
  kind?: 'warn' | 'accept';
}

/** A button with a word; with `icon`, the icon stands for the word. */
export function Button(props: IButtonProps): React.ReactElement {
  const { icon, label, kind } = props;
  const look = icon ? 'jp-mod-icon' : 'jp-mod-word';
  return (
    <button
      type="button"
      className={`jp-GpuRelease-button ${look}${kind ? ` jp-mod-${kind}` : ''}`}
      title={label}
      aria-label={icon ? label : undefined}
      aria-disabled={props.isDisabled} // one that is disabled loses the focus
      tabIndex={props.tabIndex}
      onClick={event => {
        event.stopPropagation();
        if (!props.isDisabled) {
          props.onClick();
        }
      }}
      onKeyDown={event => event.stopPropagation()}
    >
      {icon ? <icon.react tag={null} width="16px" height="16px" /> : label}
    </button>
  );
}

/** How full something is, from 0 to 1. */
export function Bar({ share }: { share: number }): React.ReactElement {
  const width = `${Math.round(100 * Math.min(1, Math.max(0, share)))}%`;
  const isFull = share > 0.95;
  return (
    <span className="jp-GpuRelease-bar" aria-hidden={true}>
      <span className={isFull ? 'jp-mod-full' : undefined} style={{ width }} />
    </span>
  );
}

interface ISparklineProps {
  samples: readonly ISample[];
  spanS: number;
  title: string;
}

/** The last minutes at a glance. */
export const Sparkline = React.memo(function Sparkline(props: ISparklineProps) {
  const line = sparklinePoints(
    props.samples,
    props.spanS,
    SPARK_WIDTH,
    SPARK_HEIGHT - 2
  );
  return (
    <svg
      className="jp-GpuRelease-spark"
      width={SPARK_WIDTH}
      height={SPARK_HEIGHT}
      viewBox={`0 -1 ${SPARK_WIDTH} ${SPARK_HEIGHT}`}
      preserveAspectRatio="none"
      aria-hidden={true}
    >
      <title>{props.title}</title>
      {line && <polyline points={line} />}
    </svg>
  );
});

/** What came of an action, in place and spoken. */
export function Feedback({
  feedback
}: {
  feedback: IFeedback;
}): React.ReactElement {
  const role = feedback.kind === 'error' ? 'alert' : 'status';
  return (
    <div
      role={role}
      className={`jp-GpuRelease-feedback jp-mod-${feedback.kind}`}
      title={feedback.text}
    >
      {feedback.text}
    </div>
  );
}

/** Seconds by the wall clock, renewed every `everyMs` while shown. */
function useNow(everyMs: number): number {
  const [now, setNow] = React.useState(() => Date.now() / 1000);
  React.useEffect(() => {
    const timer = setInterval(() => setNow(Date.now() / 1000), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}

/** two answers differ by so much about when something began: it is the time that they took */
const JITTER_S = 1;

/** The moment at which something began, the same for answers that mean the same. */
function useBeginning(began: number): number {
  const known = React.useRef(began);
  if (Math.abs(began - known.current) > JITTER_S) {
    known.current = began;
  }
  return known.current;
}

/** A duration that was `seconds` at `at` and goes on. */
export function Age({
  seconds,
  at
}: {
  seconds: number;
  at: number;
}): React.ReactElement {
  const now = useNow(seconds < 600 ? 1000 : 10_000);
  const age = Math.max(now, at) - useBeginning(at - seconds);
  return <span className="jp-GpuRelease-age">{formatAge(age)}</span>;
}

/** What is left until `until`. */
export function Countdown({ until }: { until: number }): React.ReactElement {
  const now = useNow(1000);
  return (
    <span className="jp-GpuRelease-age">{formatCountdown(until - now)}</span>
  );
}
