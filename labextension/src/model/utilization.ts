/** One look at a GPU: when (Unix seconds) and how busy it was (0 to 1). */
export interface ISample {
  at: number;
  value: number;
}

const NONE: readonly ISample[] = [];
/** A sparkline of 40 pixels shows no more than this. */
const LEAST_GAP_S = 5;

/** Utilisation of each GPU over the last minutes, for the sparklines; kept in the browser. */
export class UtilizationHistory {
  constructor(readonly spanS = 300) {}

  /** Add one look at all GPUs; GPUs that are gone are forgotten. */
  record(at: number, gpus: Iterable<[string, number | null]>): void {
    const seen = new Set<string>();
    for (const [key, value] of gpus) {
      seen.add(key);
      if (value !== null) {
        this._samples.set(key, this._extended(key, { at, value }));
      }
    }
    for (const key of this._samples.keys()) {
      if (!seen.has(key)) {
        this._samples.delete(key);
      }
    }
  }

  /** The GPU's samples, oldest first. The array is a new one whenever it changed. */
  of(key: string): readonly ISample[] {
    return this._samples.get(key) ?? NONE;
  }

  private _extended(key: string, sample: ISample): ISample[] {
    const known = this._samples.get(key) ?? [];
    const fits = known.filter(
      ({ at }) => at >= sample.at - this.spanS && at < sample.at // a clock may be set back
    );
    const [before] = fits.slice(-2, -1);
    if (before && sample.at - before.at < LEAST_GAP_S) {
      fits.pop(); // the newest is always there; of those before, one for each gap
    }
    return [...fits, sample];
  }

  private _samples = new Map<string, ISample[]>();
}

/** The points of a sparkline in a box, the newest sample at the right edge; "" for fewer than two. */
export function sparklinePoints(
  samples: readonly ISample[],
  spanS: number,
  width: number,
  height: number
): string {
  if (samples.length < 2) {
    return '';
  }
  const end = samples[samples.length - 1].at;
  return samples
    .map(({ at, value }) => {
      const x = width * (1 - (end - at) / spanS);
      const y = height * (1 - Math.min(1, Math.max(0, value)));
      return `${x.toFixed(1)},${y.toFixed(1)}`;
    })
    .join(' ');
}
