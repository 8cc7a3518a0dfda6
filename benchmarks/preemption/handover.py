"""GPUs change hands: a kernel's restartable loop has all of them, another kernel sends a cell that goes first."""

from __future__ import annotations

from ..bed import Bed, Kernel, manifest_of
from ..report import Report
from .loop import ALL_GPUS, MIB, Loop, folders, until

_URGENT = "first = 1"


def add_rows(report: Report, cluster: Bed, low: Kernel, high: Kernel, count: int) -> None:
    """Have ``low`` step aside for ``high`` so many times, without state and with 100 MiB."""
    for name, size in (("notice_to_next", 0), ("notice_to_next_100mib", 100 * MIB)):
        with Loop(cluster, low, size) as loop:
            spans = [_taken_by(high, loop, number) for number in range(1, count + 1)]
        report.add(name, [span * 1000 for span in spans])
        report.add(f"rounds_repeated{name.removeprefix('notice_to_next')}", [_repeated(loop)], unit="")


def _taken_by(other: Kernel, loop: Loop, number: int) -> float:
    """Seconds from the loop's notice to the first statement of another kernel's cell that takes its GPUs."""
    before = folders(loop.cluster)
    options = f"--gpus {ALL_GPUS} --priority high"
    other.run(f"get_ipython().run_cell_magic('gpu_train', {options!r}, {_URGENT!r})")
    (urgent,) = folders(loop.cluster) - before
    began_s = float(manifest_of(urgent)["outcome"]["started_s"])
    rounds = len(loop.rounds())
    until(lambda: len(loop.rounds()) > rounds, "a round after it went on")
    return began_s - float(loop.attempts(number)[-1]["noticed_at"])


def _repeated(loop: Loop) -> int:
    """How many rounds were begun twice."""
    rounds = [number for number, *_ in loop.rounds()]
    assert rounds == sorted(rounds), "rounds in their order"
    return len(rounds) - len(set(rounds))
