import { nullTranslator } from '@jupyterlab/translation';
import { shareOut } from '../src/view/list/section-heights';
import { spanOf } from '../src/view/usage';
import { positions, windowOf } from '../src/view/list/virtual-list';

describe('window', () => {
  it('holds what is seen, and no more than a few rows around it', () => {
    const rows = Array.from({ length: 1000 }, () => ({ height: 40 }));
    const tops = positions(rows);
    const [first, last] = windowOf(tops, 10_000, 400);
    expect(first).toBeLessThanOrEqual(250);
    expect(last).toBeGreaterThanOrEqual(260);
    expect(last - first).toBeLessThan(20);
    expect(windowOf(tops, 0, 400)[0]).toBe(0);
    expect(windowOf(tops, 39_600, 400)[1]).toBe(1000);
    expect(windowOf([0], 0, 400)).toEqual([0, 0]);
  });

  it('shares the height: small ones get all, the others the rest', () => {
    expect(shareOut([500, 42, 800], 642)).toEqual([300, 42, 300]);
    expect(shareOut([100, 42], 642)).toEqual([100, 542]);
    expect(shareOut([], 642)).toEqual([]);
    const five = shareOut([394, 840, 234, 84, 209], 650, [2, 1, 1, 1, 0.75]);
    expect(five.map(Math.round)).toEqual([238, 119, 119, 84, 89]);
  });
});

describe('a day of the account', () => {
  it('is named; of a gateway in another zone it says from when to when it lasts here', () => {
    const trans = nullTranslator.load('');
    const since = new Date(2026, 10, 23).getTime() / 1000;
    expect(spanOf({ since }, trans)).toBe('Monday');
    expect(spanOf({ since: since + 61_200 }, trans)).toMatch(
      /^Monday.*5:00 PM to Tuesday.*5:00/
    );
  });
});
