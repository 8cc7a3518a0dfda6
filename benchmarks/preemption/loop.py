"""A restartable cell that goes on until it is cancelled, and writes down each round that it begins."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..bed import Bed, Kernel, manifest_of

ALL_GPUS, ROUND_S, MANY = 4, 0.05, 10**9
MIB = 1 << 20
#: the file of its rounds is not one of the run's: those are set back when it goes on
_CELL = """
import os, time
import numpy as np
import jupyter_gpu_release as gpu_release
state = np.zeros({size}, dtype=np.uint8)
for number in gpu_release.resumable(range({many}), every={every!r}):
    if {size}:
        state[number % {size}] += 1
    with open({file!r}, "a") as rounds:
        print(number, time.time(), os.getpid(), file=rounds)
    time.sleep({round_s})
"""


class Loop:
    """Begun by ``notebook``; cancelled on the way out. ``every``: of :func:`.resumable`."""

    def __init__(self, cluster: Bed, notebook: Kernel, size: int, every: str | int = 0) -> None:
        self.cluster = cluster
        self._notebook = notebook
        self._size = size
        self._every = every
        self.folder = Path()
        self._file = Path()

    def __enter__(self) -> Loop:
        before = folders(self.cluster)
        self._file = self.cluster.work / f"rounds-{len(before)}"
        cell = _CELL.format(size=self._size, many=MANY, every=self._every, file=str(self._file), round_s=ROUND_S)
        options = f"--gpus {ALL_GPUS} --restartable --priority low --async"
        self._notebook.run(f"get_ipython().run_cell_magic('gpu_train', {options!r}, {cell!r})")
        self.folder = until(lambda: next(iter(folders(self.cluster) - before), None), "the loop's folder")
        until(self.rounds, "its first round")
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.cli("cancel", self.folder.name)
        manifest_of(self.folder)

    def rounds(self) -> list[tuple[int, float, int]]:
        """Number of each round, when it began and in which process, in the order of time."""
        text = self._file.read_text() if self._file.exists() else ""
        words = [line.split() for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return [(int(number), float(began_s), int(pid)) for number, began_s, pid in words]

    def attempts(self, count: int) -> list[dict[str, Any]]:
        """Its earlier attempts, once there are so many."""
        found: list[dict[str, Any]] = until(lambda: attempts_of(self.folder, count), "its record")
        return found


def attempts_of(folder: Path, count: int) -> list[dict[str, Any]]:
    """Earlier attempts of a run, if there are so many; its manifest is written within a second of a change."""
    path = folder / "manifest.json"
    found: list[dict[str, Any]] = json.loads(path.read_text()).get("attempts", []) if path.exists() else []
    return found if len(found) == count else []


def folders(cluster: Bed) -> set[Path]:
    """Folders of all runs."""
    return set((Path(cluster.connection()["store"]) / "runs").iterdir())


def until(find: Callable[[], Any], what: str, limit_s: float = 120.0) -> Any:
    """Return what is found, as soon as it is."""
    deadline = time.monotonic() + limit_s
    while not (found := find()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come within {limit_s:g} s")
        time.sleep(0.01)
    return found
