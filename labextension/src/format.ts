/** Numbers as people read them. Units are international, so nothing here is translated. */

const KIB = 1024;
const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

/** `0 B`, `512 MiB`, `1.5 GiB`, `80 GiB`. */
export function formatBytes(bytes: number): string {
  let value = Math.max(0, bytes);
  let unit = 0;
  while (value >= KIB && unit < UNITS.length - 1) {
    value /= KIB;
    unit += 1;
  }
  return `${short(value)} ${UNITS[unit]}`;
}

/** `12.3 / 80 GiB`: both in the unit of the whole. */
export function formatShare(used: number, total: number): string {
  let unit = 0;
  let scale = 1;
  while (total / scale >= KIB && unit < UNITS.length - 1) {
    scale *= KIB;
    unit += 1;
  }
  return `${short(used / scale)} / ${short(total / scale)} ${UNITS[unit]}`;
}

function short(value: number): string {
  return value >= 100 || Number.isInteger(value)
    ? Math.round(value).toString()
    : value.toFixed(1).replace(/\.0$/, '');
}

/** `0 s`, `42 s`, `12 min`, `1 h 05 min`, `3 d 4 h`. */
export function formatDuration(seconds: number): string {
  const s = Math.max(0, Math.floor(seconds));
  if (s < 60) {
    return `${s} s`;
  }
  const minutes = Math.floor(s / 60);
  if (minutes < 60) {
    return `${minutes} min`;
  }
  const hours = Math.floor(minutes / 60);
  if (hours < 24) {
    return `${hours} h ${String(minutes % 60).padStart(2, '0')} min`;
  }
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
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

/** GPU-seconds as GPU-hours: `0 h`, `0.4 h`, `12 h`. */
export function formatGpuHours(seconds: number): string {
  const hours = seconds / 3600;
  if (hours === 0) {
    return '0 h';
  }
  if (hours < 0.05) {
    return `${Math.max(1, Math.round(seconds / 60))} min`;
  }
  return `${hours < 10 ? hours.toFixed(1) : Math.round(hours)} h`;
}

/** A share from 0 to 1 as `87 %`. */
export function formatPercent(share: number): string {
  return `${Math.round(share * 100)} %`;
}

/** An exception in a line: a KeyboardInterrupt, for one, says nothing more than its name. */
export function errorText(error: { ename: string; evalue: string }): string {
  return [error.ename, error.evalue].filter(Boolean).join(': ');
}

/** The file's name at the end of a path. */
export function baseName(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}

/** How a start estimate reads in the queue: `~ 12 min`. */
export function formatEstimate(seconds: number): string {
  return `~ ${formatDuration(seconds)}`;
}
