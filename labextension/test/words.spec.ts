import { nullTranslator } from '@jupyterlab/translation';
import { priceText } from '../src/cells/price';
import * as format from '../src/format';
import {
  gpuHint,
  gpuLabel,
  person,
  runHint,
  runLabel,
  stateText,
  trialsText,
  waitText,
  whyText
} from '../src/labels';
import { GPU_STATES, RunState } from '../src/model/types';
import { run } from './samples';

const trans = nullTranslator.load('');

interface IWords {
  run_states: Record<RunState, string>;
  gpu_states: Record<string, string>;
  people: [string, string, string][];
  bytes: [number, string][];
  parts: [number, number, string][];
  seconds: [number, string][];
  percent: [number, string][];
  gpu_hours: [number, string][];
  estimates: [number, string][];
  prices: [number, string, number | null, number | null, string][];
}

/** What the Python side is held to as well. */
const WORDS = jest.requireActual<IWords>('../../tests/presentation/words.json');

describe('words', () => {
  it('of states are those of cells, receipts and the terminal', () => {
    for (const [state, word] of Object.entries(WORDS.run_states)) {
      const label = runLabel(trans, state as RunState);
      expect(label.toLowerCase()).toBe(word);
      const hint = runHint(trans, run('r', { state: state as RunState }));
      expect(hint).toMatch(`${label}: `);
    }
    expect(Object.keys(WORDS.gpu_states).sort()).toEqual(
      [...GPU_STATES].sort()
    );
    for (const state of GPU_STATES) {
      const label = gpuLabel(trans, state);
      expect(label.toLowerCase()).toBe(WORDS.gpu_states[state]);
      expect(gpuHint(trans, state)).toMatch(`${label}: `);
    }
  });

  it('of a state and its reason are one sentence', () => {
    const error = { ename: 'KeyboardInterrupt', evalue: '' };
    const own = run('r', {
      state: 'cancelled',
      reason: 'cancelled by you',
      cause: { code: 'cancelled' },
      error
    });
    expect(stateText(trans, own)).toBe('Cancelled by you');
    expect(whyText(trans, own)).toBe('held its GPUs for 1 min');
    const pruned = run('r', {
      state: 'cancelled',
      reason: 'pruned: other trials do better',
      cause: { code: 'pruned' },
      error
    });
    expect(stateText(trans, pruned)).toBe('Pruned: other trials do better');
    expect(whyText(trans, pruned)).toBe('held its GPUs for 1 min');
    expect(runHint(trans, pruned)).toMatch('Pruned: ');
    expect(trialsText([pruned, pruned, own], trans)).toBe(
      '2 pruned, 1 cancelled'
    );
    const lost = run('r', { state: 'lost', reason: 'its node died' });
    expect(stateText(trans, lost)).toBe('Lost');
    expect(whyText(trans, lost)).toBe('its node died');
    const failed = run('r', { state: 'failed', error });
    expect(whyText(trans, failed)).toBe('KeyboardInterrupt');
  });

  it('of a run that is not saved yet tell the time as the browser does', () => {
    const waits = run('r', { state: 'persisting', waits_for: 'no room' });
    expect(waitText(trans, waits)).toBe('no room');
    const at = Date.UTC(2026, 10, 26, 14, 3, 12) / 1000;
    expect(waitText(trans, { ...waits, next_try_at: at })).toBe(
      `no room, next try at ${new Date(at * 1000).toLocaleTimeString()}`
    );
  });

  it('of people and numbers are those of Python', () => {
    WORDS.people.forEach(([user, me, word]) =>
      expect(person(trans, user, me)).toBe(word)
    );
    WORDS.parts.forEach(([used, total, words]) =>
      expect(format.formatPart(used, total)).toBe(words)
    );
    WORDS.prices.forEach(([hourly, unit, warn_above, timeout, words]) =>
      expect(
        priceText(hourly, { hourly: {}, unit, warn_above }, timeout, trans)
      ).toBe(words)
    );
    const functions = {
      bytes: format.formatBytes,
      seconds: format.formatSeconds,
      percent: format.formatPercent,
      gpu_hours: format.formatGpuHours,
      estimates: format.formatEstimate
    };
    for (const [name, write] of Object.entries(functions)) {
      const vectors = WORDS[name as keyof typeof functions];
      vectors.forEach(([given, words]) => expect(write(given)).toBe(words));
    }
  });
});
