"""Limits on unknown tokens of an address, on requests and messages of a user. Pure: time is an argument.

A token of 256 bits cannot be guessed, with or without this; what the back-off saves is the gateway's time and its
logs. So only unknown tokens are held against an address, and a caller with a good one is let in from everywhere: behind
a proxy, or on a host with many notebooks, everybody has the same address, and one misconfigured program must not
lock its neighbours out.
"""

from __future__ import annotations

from dataclasses import dataclass

_LONGEST_S = 60.0
#: an address that was quiet for so long begins anew
_FORGIVEN_S = 600.0
#: addresses remembered at most (the oldest go first)
_MOST_ADDRESSES = 10_000


@dataclass(frozen=True)
class _Address:
    wrong: int
    last_s: float
    blocked_until_s: float


class TokenRateLimit:
    """Wrong tokens by address: ``free`` of them cost nothing, each further one doubles the wait, from 1 s to 60 s."""

    def __init__(self, free: int) -> None:
        self._free = free
        self._records: dict[str, _Address] = {}

    def wait_s(self, address: str, now_s: float) -> float:
        """Seconds for which unknown tokens from ``address`` are refused unseen; 0: they are not."""
        record = self._records.get(address)
        return max(0.0, record.blocked_until_s - now_s) if record is not None else 0.0

    def wrong(self, address: str, now_s: float) -> None:
        """An unknown token came from ``address``."""
        before = self._records.pop(address, None)
        wrong = 1 if before is None or now_s - before.last_s > _FORGIVEN_S else before.wrong + 1
        over = wrong - self._free
        delay_s = min(_LONGEST_S, 2.0 ** min(over - 1, 10)) if over > 0 else 0.0
        self._records[address] = _Address(wrong, now_s, now_s + delay_s)
        if len(self._records) > _MOST_ADDRESSES:
            del self._records[next(iter(self._records))]


#: what a user may ask at once, in seconds of the steady rate
_BURST_S = 10.0


class UserRateLimit:
    """Requests, or messages, by user: ``per_s`` in the long run, ten times as many at once."""

    def __init__(self, per_s: float) -> None:
        self.per_s = per_s
        #: by user: what was left, and when
        self._left: dict[str, tuple[float, float]] = {}

    def take(self, user: str, now_s: float) -> float:
        """Take one request off the allowance; seconds until there is one if there is none, else 0."""
        left = self._left_of(user, now_s)
        self._set_left(user, left - 1 if left >= 1 else left, now_s)
        return 0.0 if left >= 1 else (1 - left) / self.per_s

    def reserve(self, user: str, now_s: float) -> float:
        """Take one off the allowance, also one that is still to come; seconds until its turn, 0 for now."""
        left = self._left_of(user, now_s) - 1
        self._set_left(user, left, now_s)
        return max(0.0, -left / self.per_s)

    def _left_of(self, user: str, now_s: float) -> float:
        full = self.per_s * _BURST_S
        left, since_s = self._left.get(user, (full, now_s))
        return min(full, left + (now_s - since_s) * self.per_s)

    def _set_left(self, user: str, left: float, now_s: float) -> None:
        self._left.pop(user, None)  # the latest are last
        self._left[user] = left, now_s
        if len(self._left) > _MOST_ADDRESSES:
            del self._left[next(iter(self._left))]
