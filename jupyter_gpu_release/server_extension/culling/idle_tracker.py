"""From samples to observations: idle samples in a row, since when, mean use. Pure but for its memory."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from .policy import Observation, Signal, at_work

#: samples further apart than this are not "in a row"
_PAUSE_S = 15.0


@dataclass
class Track:
    """The memory of one kernel or lease. All times are of ``time.monotonic``."""

    subject: str
    kind: str
    began_s: float
    idle_samples: int = 0
    idle_since_s: float = 0.0
    busy_since_s: float | None = None
    warned_at_s: float | None = None
    keep_until_s: float | None = None
    acted_at_s: float | None = None
    suspended: bool = False
    #: how many GPUs the last action freed
    freed_gpus: int = 0
    _uses: deque[tuple[float, float]] = field(default_factory=deque)
    #: their sum, kept beside them: a window may hold thousands of samples
    _sum: float = 0.0
    _last_s: float | None = None

    def __post_init__(self) -> None:
        self.idle_since_s = self.began_s

    def add(
        self,
        signals: tuple[Signal, ...],
        now_s: float,
        *,
        active_s: float = 0.0,
        use: float | None = None,
        window_s: float = 0.0,
    ) -> None:
        """Take one sample. ``active_s``: when the user last did something, maybe between two samples."""
        self._remember(use, now_s, window_s)
        if self._last_s is not None and now_s - self._last_s > _PAUSE_S:
            # this server stood still (stopped, swapped out): what happened meanwhile is still on its way to us, and
            # nobody could answer the warning
            self.idle_samples, self.warned_at_s = 0, None
        self._last_s = now_s
        if at_work(Observation(self.subject, self.kind, signals)):
            self.idle_samples = 0
            self.busy_since_s = now_s if self.busy_since_s is None else self.busy_since_s
            self._awake(now_s)
            return
        if self.busy_since_s is not None:
            self.busy_since_s = None
            self.acted_at_s = None
        self.idle_samples += 1
        if active_s > self.idle_since_s:
            self._awake(active_s)

    def _awake(self, now_s: float) -> None:
        """Begin its idle time anew, and with it what was said and done about it."""
        self.idle_since_s = now_s
        self.warned_at_s = None
        if self.busy_since_s is None:
            self.acted_at_s = None

    def keep_until(self, until_s: float) -> None:
        """The user answered a warning: leave it alone until then; it is warned again before anything is done."""
        self.keep_until_s = until_s
        self.warned_at_s = None

    def _remember(self, use: float | None, now_s: float, window_s: float) -> None:
        if use is None:
            self._uses.clear()
            self._sum = 0.0
            return
        self._uses.append((now_s, use))
        self._sum += use
        # one sample older than the window stays, so that the window can be seen to be full
        while len(self._uses) > 1 and self._uses[1][0] <= now_s - window_s:
            self._sum -= self._uses.popleft()[1]

    @property
    def utilization(self) -> float | None:
        """Mean use over the window."""
        return max(0.0, self._sum) / len(self._uses) if self._uses else None

    @property
    def window_s(self) -> float:
        """Number of seconds that the mean reaches back."""
        return self._uses[-1][0] - self._uses[0][0] if self._uses else 0.0

    def observe(
        self,
        signals: tuple[Signal, ...],
        *,
        held_bytes: int | None,
        connections: int = 0,
        protected: str = "",
        ends_at_s: float | None = None,
    ) -> Observation:
        """The observation that the policy decides on."""
        return Observation(
            self.subject,
            self.kind,
            signals,
            held_bytes,
            self.idle_samples,
            self.idle_since_s,
            self.busy_since_s,
            connections,
            self.utilization,
            self.window_s,
            self.warned_at_s,
            self.keep_until_s,
            self.acted_at_s,
            self.suspended,
            protected,
            ends_at_s,
        )
