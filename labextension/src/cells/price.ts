import type { TranslationBundle } from '@jupyterlab/translation';
import type { IPriceList } from '../model/types';
import type { IMagicOptions } from './magic';

const UNITS: Record<string, number> = {
  ms: 0.001,
  s: 1,
  m: 60,
  h: 3600,
  d: 86400
};

/** What a cell with these options would cost; empty: nothing, or it cannot be told. */
export function priceOf(
  options: IMagicOptions,
  prices: IPriceList,
  trans: TranslationBundle
): string {
  const gpus = options.gpus.trim() === '' ? 1 : Number(options.gpus);
  const hourly = gpus * ofHour(options['gpu-type'], prices);
  return hourly > 0
    ? priceText(hourly, prices, secondsOf(options.timeout), trans)
    : '';
}

/** As `--estimate` says it (`scheduling/queues/prices.py`). */
export function priceText(
  hourly: number,
  { unit, warn_above }: IPriceList,
  timeoutS: number | null,
  trans: TranslationBundle
): string {
  const words = (price: number) => `${rounded(price)} ${unit}`.trimEnd();
  if (timeoutS === null) {
    return trans.__('%1 an hour', words(hourly));
  }
  const most = (hourly * timeoutS) / 3600;
  const limit = warn_above ?? Infinity;
  return most > limit
    ? trans.__(
        '%1 an hour, at most %2: more than %3, is all of it needed?',
        words(hourly),
        words(most),
        words(limit)
      )
    : trans.__('%1 an hour, at most %2', words(hourly), words(most));
}

function rounded(price: number): string {
  return price < 999.5
    ? String(Number(price.toPrecision(3)))
    : Math.round(price).toLocaleString('en-US');
}

/** Of a type that is not asked for, or not there: of any, the dearest. */
function ofHour(type: string, { hourly }: IPriceList): number {
  const asked = key(type);
  const found = Object.keys(hourly).find(
    name => asked && key(name).includes(asked)
  );
  return hourly[found ?? ''] ?? 0;
}

function key(name: string): string {
  return name.toLowerCase().replace(/[^\p{L}\p{N}]/gu, '');
}

/** `1h30m`, or seconds; null: none is given. */
function secondsOf(duration: string): number | null {
  const text = duration.replace(/\s/g, '');
  if (/^\d+(\.\d+)?$/.test(text)) {
    return Number(text);
  }
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/gi)];
  return parts.length
    ? parts.reduce(
        (sum, [, n, u]) => sum + Number(n) * UNITS[u.toLowerCase()],
        0
      )
    : null;
}
