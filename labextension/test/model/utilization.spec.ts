import {
  sparklinePoints,
  UtilizationHistory
} from '../../src/model/utilization';

describe('history', () => {
  it('keeps the last minutes, and forgets GPUs that are gone', () => {
    const history = new UtilizationHistory(300);
    for (let at = 0; at <= 600; at += 100) {
      history.record(at, [
        ['a', at / 1000],
        ['b', at < 300 ? 0.5 : null]
      ]);
    }
    expect(history.of('a').map(({ at }) => at)).toEqual([300, 400, 500, 600]);
    history.record(700, [['a', 1]]);
    expect(history.of('b')).toEqual([]);
  });

  it('keeps few of many looks, and always the newest', () => {
    const history = new UtilizationHistory(300);
    for (let at = 0; at <= 900; at++) {
      history.record(at, [['a', 0.5]]);
    }
    const seen = history.of('a').map(({ at }) => at);
    expect(seen.length).toBeLessThan(90);
    expect(seen[0]).toBeLessThan(610);
    expect(seen[seen.length - 1]).toBe(900);
  });

  it('draws from left to right, busy is up', () => {
    const samples = [
      { at: 0, value: 0 },
      { at: 150, value: 1 },
      { at: 300, value: 0.5 }
    ];
    expect(sparklinePoints(samples, 300, 40, 10)).toBe(
      '0.0,10.0 20.0,0.0 40.0,5.0'
    );
    expect(sparklinePoints(samples.slice(1, 2), 300, 40, 10)).toBe('');
  });
});
