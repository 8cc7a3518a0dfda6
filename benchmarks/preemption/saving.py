"""Cost of saves for a loop of one thread that goes on meanwhile, and the CPU that the saver takes beside it."""

from __future__ import annotations

from itertools import pairwise

from ..bed import Kernel
from ..report import Report
from .loop import MANY, MIB

#: as many rounds as there is time for; each tenth of a second: rounds so far, is there a saver, CPU of past savers
_CELL = """
import resource, time
import numpy as np
import jupyter_gpu_release as gpu_release

def look():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    with open("/proc/thread-self/children") as children:
        return time.monotonic(), rounds, bool(children.read()), used.ru_utime + used.ru_stime

state, rounds, ends = np.ones({size}, dtype=np.uint8), 0, 0
looks = [look()]
for number in gpu_release.resumable(range({many}), every={every_s}):
    state[number % {size}] += sum(range(20_000)) % 2
    rounds += 1
    if time.monotonic() > looks[-1][0] + 0.1:
        looks.append(look())
        ends += looks[-1][3] > looks[-2][3]
        if ends >= {ends}:
            break
del state
"""
_Look = tuple[float, int, bool, float]
#: a cell that is to be saved first after more than a second is tried before: nothing is written then
_TRIED_S = 1


def add_rows(report: Report, notebook: Kernel, *, quick: bool) -> None:
    """Beside saves of 1 GiB each 10 s, and each minute."""
    size = (16 if quick else 1024) * MIB
    for name, every_s, saves in (("_10s", 1, 1), ("", 1, 1)) if quick else (("_10s", 10, 4), ("", 60, 1)):
        tries = int(every_s > _TRIED_S)
        looks = _looks(notebook, _CELL.format(size=size, many=MANY, every_s=every_s, ends=tries + saves))
        report.add(f"saving_overhead{name}", [100 * _lost_s(looks) / (saves * every_s)], unit="%")
        used = [after[3] - before[3] for before, after in pairwise(looks) if after[3] > before[3]]
        report.add(f"saver_cpu{name}", [each * 1000 for each in used[tries:]])
    report.notes.append("saver_cpu: of one save; it takes another core than the loop, and gives way to others")


def _looks(notebook: Kernel, cell: str) -> list[_Look]:
    said = str(notebook.run(f"get_ipython().run_cell_magic('gpu_train', '--restartable', {cell!r})", limit_s=600))
    if "it cannot be" in said:
        raise RuntimeError(f"the loop was not saved: {said}")
    found: list[_Look] = notebook.value("looks")
    return found


def _lost_s(looks: list[_Look]) -> float:
    """Seconds by which rounds beside a saver came later than rounds without one."""
    alone_s = alone = beside_s = beside = 0.0
    for before, after in pairwise(looks):
        seconds, rounds = after[0] - before[0], after[1] - before[1]
        if before[2] or after[2] or after[3] > before[3]:
            beside_s, beside = beside_s + seconds, beside + rounds
        else:
            alone_s, alone = alone_s + seconds, alone + rounds
    return beside_s - beside * alone_s / alone
