import type { TranslationBundle } from '@jupyterlab/translation';
import { IMagicOptions } from './magic';

/** Option → why its value cannot be taken. The kernel checks everything again; this is said while one types. */
export type Problems = Partial<Record<keyof IMagicOptions, string>>;

const SIZE = /^\d+(\.\d+)?\s*[kmgt]i?b?$/i;
const DURATION = /^(\d+(\.\d+)?|(\d+(\.\d+)?\s*(ms|s|m|h|d)\s*)+)$/i;

/** `mostGpus`: what the cluster has, 0: not known. */
export function problemsOf(
  options: IMagicOptions,
  mostGpus: number,
  trans: TranslationBundle
): Problems {
  const found: Problems = {};
  const gpus = options.gpus === '' ? 1 : Number(options.gpus);
  if (!Number.isInteger(gpus) || gpus < 0) {
    found.gpus = trans.__('A whole number, such as 2; 0 is a CPU stage.');
  } else if (mostGpus > 0 && gpus > mostGpus) {
    found.gpus = trans.__('This cluster has %1.', mostGpus);
  }
  const ranks = options.ranks === '' ? 1 : Number(options.ranks);
  if (!Number.isInteger(ranks) || ranks < 1) {
    found.ranks = trans.__('A whole number, such as 2.');
  } else if (!found.gpus && gpus % ranks !== 0) {
    found.ranks = trans.__(
      '%1 GPUs cannot be divided among %2 processes.',
      gpus,
      ranks
    );
  }
  const memory = options['min-gpu-memory'].trim();
  if (memory && !SIZE.test(memory)) {
    found['min-gpu-memory'] = trans.__('A size with its unit, such as 40GiB.');
  } else if (memory && gpus === 0) {
    found['min-gpu-memory'] = trans.__('A CPU stage has no GPU.');
  }
  if (options['gpu-type'] && gpus === 0) {
    found['gpu-type'] = trans.__('A CPU stage has no GPU.');
  }
  const timeout = options.timeout.trim();
  if (timeout && (!DURATION.test(timeout) || parseFloat(timeout) === 0)) {
    found.timeout = trans.__('A duration, such as 30m or 2h.');
  }
  return found;
}
