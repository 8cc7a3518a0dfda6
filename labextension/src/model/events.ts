import type { Event } from '@jupyterlab/services';
import type { ReadonlyJSONObject } from '@lumino/coreutils';
import { Signal } from '@lumino/signaling';
import { ICullEvent } from './types';
import type { GpuModel } from './model';

const SCHEMAS = 'https://schema.jupyter-gpu-release.org/';
const ACTS: readonly string[] = ['release', 'suspend', 'shutdown'];
const ANSWERS: readonly string[] = ['keep', 'extend', 'release', 'cancel'];

type Emission = ReadonlyJSONObject & { schema_id: string };

/** Turns the server's events into looks at the status and into warnings. */
export class EventFeed {
  readonly culls = new Signal<this, ICullEvent>(this);

  constructor(
    private _model: GpuModel,
    stream: Event.Stream
  ) {
    stream.connect(this._onEvent, this);
  }

  private _onEvent(_: unknown, event: Emission): void {
    if (!event.schema_id.startsWith(SCHEMAS)) {
      return;
    }
    const cull = cullOf(event);
    if (cull) {
      this.culls.emit(cull);
    }
    this._model.nudge();
  }
}

/** What the idle policy announces or did, or a person's answer to it; null for every other event. */
export function cullOf(event: Emission): ICullEvent | null {
  const name = event.schema_id.slice(SCHEMAS.length).split('/')[0];
  const text = (value: unknown) => (typeof value === 'string' ? value : '');
  const action = text(event.action);
  const id = text(event.subject);
  const phase =
    name === 'request'
      ? ANSWERS.includes(action)
        ? 'answered'
        : null
      : name === 'idle_policy' && event.dry_run !== true
        ? phaseOf(action, event.done === true)
        : null;
  if (id === '' || phase === null) {
    return null;
  }
  return {
    phase,
    kind: event.kind === 'lease' ? 'lease' : 'kernel',
    id,
    action,
    due_s: typeof event.due_s === 'number' ? event.due_s : null,
    reason: text(event.reason),
    path: text(event.path)
  };
}

function phaseOf(action: string, isDone: boolean): ICullEvent['phase'] | null {
  if (action === 'warn' || action === 'notify') {
    return 'warning';
  }
  return ACTS.includes(action) && isDone ? 'done' : null;
}
