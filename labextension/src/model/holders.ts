import { holdsGpu, IRunRow } from './types';

/** Who holds how many GPUs in runs, and for how long the first of them. */
export interface IHolder {
  user: string;
  gpus: number;
  heldS: number;
}

/** `0.1 + 0.2` is 0.3 GPUs. */
export function sumGpus(gpus: readonly number[]): number {
  return Math.round(gpus.reduce((sum, each) => sum + each, 0) * 1000) / 1000;
}

/** By how many they hold. */
export function holdersOf(active: readonly IRunRow[]): IHolder[] {
  const holders = new Map<string, IHolder>();
  for (const { user, state, gpus, held_s, since_s } of active) {
    if (holdsGpu(state) && gpus > 0) {
      const known = holders.get(user) ?? { user, gpus: 0, heldS: 0 };
      const heldS = Math.max(known.heldS, since_s ?? held_s);
      holders.set(user, { user, gpus: sumGpus([known.gpus, gpus]), heldS });
    }
  }
  return [...holders.values()].sort((a, b) => b.gpus - a.gpus);
}
