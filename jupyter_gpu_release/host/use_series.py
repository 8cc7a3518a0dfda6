"""UseSeries: how GPUs were used over time, in a bounded number of values whatever the time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

#: values that a series keeps; a page's plot shows no more
MOST_VALUES = 240


class GpuFigures(Protocol):
    """Figures of one GPU at one moment."""

    @property
    def utilization(self) -> float | None:
        """Share of the time in which it computed, 0 to 1."""

    @property
    def used_bytes(self) -> int:
        """Device memory in use."""

    @property
    def memory_bytes(self) -> int:
        """Device memory in all."""


class _Means:
    """Means over spans of equal length; None where nothing was told."""

    def __init__(self) -> None:
        self._sums: list[tuple[float, int]] = []

    def add(self, place: int, value: float) -> None:
        self._sums += [(0.0, 0)] * (place + 1 - len(self._sums))
        total, count = self._sums[place]
        self._sums[place] = total + value, count + 1

    def halve(self) -> None:
        """Join neighbours."""
        sums = [*self._sums, (0.0, 0)] if len(self._sums) % 2 else self._sums
        pairs = zip(sums[::2], sums[1::2], strict=True)
        self._sums = [(first[0] + second[0], first[1] + second[1]) for first, second in pairs]

    def percents(self) -> list[int | None]:
        return [round(100 * total / count) if count else None for total, count in self._sums]


class UseSeries:
    """Means of use and of memory for each span of time; spans become twice as long when there are too many."""

    def __init__(self, since_s: float, span_s: float, most: int = MOST_VALUES) -> None:
        """``since_s``: unix seconds; ``span_s``: the time for which the first values stand."""
        self.since_s = since_s
        self.span_s = span_s
        self._most = most
        self._use, self._memory = _Means(), _Means()

    def add_gpus(self, at_s: float, gpus: Iterable[GpuFigures]) -> None:
        """Take one look at the GPUs of one run."""
        known: Sequence[GpuFigures] = list(gpus)
        use = [gpu.utilization for gpu in known if gpu.utilization is not None]
        memory = [gpu.used_bytes / gpu.memory_bytes for gpu in known if gpu.memory_bytes > 0]
        if use:
            self._use.add(self._place(at_s), sum(use) / len(use))
        if memory:
            self._memory.add(self._place(at_s), sum(memory) / len(memory))

    def _place(self, at_s: float) -> int:
        past_s = max(0.0, at_s - self.since_s)  # a clock may be set back
        while past_s >= self._most * self.span_s:
            self._use.halve()
            self._memory.halve()
            self.span_s *= 2
        return int(past_s / self.span_s)

    @property
    def utilization(self) -> list[int | None]:
        """Use in percent, one value for each span."""
        return self._use.percents()

    @property
    def memory(self) -> list[int | None]:
        """Memory in use in percent, one value for each span."""
        return self._memory.percents()
