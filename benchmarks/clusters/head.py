"""A head that is killed and keeps its memory: until the first new cell, and what a running one's output lacks."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..report import CannotMeasureError, Report

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "harness"))
from far_bed import FarBed
from kernel_bed import RemoteNotebook, Shown
from network_hosts import Network

_TOOLS = ("ip", "unshare", "nsenter", "hostname")
_HOSTS = ("head", "node-a", "node-b")
_COUNT = """%%gpu_train
import pathlib, time
number = 0
while not pathlib.Path({go!r}).exists():
    print(number, flush=True); number += 1; time.sleep(0.02)
"""
_AGAIN = ("ray start --head --port=6379 …", "jupyter gpu start --address HEAD:6379")
#: for the gateway to be there: a cell that cannot be sent waits as long
_PATIENT = "from jupyter_gpu_release.kernel.runs import follow; follow._GIVE_UP_S = 400"


def add_head(report: Report, *, quick: bool) -> None:
    """Kill a head of three hosts again and again."""
    if os.geteuid() or not all(map(shutil.which, _TOOLS)):
        raise CannotMeasureError("it needs root and network namespaces (Debian: iproute2, util-linux, hostname)")
    back_s, missed = [], []
    with _cluster() as (bed, folder):
        counts, asks = (_notebook(bed, folder / name) for name in ("counts", "asks"))
        try:
            for number in range(1 if quick else 3):
                one_back_s, one_missed = _one_round(bed, counts, asks, folder / f"go-{number}")
                back_s.append(one_back_s)
                missed.append(float(one_missed))
        finally:
            counts.close()
            asks.close()
    report.add("head_back", back_s, "s")
    report.add("head_back_missed_statements", missed, "")
    report.notes.append(
        "head_back: from the kill of all processes on the head to the first statement of a new cell, with both commands"
        " of the guide in between, which follow at once; target ≤ 20 s. missed_statements: of a cell that ran all the"
        " time and printed each 20 ms; target 0. Three hosts on one machine, with network namespaces"
    )


@contextmanager
def _cluster() -> Iterator[tuple[FarBed, Path]]:
    folder = Path(tempfile.mkdtemp(prefix="jgr-bench-"))
    try:
        with Network("laptop", *_HOSTS, own_processes=_HOSTS) as network:
            bed = FarBed(network, folder, keeps_head=True)
            try:
                bed.start()
                yield bed, folder
            finally:
                bed.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _notebook(bed: FarBed, folder: Path) -> RemoteNotebook:
    folder.mkdir()
    notebook = RemoteNotebook(bed.network["laptop"], folder, bed.kernel_environment())
    notebook.ok(_PATIENT)
    notebook.ok("%%gpu_train\nfirst = 1")
    return notebook


def _one_round(bed: FarBed, counts: RemoteNotebook, asks: RemoteNotebook, go: Path) -> tuple[float, int]:
    counting = counts.begin(_COUNT.format(go=str(go)))
    counts.until(lambda shown: len(_numbers(shown)) > 50)
    killed_s = time.time()
    bed.network["head"].kill_all()
    for line in _AGAIN:
        bed.carry_out("head", line)
    asks.ok("%%gpu_train\nimport time\nfirst_s = time.time()")
    back_s = float(asks.value("first_s")) - killed_s
    go.touch()
    shown = counts.end(counting)
    if shown.status != "ok":
        raise RuntimeError(shown.traceback)
    return back_s, int(counts.value("number")) - len(_numbers(shown))


def _numbers(shown: Shown) -> set[str]:
    return set(re.findall(r"^\d+$", shown.text(), re.MULTILINE))
