import { errorText, formatAge, formatCountdown } from '../src/format';

describe('format', () => {
  it.each([
    [-5, '0 s'],
    [0.4, '0 s'],
    [59.9, '59 s'],
    [75.5, '1 min 15 s'],
    [754, '12 min'],
    [3900, '1 h 5 min']
  ])('what goes on for %d s', (s, text) => expect(formatAge(s)).toBe(text));

  it('takes marks of code out of our own errors alone', () => {
    const error = { ename: 'RunFailedError', evalue: '`net` was not bound' };
    expect(errorText(error)).toBe('RunFailedError: `net` was not bound');
    expect(errorText({ ...error, code: 'run_failed' })).toBe(
      'RunFailedError: net was not bound'
    );
    expect(errorText({ ename: 'KeyboardInterrupt', evalue: '' })).toBe(
      'KeyboardInterrupt'
    );
  });

  it('counts down and never below zero', () => {
    expect(formatCountdown(244.2)).toBe('4:05');
    expect(formatCountdown(3723)).toBe('1:02:03');
    expect(formatCountdown(-3)).toBe('0:00');
  });
});
