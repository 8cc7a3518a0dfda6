/** Divide the room: who wants little gets it, the others share the rest; what nobody wants goes to the last. */
export function shareOut(wanted: readonly number[], room: number): number[] {
  const shares = wanted.map(() => 0);
  const byNeed = wanted.map((_, index) => index);
  byNeed.sort((a, b) => wanted[a] - wanted[b]);
  let left = room;
  byNeed.forEach((index, place) => {
    const fair = left / (byNeed.length - place);
    shares[index] = Math.min(wanted[index], fair);
    left -= shares[index];
  });
  if (shares.length > 0) {
    shares[shares.length - 1] += Math.max(0, left);
  }
  return shares;
}
