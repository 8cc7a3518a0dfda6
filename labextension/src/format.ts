/** Numbers as people read them. Units are international, so nothing here is translated. */

const KIB = 1024;
const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

/** `0 B`, `512 MiB`, `1.5 GiB`, `80 GiB`: rounded as `jupyter_gpu_release/units.py` does, and so are all below. */
export function formatBytes(bytes: number): string {
  const [number, unit] = inUnit(Math.max(0, bytes));
  return `${short(number)} ${UNITS[unit]}`;
}

/** `12.3 of 80 GiB`: both in the unit of the whole. */
export function formatPart(used: number, total: number): string {
  const [number, unit] = inUnit(total);
  return `${short(used / KIB ** unit)} of ${short(number)} ${UNITS[unit]}`;
}

function inUnit(bytes: number): [number, number] {
  let value = bytes;
  let unit = 0;
  while (rounded(value) >= KIB && unit < UNITS.length - 1) {
    value /= KIB;
    unit += 1;
  }
  return [unit === 0 ? rounded(value) : value, unit];
}

/** One decimal below 100, none where it would be 0. */
function short(value: number): string {
  if (value >= 100) {
    return String(rounded(value));
  }
  const tenths = rounded(value * 10);
  return tenths % 10
    ? `${Math.floor(tenths / 10)}.${tenths % 10}`
    : String(tenths / 10);
}

/** Halves go up. */
function rounded(value: number): number {
  return Math.floor(value + 0.5);
}

/** `12 ms`, `42 s`, `1 min 15 s`, `1 h 5 min`, `3 d 4 h`. */
export function formatSeconds(seconds: number): string {
  if (rounded(seconds * 1000) < 1000) {
    return `${rounded(Math.max(0, seconds) * 1000)} ms`;
  }
  if (rounded(seconds * 10) < 600) {
    return `${short(seconds)} s`;
  }
  const s = rounded(seconds);
  const minutes = Math.floor(s / 60);
  if (minutes < 60) {
    return two(minutes, 'min', s % 60, 's');
  }
  const hours = Math.floor(minutes / 60);
  return hours < 24
    ? two(hours, 'h', minutes % 60, 'min')
    : two(Math.floor(hours / 24), 'd', hours % 24, 'h');
}

function two(first: number, unit: string, rest: number, small: string): string {
  return rest ? `${first} ${unit} ${rest} ${small}` : `${first} ${unit}`;
}

/** The same for what goes on: whole seconds, and whole minutes from ten minutes on. */
export function formatAge(seconds: number): string {
  const step = seconds < 600 ? 1 : 60;
  const age = Math.floor(Math.max(0, seconds) / step) * step;
  return age ? formatSeconds(age) : '0 s';
}

/** `4:05`, `1:02:03`: what is left of something that ends soon. */
export function formatCountdown(seconds: number): string {
  const s = Math.max(0, Math.ceil(seconds));
  const two = (n: number) => String(n).padStart(2, '0');
  const minutes = Math.floor(s / 60);
  return minutes < 60
    ? `${minutes}:${two(s % 60)}`
    : `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${two(s % 60)}`;
}

/** A time of day, from Unix seconds. */
export function formatClock(at: number): string {
  return new Date(at * 1000).toLocaleTimeString();
}

/** GPU-seconds as GPU-hours: `0 h`, `< 0.01 h`, `0.03 h`, `2.3 h`, `20 h`. */
export function formatGpuHours(seconds: number): string {
  if (seconds > 0 && rounded(seconds / 360) === 0) {
    const hundredths = rounded(seconds / 36);
    return hundredths ? `${(hundredths / 100).toFixed(2)} h` : '< 0.01 h';
  }
  const hours = seconds / 3600;
  return `${hours < 10 ? short(hours) : rounded(hours)} h`;
}

/** A share from 0 to 1 as `87 %`. */
export function formatPercent(share: number): string {
  return `${rounded(share * 100)} %`;
}

/** An exception in a line: a KeyboardInterrupt, for one, says nothing more than its name. `code`: it is one of ours. */
export function errorText(error: {
  ename: string;
  evalue: string;
  code?: string;
}): string {
  const { ename, evalue, code } = error;
  const text = code ? withoutBackticks(evalue) : evalue;
  return [ename, text].filter(Boolean).join(': ');
}

/** The file's name at the end of a path. */
export function baseName(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}

/** `about 4 min`: as exact as an estimate is, and as `presentation/wording.py` says it. */
export function formatEstimate(seconds: number): string {
  if (seconds < 60) {
    const s = seconds < 10 ? rounded(seconds) : 5 * rounded(seconds / 5);
    return `about ${Math.max(1, s)} s`;
  }
  if (seconds < 90 * 60) {
    return `about ${rounded(seconds / 60)} min`;
  }
  return seconds < 36 * 3600
    ? `about ${rounded(seconds / 3600)} h`
    : `about ${rounded(seconds / 86400)} days`;
}

/** A sentence of the gateway's without the backticks around code. */
export function withoutBackticks(text: string): string {
  return text.replace(/`([^`]*)`/g, '$1');
}
