"""Notebook sessions, closed-loop: the next cell comes a think time after the last one has ended, whenever that was.

Sessions are drawn from published quantiles. What is compared is how long a session holds its GPUs: from its first cell
to its last (a plain Jupyter kernel), for some time after each cell, or while a cell runs.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from jupyter_gpu_release.errors import OptionError
from jupyter_gpu_release.simulation.baselines import FirstFit
from jupyter_gpu_release.simulation.cluster import ClusterSpec, FreeGpus, NodeKind
from jupyter_gpu_release.simulation.replay import SimulatedPolicy
from jupyter_gpu_release.simulation.trace import Job

_MINUTE_S = 60.0
#: from a cell's last statement to its lease gone, and from its call to its first statement (as benchmarked)
_RELEASE_S, _START_S = 0.024, 0.020
#: how long a policy holds GPUs after a cell; reserve: until the session's end
KEEPS_S: dict[str, float] = {
    "reserve": math.inf,
    "keep_30m": 1800.0,
    "keep_300s": 300.0,
    "keep_60s": 60.0,
    "configured": 0.0,
}


class SessionStats(msgspec.Struct, frozen=True):
    """Quantiles (``p1`` … ``p99``) of what sessions do. The source's clock ticks in minutes."""

    inferred_sessions: int
    cells: int
    cell_duration_s: dict[str, float]
    think_time_s: dict[str, float]
    session_iat_s: dict[str, float]
    cells_per_session: dict[str, float]
    gpus_per_session: dict[str, float]
    #: hours × GPUs that cells used, and that sessions from first to last cell span, where published
    used_gpu_h: float = 191_449.0
    reserved_gpu_h: float = 693_938.0


def read_stats(path: Path) -> SessionStats:
    """Read the quantiles; raises :class:`OptionError` that names what is wrong."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=SessionStats)
    except OSError as error:
        raise OptionError(f"{path}: {error.strerror}", hint="give a file that can be read") from error
    except msgspec.DecodeError as error:
        raise OptionError(f"{path}: {error}", hint="see examples/traces/adobe_nb_stats.json") from error


class _Quantiles:
    """Draws from quantiles: by proportion of logarithms between two of them, in whole minutes where asked.

    ``mean`` fits how far the last hundredth reaches.
    """

    def __init__(self, given: Mapping[str, float], mean: float | None = None) -> None:
        points = sorted((float(name[1:]) / 100, value) for name, value in given.items())
        self._points = [(0.0, points[0][1]), *points]
        self._points.append((1.0, points[-1][1]))
        if mean is not None:
            self._fit(mean)

    def _fit(self, mean: float) -> None:
        low = self._points[-1][1]
        high = low * 1e4
        for _ in range(60):
            middle = math.sqrt(low * high)
            self._points[-1] = (1.0, middle)
            low, high = (middle, high) if self._mean() < mean else (low, middle)

    def _mean(self) -> float:
        return sum(
            (right[0] - left[0]) * _log_mean(left[1], right[1]) for left, right in itertools.pairwise(self._points)
        )

    def at(self, share: float) -> float:
        """Value below which this share of all lies."""
        pairs = itertools.pairwise(self._points)
        (low, least), (high, most) = next(pair for pair in pairs if share <= pair[1][0])
        if least <= 0 or high == low:
            return most if share > low else least
        return float(least * (most / least) ** ((share - low) / (high - low)))


def _log_mean(least: float, most: float) -> float:
    """Mean of what is spread evenly by logarithm."""
    if least <= 0 or least == most:
        return most
    return (most - least) / math.log(most / least)


@dataclass(frozen=True)
class Cell:
    """A cell: how long it runs, and the time after it until the next is sent."""

    duration_s: float
    think_s: float


@dataclass(frozen=True)
class Session:
    """A notebook's cells, one after the other."""

    start_s: float
    gpus: float
    cells: tuple[Cell, ...]


def generate(stats: SessionStats, count: int, *, seed: int = 1, gpus: int | None = None) -> list[Session]:
    """Draw sessions; ``gpus``: all of this size. The same arguments give the same sessions."""
    rng = random.Random(seed)
    draw = _Drawing(stats)
    starts = itertools.accumulate(draw.iat.at(rng.random()) for _ in range(count))
    return [draw.session(rng, start_s, gpus) for start_s in starts]


class _Drawing:
    def __init__(self, stats: SessionStats) -> None:
        per_cell = stats.cells * sum(int(size) * share for size, share in stats.gpus_per_session.items()) / 3600
        used_s = stats.used_gpu_h / per_cell
        self._durations = _Quantiles(stats.cell_duration_s, used_s)
        self._thinks = _Quantiles(stats.think_time_s, stats.reserved_gpu_h / per_cell - used_s)
        self._cells = _Quantiles(stats.cells_per_session)
        self._sizes = stats.gpus_per_session
        self.iat = _Quantiles(stats.session_iat_s)

    def session(self, rng: random.Random, start_s: float, gpus: int | None) -> Session:
        """Draw one."""
        size = int(rng.choices(list(self._sizes), list(self._sizes.values()))[0])
        cells = [
            Cell(_minutes(self._durations.at(rng.random()), least=1), _minutes(self._thinks.at(rng.random())))
            for _ in range(max(1, round(self._cells.at(rng.random()))))
        ]
        return Session(start_s, gpus or size, tuple(cells))


def _minutes(seconds: float, least: int = 0) -> float:
    return max(least, round(seconds / _MINUTE_S)) * _MINUTE_S


@dataclass
class _State:
    """One session on its way."""

    session: Session
    next_cell: int = 0
    #: the lease that it holds
    lease: Job | None = None
    #: when that was granted
    since_s: float = 0.0
    #: when it asked for what it waits for
    asked_s: float = 0.0
    #: tells a late event from a present one
    turn: int = 0


@dataclass
class Tally:
    """Outcome of a play."""

    waits_s: list[float] = field(default_factory=list)
    held_gpu_s: float = 0.0
    used_gpu_s: float = 0.0
    warm: int = 0
    end_s: float = 0.0

    def document(self, gpus: int | None) -> dict[str, Any]:
        """Figures for ``--json``; ``gpus`` None: as many as are asked for."""
        waits = sorted(self.waits_s)
        return {
            "gpus": gpus,
            "cells": len(waits),
            "mean_wait_s": round(sum(waits) / len(waits), 4),
            "p99_wait_s": round(waits[int(0.99 * (len(waits) - 1))], 3),
            "held_over_used": round(self.held_gpu_s / self.used_gpu_s, 5),
            "held_gpu_h": round(self.held_gpu_s / 3600, 1),
            "used_gpu_h": round(self.used_gpu_s / 3600, 1),
            "found_warm": round(self.warm / len(waits), 4),
        }


MakePolicy = Callable[[FreeGpus], SimulatedPolicy]


def play(sessions: Sequence[Session], keep_s: float, gpus: int | None = None, policy: MakePolicy = FirstFit) -> Tally:
    """Play sessions that hold their GPUs for ``keep_s`` after each cell, on so many GPUs (None: enough for all)."""
    most = gpus or math.ceil(sum(session.gpus for session in sessions))
    return _Play(sessions, keep_s, most, policy).run()


class _Play:
    def __init__(self, sessions: Sequence[Session], keep_s: float, gpus: int, policy: MakePolicy) -> None:
        self._keep_s = keep_s
        self._free = FreeGpus(ClusterSpec((NodeKind(gpus),)))
        self._policy = policy(self._free)
        self._states = [_State(session) for session in sessions]
        self._waiting: dict[int, _State] = {}
        self._events: list[tuple[float, int, Callable[[_State], None], _State, int]] = []
        self._number = itertools.count()
        self._tally = Tally()
        self._now_s = 0.0

    def run(self) -> Tally:
        """Go from event to event."""
        for state in self._states:
            self._at(state.session.start_s, self._ask, state)
        while self._events:
            self._now_s = self._events[0][0]
            while self._events and self._events[0][0] <= self._now_s:
                _, _, act, state, turn = heapq.heappop(self._events)
                if turn == state.turn:
                    act(state)
            if self._waiting:
                self._policy.start(self._now_s, self._begin)
        self._tally.end_s = self._now_s
        return self._tally

    def _at(self, time_s: float, act: Callable[[_State], None], state: _State) -> None:
        heapq.heappush(self._events, (time_s, next(self._number), act, state, state.turn))

    def _ask(self, state: _State) -> None:
        """Run the next cell on the lease that is there, or queue it."""
        state.turn += 1
        if state.lease is not None:
            self._tally.warm += 1
            self._tally.waits_s.append(0.0)
            self._run_cell(state)
            return
        number = next(self._number)
        state.asked_s = self._now_s
        self._waiting[number] = state
        self._policy.submit(Job(number, self._now_s, 0.0, state.session.gpus), self._now_s)

    def _begin(self, job: Job) -> bool:
        if not self._free.take(job.index, job.gpus, ""):
            return False
        state = self._waiting.pop(job.index)
        state.lease, state.since_s = job, self._now_s
        self._tally.waits_s.append(self._now_s - state.asked_s)
        self._run_cell(state)
        return True

    def _run_cell(self, state: _State) -> None:
        cell = state.session.cells[state.next_cell]
        self._tally.used_gpu_s += cell.duration_s * state.session.gpus
        self._at(self._now_s + _START_S + cell.duration_s, self._end_cell, state)

    def _end_cell(self, state: _State) -> None:
        cell = state.session.cells[state.next_cell]
        state.next_cell += 1
        state.turn += 1
        if state.next_cell == len(state.session.cells):
            self._at(self._now_s + _RELEASE_S, self._release, state)
            return
        if cell.think_s > self._keep_s or not self._keep_s:
            self._at(self._now_s + self._keep_s + _RELEASE_S, self._release, state)
        self._at(self._now_s + max(cell.think_s, 2 * _RELEASE_S), self._ask, state)

    def _release(self, state: _State) -> None:
        if state.lease is None:
            raise RuntimeError("a session without a lease gives none back")
        self._free.give_back(state.lease.index)
        self._policy.end(state.lease, self._now_s)
        self._tally.held_gpu_s += (self._now_s - state.since_s) * state.session.gpus
        state.lease = None
