import { IRunRow, IUsage } from './types';

const DAY_S = 86400;

/**
 * GPU-seconds of these runs today and in the last seven days, for servers that keep no account of their own.
 *
 * `saved`: what a notebook that keeps its GPUs from its first GPU cell to its last one would have held on top.
 */
export function usageOf(
  runs: readonly IRunRow[],
  now: number
): { today: IUsage; week: IUsage } {
  const midnight = new Date(now * 1000).setHours(0, 0, 0, 0) / 1000;
  return {
    today: usageSince(runs, midnight, now),
    week: usageSince(runs, now - 7 * DAY_S, now)
  };
}

interface ISpan {
  from: number;
  to: number;
  gpus: number;
}

function usageSince(
  runs: readonly IRunRow[],
  since: number,
  now: number
): IUsage {
  const usage: IUsage = { held_s: 0, used_s: 0, saved_s: 0 };
  const spans = new Map<string, ISpan[]>();
  for (const run of runs) {
    const to = run.gone_at ?? run.finished_at ?? now;
    if (run.granted_at === null || to <= since || run.gpus === 0) {
      continue;
    }
    const from = Math.max(since, run.granted_at);
    usage.held_s += (to - from) * run.gpus;
    if (run.running_at !== null) {
      usage.used_s += (to - Math.max(since, run.running_at)) * run.gpus;
    }
    const own = spans.get(run.notebook) ?? [];
    own.push({ from, to, gpus: run.gpus });
    spans.set(run.notebook, own);
  }
  for (const own of spans.values()) {
    usage.saved_s += gaps(own);
  }
  return usage;
}

/** GPU-seconds between the cells of one notebook. */
function gaps(spans: ISpan[]): number {
  spans.sort((a, b) => a.from - b.from);
  let end = spans[0].to;
  let sum = 0;
  for (const span of spans.slice(1)) {
    sum += Math.max(0, span.from - end) * span.gpus;
    end = Math.max(end, span.to);
  }
  return sum;
}
