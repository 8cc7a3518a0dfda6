"""Many small things: ten thousand names, a million objects."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle

from ..report import Report
from .store import folder, put_in, saved, take_out, timed_ms


class Point:
    """One of a million objects (of an importable class, as a library's)."""

    def __init__(self, x: int, y: float, tags: list[str]) -> None:
        self.x = x
        self.y = y
        self.tags = tags


def many_names(report: Report, *, quick: bool) -> None:
    """A namespace of 10,000 small values."""
    count = 1000 if quick else 10_000
    _compare(report, "names_10000", {f"name_{number}": _small(number) for number in range(count)}, 2 if quick else 6)


def _small(number: int) -> Any:
    return (number, float(number), f"text {number}", [number] * 3, {"key": number})[number % 5]


def many_objects(report: Report, *, quick: bool) -> None:
    """One list: 10⁶ small objects (instances with their attributes, lists and numbers)."""
    count = 20_000 if quick else 200_000  # 5 objects each
    things = [Point(number, number / 7, [f"tag {number}"]) for number in range(count)]
    _compare(report, "objects_1e6", {"things": things}, 2 if quick else 4)


def _compare(report: Report, name: str, values: dict[str, Any], rounds: int) -> None:
    found: dict[str, list[float]] = {}

    def note(what: str, call: Callable[[], Any]) -> None:
        found.setdefault(what, []).append(timed_ms(call))

    with folder() as here:
        for _ in range(rounds):
            made: list[Any] = []
            note("dump", lambda made=made: made.append(put_in(here, values)))  # type: ignore[misc]
            note("cloudpickle_dump", lambda: saved(here / "x.pkl", lambda file: cloudpickle.dump(values, file)))
            paths, digest = made[0]
            note("load", lambda paths=paths, digest=digest: take_out(paths.inputs, digest))  # type: ignore[misc]
            note("cloudpickle_load", lambda: _load(here / "x.pkl"))
    for what, timings in found.items():
        report.add(f"{name}_{what}", timings[1:])
    for what in ("dump", "load"):
        theirs, ours = (report.results[f"{name}_{prefix}{what}"]["median"] for prefix in ("cloudpickle_", ""))
        report.ratios[f"{name}_{what}_cloudpickle"] = theirs / ours


def _load(path: Path) -> Any:
    return pickle.loads(path.read_bytes())
