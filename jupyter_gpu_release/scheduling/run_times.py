"""Run times, learned from runs that have ended: pure, told of every submission, start and end.

A run is expected to last as long as the others of its *campaign*: runs that the same user sent for the same GPUs
shortly after each other (or of the same cell or function). Before any of them has ended, as long as this user's earlier
runs of that shape; before there are any, as runs of that shape.
"""

from __future__ import annotations

import bisect
import math
from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

#: ended runs that are remembered of one user and shape; of a shape and of all: four times as many
_REMEMBERED = 50
#: ended runs that the wider group counts for, beside those of the narrower
_PRIOR_RUNS = 5.0
_PRIOR_IN_CAMPAIGN = 2.0
_MOST_CAMPAIGNS = 10_000
#: a pause between submissions that begins another campaign
_CAMPAIGN_GAP_S = 300.0
#: expected of the very first run
_FIRST_S = 3600.0


class _History:
    """The last durations of a group."""

    __slots__ = ("_durations", "_most", "_sum", "ordered")

    def __init__(self, most: int) -> None:
        self._most = most
        self._durations: deque[float] = deque()
        self._sum = 0.0
        self.ordered: list[float] = []

    def __len__(self) -> int:
        return len(self.ordered)

    def add(self, duration_s: float) -> None:
        self._durations.append(duration_s)
        self._sum += duration_s
        bisect.insort(self.ordered, duration_s)
        if len(self._durations) > self._most:
            oldest = self._durations.popleft()
            self._sum -= oldest
            del self.ordered[bisect.bisect_left(self.ordered, oldest)]

    @property
    def mean_s(self) -> float:
        return max(1.0, self._sum / len(self.ordered))

    def remaining_s(self, elapsed_s: float) -> float:
        """Median of what was left to those that lasted longer; as long again when there are none."""
        at = bisect.bisect_right(self.ordered, elapsed_s)
        longer = len(self.ordered) - at
        return self.ordered[at + longer // 2] - elapsed_s if longer else elapsed_s


@dataclass(slots=True)
class Campaign:
    """Runs that are expected to last alike."""

    user: str
    shape: Hashable
    last_submit_s: float
    number: int = 0
    ended: int = 0
    ended_s: float = 0.0
    running: int = 0
    #: sum of their starts
    starts_s: float = 0.0
    #: of the wider groups, until the next end changes it
    prior_s: float = field(default=0.0)
    version: int = -1


@dataclass(frozen=True, slots=True)
class Estimate:
    """How long a run is expected to last, and the middle 80 % of what its group did."""

    expected_s: float
    low_s: float
    high_s: float
    #: ended runs that it rests on
    runs: int


@dataclass(frozen=True, slots=True)
class Span:
    """Seconds that something lasts: little, probably, much (the middle 80 %). None: nobody knows."""

    early_s: float | None = None
    expected_s: float | None = None
    late_s: float | None = None


class RunTimeHistory:
    """Durations by campaign, by user and shape, by shape, and of all."""

    def __init__(self) -> None:
        self._all = _History(4 * _REMEMBERED)
        self._shapes: dict[Hashable, _History] = {}
        self._users: dict[tuple[str, Hashable], _History] = {}
        self._campaigns: dict[tuple[str, Hashable, str], Campaign] = {}
        self._version = 0
        self._count = 0

    def submitted(self, user: str, shape: Hashable, now_s: float, task: str = "") -> Campaign:
        """The campaign that a new run belongs to; ``task`` names its cell or function where that is known."""
        campaign = self.campaign_of(user, shape, now_s, task)
        if not campaign.number:
            self._count += 1
            campaign.number = self._count
        self._campaigns.pop((user, shape, task), None)
        self._campaigns[user, shape, task] = campaign  # the one that was used last stands last
        if len(self._campaigns) > _MOST_CAMPAIGNS:
            del self._campaigns[next(iter(self._campaigns))]
        campaign.last_submit_s = now_s
        return campaign

    def campaign_of(self, user: str, shape: Hashable, now_s: float, task: str = "") -> Campaign:
        """The campaign that a new run would belong to; nothing is noted."""
        known = self._campaigns.get((user, shape, task))
        is_over = known is not None and not task and now_s - known.last_submit_s > _CAMPAIGN_GAP_S
        return Campaign(user, shape, now_s) if known is None or is_over else known

    def started(self, campaign: Campaign, now_s: float) -> None:
        """Count a run that has started."""
        campaign.running += 1
        campaign.starts_s += now_s

    def put_back(self, campaign: Campaign, started_s: float) -> None:
        """Forget a start that came to nothing."""
        campaign.running -= 1
        campaign.starts_s -= started_s

    def ended(self, campaign: Campaign, started_s: float, duration_s: float) -> None:
        """Learn from a run that has ended."""
        campaign.running -= 1
        campaign.starts_s -= started_s
        campaign.ended += 1
        campaign.ended_s += duration_s
        shape, user = campaign.shape, (campaign.user, campaign.shape)
        self._users.setdefault(user, _History(_REMEMBERED)).add(duration_s)
        self._shapes.setdefault(shape, _History(4 * _REMEMBERED)).add(duration_s)
        self._all.add(duration_s)
        self._version += 1

    def expected_s(self, campaign: Campaign, now_s: float) -> float:
        """Time that a run of the campaign is expected to take; those that run on and on make it longer."""
        if campaign.version != self._version:
            campaign.version, campaign.prior_s = self._version, self._prior_s(campaign)
        seen_s = campaign.ended_s + campaign.running * now_s - campaign.starts_s
        return (_PRIOR_IN_CAMPAIGN * campaign.prior_s + seen_s) / (_PRIOR_IN_CAMPAIGN + campaign.ended)

    def are_founded(self, campaign: Campaign) -> bool:
        """Tell if runs like those of the campaign have ended: else what is expected of them is a guess."""
        history = self._users.get((campaign.user, campaign.shape))
        return campaign.ended > 0 or (history is not None and len(history) >= _PRIOR_RUNS)

    def _prior_s(self, campaign: Campaign) -> float:
        log_s = math.log(self._all.mean_s) if self._all else math.log(_FIRST_S)
        for history in (self._shapes.get(campaign.shape), self._users.get((campaign.user, campaign.shape))):
            if history:
                log_s = (math.log(history.mean_s) * len(history) + log_s * _PRIOR_RUNS) / (len(history) + _PRIOR_RUNS)
        return math.exp(log_s)

    def remaining_s(self, campaign: Campaign, started_s: float, now_s: float) -> float:
        """Time that a running run is expected to go on."""
        elapsed_s = now_s - started_s
        if campaign.ended:
            expected_s = self.expected_s(campaign, now_s)
            return expected_s - elapsed_s if expected_s > elapsed_s else elapsed_s
        history = self._users.get((campaign.user, campaign.shape))
        known = history if history is not None and len(history) >= _PRIOR_RUNS else self._all
        return max(1.0, known.remaining_s(elapsed_s))

    def estimate(self, campaign: Campaign, now_s: float, limit_s: float | None = None) -> Estimate:
        """All that can be told about a run; ``limit_s`` (``--timeout``) is the most that it can take."""
        history = self._users.get((campaign.user, campaign.shape)) or self._shapes.get(campaign.shape) or self._all
        low_s, high_s = _middle(history.ordered)
        expected_s = self.expected_s(campaign, now_s)
        most_s = math.inf if limit_s is None else limit_s
        return Estimate(min(expected_s, most_s), min(low_s, most_s), min(max(high_s, expected_s), most_s), len(history))

    def length(self, campaign: Campaign, now_s: float, limit_s: float | None = None) -> Span:
        """How long a run will last once it starts."""
        found = self.estimate(campaign, now_s, limit_s)
        if not found.runs:
            return Span(0.0, None, limit_s)
        return Span(min(found.low_s, found.expected_s), found.expected_s, found.high_s)

    def rest(self, campaign: Campaign, started_s: float, now_s: float, limit_s: float | None = None) -> Span:
        """How long a running run will go on: of those that lasted as long, what was left to them."""
        elapsed_s = now_s - started_s
        left_s = None if limit_s is None else max(0.0, limit_s - elapsed_s)
        history = self._users.get((campaign.user, campaign.shape)) or self._shapes.get(campaign.shape) or self._all
        if not history:
            return Span(0.0, None, left_s)
        longer = history.ordered[bisect.bisect_right(history.ordered, elapsed_s) :]
        expected_s = self.remaining_s(campaign, started_s, now_s)
        low_s, high_s = (end_s - elapsed_s for end_s in _middle(longer)) if longer else (0.0, None)
        late_s = None if high_s is None else max(high_s, expected_s)
        most_s = math.inf if left_s is None else left_s
        late_s = left_s if late_s is None else min(late_s, most_s)
        return Span(min(low_s, expected_s, most_s), min(expected_s, most_s), late_s)


def _middle(ordered: list[float]) -> tuple[float, float]:
    """The values that the middle 80 % lie between."""
    if not ordered:
        return 0.0, math.inf
    last = len(ordered) - 1
    return ordered[round(0.1 * last)], ordered[round(0.9 * last)]


def median_error(pairs: Iterable[tuple[float, float]]) -> float:
    """Median factor between expected and true durations (2: half of all were within twofold)."""
    factors = sorted(max(expected, true) / max(1.0, min(expected, true)) for expected, true in pairs)
    return factors[len(factors) // 2] if factors else 1.0
