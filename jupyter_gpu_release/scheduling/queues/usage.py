"""GPU time of late by queue and user, which fades with a half-life."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

#: half-lives after which sums are taken from anew: as numbers they would grow beyond all bounds
_MOST_HALF_LIVES = 100.0


class FadingUse:
    """GPU-seconds (thousandths), each halved after every ``half_life_s``. Times are unix seconds."""

    def __init__(self, half_life_s: float, began_s: float) -> None:
        self._half_life_s = half_life_s
        #: sums are kept as if nothing had faded since, so that adding to them takes no look at the others
        self._began_s = began_s
        self._used: dict[tuple[str, str], float] = {}

    def add(self, queue: str, user: str, gpu_seconds: float, at_s: float) -> None:
        """Count what was used until ``at_s``."""
        if at_s - self._began_s > _MOST_HALF_LIVES * self._half_life_s:
            self._used, self._began_s = self.by_user(at_s), at_s
        key = (queue, user)
        self._used[key] = self._used.get(key, 0.0) + gpu_seconds * 2.0 ** ((at_s - self._began_s) / self._half_life_s)

    def with_half_life(self, half_life_s: float, now_s: float) -> FadingUse:
        """The same use, which fades at another pace from now on."""
        found = FadingUse(half_life_s, now_s)
        for (queue, user), used in self.by_user(now_s).items():
            found.add(queue, user, used, now_s)
        return found

    def by_user(self, now_s: float) -> dict[tuple[str, str], float]:
        """Use that is left now, by queue and user."""
        began_s = min(self._began_s, now_s)  # nothing grows where the clock was set back
        left = 2.0 ** ((began_s - now_s) / self._half_life_s)
        return {key: used * left for key, used in self._used.items()}


def by_queue(by_user: Mapping[tuple[str, str], float], paths: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """The sums of queues, those above them included; of queues that are gone nothing is left."""
    found: dict[str, float] = {}
    for (queue, _), used in by_user.items():
        for name in paths.get(queue, ()):
            found[name] = found.get(name, 0.0) + used
    return found
