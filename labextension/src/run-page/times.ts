import type { TranslationBundle } from '@jupyterlab/translation';
import { formatSeconds } from '../format';
import { IRunPage } from '../model/types';

/** A moment of a run's life: when (Unix seconds), and what is said of the time before. */
export interface IMoment {
  label: string;
  at: number;
  note: string;
}

/** The moments of a run that have been, in their order. */
export function momentsOf(page: IRunPage, trans: TranslationBundle): IMoment[] {
  const { run, started_at, ended_at } = page;
  const moments: IMoment[] = [];
  const add = (label: string, at: number | null, note = '') => {
    if (at !== null) {
      moments.push({ label, at, note });
    }
  };
  const isAgain = (run.earlier?.length ?? 0) > 0;
  const waited = trans.__('waited %1', formatSeconds(run.queued_s));
  const ran =
    started_at !== null && ended_at !== null
      ? trans.__('ran %1', formatSeconds(ended_at - started_at))
      : '';
  const free = [
    run.release_ms !== null
      ? trans.__('after %1', formatSeconds(run.release_ms / 1000))
      : '',
    run.price ? trans.__('price: %1', run.price) : ''
  ];
  add(trans.__('Queued'), run.submitted_at);
  add(
    isAgain ? trans.__('Got GPUs again') : trans.__('Got its GPUs'),
    run.granted_at,
    isAgain ? '' : waited
  );
  add(trans.__('First statement'), run.granted_at && started_at);
  add(trans.__('Last statement'), ended_at, ran);
  add(
    trans.__('GPUs free'),
    run.granted_at && run.gone_at,
    free.filter(Boolean).join(', ')
  );
  add(trans.__('Results saved'), savedAt(page));
  add(trans.__('Results removed'), run.collected_at ?? null);
  return moments;
}

function savedAt({ run }: IRunPage): number | null {
  return run.state === 'succeeded' && run.granted_at !== null
    ? run.finished_at
    : null;
}

/** A moment in the browser's zone and words; with its day where that is not `now`'s. */
export function formatMoment(at: number, now: number): string {
  const [moment, today] = [new Date(at * 1000), new Date(now * 1000)];
  return moment.toDateString() === today.toDateString()
    ? moment.toLocaleTimeString()
    : moment.toLocaleString();
}
