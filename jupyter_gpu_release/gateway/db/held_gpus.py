"""GPU-seconds that runs have held in a time, by user and type of GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec
from sqlalchemy import or_, select
from sqlalchemy.engine import Connection, Engine

from ...protocol.runs import RunView
from .schema import runs


@dataclass
class HeldGpus:
    """Runs of one user, and GPU-seconds that they held of one type."""

    runs: int = 0
    gpu_s: float = 0.0


def read_held(engine: Engine, since_s: float, until_s: float, user: str | None) -> dict[tuple[str, str], HeldGpus]:
    """:func:`held_between` of what the ledger has, of one user or of all. Reads thousands of runs: not on the loop."""
    with engine.connect() as connection:
        return held_between(views_since(connection, since_s, user), since_s, until_s)


def views_since(connection: Connection, since_s: float, user: str | None) -> Iterator[RunView]:
    """Runs with GPUs that ended after ``since_s`` or go on, of one user or of all; none that others exported."""
    found = select(runs.c.view).where(runs.c.gpus > 0, or_(runs.c.finished_at.is_(None), runs.c.finished_at > since_s))
    decoder = msgspec.msgpack.Decoder(RunView)
    for (encoded,) in connection.execute(found if user is None else found.where(runs.c.user == user)):
        view = decoder.decode(encoded)
        if not view.imported_from:
            yield view


def held_between(views: Iterable[RunView], since_s: float, until_s: float) -> dict[tuple[str, str], HeldGpus]:
    """(user, type of GPU) → what was held between two times; simulated GPUs have no type."""
    found: dict[tuple[str, str], HeldGpus] = defaultdict(HeldGpus)
    for view in views:
        seconds: dict[str, float] = {}
        for gpu_type, begin, end in _spans(view, until_s):
            if (span_s := min(end, until_s) - max(begin, since_s)) > 0:
                seconds[gpu_type] = seconds.get(gpu_type, 0.0) + span_s
        for gpu_type, held_s in seconds.items():
            held = found[view.user, gpu_type]
            held.runs, held.gpu_s = held.runs + 1, held.gpu_s + held_s * view.gpus
    return found


def _spans(view: RunView, now_s: float) -> Iterator[tuple[str, float, float]]:
    """Times for which it had GPUs, with their type."""
    for past in view.attempts:
        yield past.gpu_name, past.granted_at, past.gone_at
    if view.granted_at is not None:
        yield view.gpu_name, view.granted_at, view.gone_at or view.finished_at or now_s
