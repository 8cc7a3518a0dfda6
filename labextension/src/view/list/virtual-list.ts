const OVERSCAN_PX = 120;

/** Where each row begins, and at the end the height of all. */
export function positions(rows: readonly { height: number }[]): number[] {
  const tops = [0];
  for (const row of rows) {
    tops.push(tops[tops.length - 1] + row.height);
  }
  return tops;
}

/** The rows to draw, as `[first, last)`: those in view and a few around them. */
export function windowOf(
  tops: readonly number[],
  scrollTop: number,
  height: number
): [number, number] {
  const count = tops.length - 1;
  const end = Math.min(
    count,
    firstBelow(tops, scrollTop + height + OVERSCAN_PX)
  );
  const start = firstBelow(tops, scrollTop - OVERSCAN_PX + 1) - 1;
  return [Math.max(0, Math.min(start, count - 1)), end];
}

/** The smallest index whose top is at or below `y`. */
function firstBelow(tops: readonly number[], y: number): number {
  let low = 0;
  let high = tops.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (tops[middle] < y) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}
