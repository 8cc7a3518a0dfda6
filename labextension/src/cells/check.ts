import type { TranslationBundle } from '@jupyterlab/translation';
import { FORM_OPTIONS, IMagicLine, IMagicOptions } from './magic';

/** Option → why its value cannot be taken. The kernel checks everything again; this is said while one types. */
export type Problems = Partial<Record<keyof IMagicOptions, string>>;

const SIZE = /^\d+(\.\d+)?\s*[kmgt]i?b?$/i;
/** `{count}`, `$count` */
const VARIABLE = /[{$]/;
const MOST_RETRIES = 100;
const LEAST_PART = 0.05;
const DURATION = /^(\d+(\.\d+)?|(\d+(\.\d+)?\s*(ms|s|m|h|d)\s*)+)$/i;

/** A share of one GPU is in hundredths. */
function isPart(gpus: number): boolean {
  const hundredths = gpus * 100;
  const isWhole = Math.abs(hundredths - Math.round(hundredths)) < 1e-6;
  return gpus >= LEAST_PART && gpus < 1 && isWhole;
}

/** `mostGpus`: what the cluster has, 0: not known. */
export function problemsOf(
  { options, rest }: IMagicLine,
  mostGpus: number,
  trans: TranslationBundle
): Problems {
  const found: Problems = {};
  const gpus = options.gpus === '' ? 1 : Number(options.gpus);
  if (!isPart(gpus) && (!Number.isInteger(gpus) || gpus < 0)) {
    found.gpus = trans.__(
      'A whole number, or a part of one GPU such as 0.5; 0 is a CPU stage.'
    );
  } else if (mostGpus > 0 && gpus > mostGpus) {
    found.gpus = trans.__('This cluster has %1.', mostGpus);
  }
  const ranks = options.ranks === '' ? 1 : Number(options.ranks);
  if (!Number.isInteger(ranks) || ranks < 1) {
    found.ranks = trans.__('A whole number, such as 2.');
  } else if (isPart(gpus) && ranks > 1) {
    found.ranks = trans.__('A part of a GPU is for one process.');
  } else if (!found.gpus && !isPart(gpus) && gpus % ranks !== 0) {
    found.ranks = trans.__(
      '%1 GPUs cannot be divided among %2 processes.',
      gpus,
      ranks
    );
  }
  const nodes = options.nodes.trim() === '' ? 1 : Number(options.nodes);
  const isAny = options.nodes.trim().toLowerCase() === 'any';
  if (!isAny && (!Number.isInteger(nodes) || nodes < 1)) {
    found.nodes = trans.__('A whole number, such as 2, or any.');
  } else if (!found.ranks && (isAny || nodes > 1) && ranks === 1) {
    found.nodes = trans.__('One process runs on one node.');
  } else if (!found.ranks && !isAny && ranks % nodes !== 0) {
    found.nodes = trans.__(
      '%1 processes cannot be spread evenly over %2 nodes.',
      ranks,
      nodes
    );
  }
  const fewest = options['min-gpus'].trim();
  if (fewest && !found.gpus && !found.ranks) {
    const why = fewestProblem(Number(fewest), gpus, ranks, trans);
    if (why) {
      found['min-gpus'] = why;
    } else if (!found.nodes && !isAny && options.nodes.trim() !== '') {
      found['min-gpus'] = trans.__('Not with a number of nodes: any.');
    }
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
  const retries = options.retries === '' ? 0 : Number(options.retries);
  if (!Number.isInteger(retries) || retries < 0 || retries > MOST_RETRIES) {
    found.retries = trans.__('A whole number, at most %1.', MOST_RETRIES);
  }
  if (options.restartable && rest.some(word => /^--ps(=|$)/.test(word))) {
    found.restartable = trans.__(
      'Parameter servers (--ps) cannot be saved: they cannot be preempted.'
    );
  }
  for (const name of FORM_OPTIONS) {
    const value = options[name];
    if (VARIABLE.test(value)) {
      delete found[name]; // the kernel knows it
    } else if (value.includes('"') && value.includes("'")) {
      found[name] = trans.__('Quotes of one kind only.');
    }
  }
  return found;
}

/** Why a cell cannot begin with so few GPUs; empty: it can. */
function fewestProblem(
  fewest: number,
  gpus: number,
  ranks: number,
  trans: TranslationBundle
): string {
  if (ranks === 1) {
    return trans.__('Only with several processes: one has all of its GPUs.');
  }
  if (!Number.isInteger(fewest) || fewest < 1 || fewest > gpus) {
    return trans.__('A whole number from 1 to %1.', gpus);
  }
  const each = gpus / ranks;
  return fewest % each === 0
    ? ''
    : trans.__('Each process has %1 GPUs: a multiple of that.', each);
}
