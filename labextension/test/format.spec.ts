import {
  formatBytes,
  formatCountdown,
  formatDuration,
  formatGpuHours,
  formatShare
} from '../src/format';
import { GIB } from './samples';

describe('format', () => {
  it.each([
    [0, '0 B'],
    [1536, '1.5 KiB'],
    [80 * GIB, '80 GiB'],
    [12.34 * GIB, '12.3 GiB']
  ])('%d bytes', (bytes, text) => expect(formatBytes(bytes)).toBe(text));

  it('shares are in the unit of the whole', () => {
    expect(formatShare(512 * 2 ** 20, 80 * GIB)).toBe('0.5 / 80 GiB');
  });

  it.each([
    [59.9, '59 s'],
    [60, '1 min'],
    [3900, '1 h 05 min'],
    [2 * 86400 + 3 * 3600, '2 d 3 h'],
    [-5, '0 s']
  ])('%d s', (s, text) => expect(formatDuration(s)).toBe(text));

  it('counts down and never below zero', () => {
    expect(formatCountdown(244.2)).toBe('4:05');
    expect(formatCountdown(3723)).toBe('1:02:03');
    expect(formatCountdown(-3)).toBe('0:00');
  });

  it('GPU-hours', () => {
    expect(formatGpuHours(0)).toBe('0 h');
    expect(formatGpuHours(90)).toBe('2 min');
    expect(formatGpuHours(8100)).toBe('2.3 h');
    expect(formatGpuHours(72_000)).toBe('20 h');
  });
});
