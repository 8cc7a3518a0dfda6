/**
 * Divide the room: who wants little gets it, the others share the rest by weight (1); what nobody wants goes to the
 * last.
 */
export function shareOut(
  wanted: readonly number[],
  room: number,
  weights: readonly number[] = []
): number[] {
  const weight = (index: number) => weights[index] ?? 1;
  const shares = wanted.map(() => 0);
  const byNeed = wanted.map((_, index) => index);
  byNeed.sort((a, b) => wanted[a] / weight(a) - wanted[b] / weight(b));
  let left = room;
  let parts = byNeed.reduce((sum, index) => sum + weight(index), 0);
  for (const index of byNeed) {
    const fair = (left * weight(index)) / parts;
    shares[index] = Math.min(wanted[index], fair);
    left -= shares[index];
    parts -= weight(index);
  }
  if (shares.length > 0) {
    shares[shares.length - 1] += Math.max(0, left);
  }
  return shares;
}
