"""The head of a cluster over several hosts loses its power and keeps its memory: what runs elsewhere goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from background_bed import run_of
from doc_blocks import block
from far_bed import GPUS_EACH, FarBed
from kernel_bed import RemoteNotebook, Shown
from network_hosts import Network

pytestmark = [pytest.mark.timeout(900), pytest.mark.thorough]  # a cluster of its own, over several hosts, started twice
Until = Callable[..., None]
_ALL = 2 * GPUS_EACH


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[FarBed]:
    hosts = ("head", "node-a", "node-b")
    with Network("laptop", *hosts, own_processes=hosts) as network:
        bed = FarBed(network, tmp_path, keeps_head=True)
        try:
            bed.start()
            yield bed
        finally:
            bed.stop()


@pytest.fixture
def notebooks(bed: FarBed, tmp_path: Path) -> Iterator[list[RemoteNotebook]]:
    opened = []
    try:
        for name in ("counts", "waits"):
            (tmp_path / name).mkdir()
            opened.append(RemoteNotebook(bed.network["laptop"], tmp_path / name, bed.kernel_environment()))
            opened[-1].ok("from jupyter_gpu_release.kernel.runs import follow; follow._GIVE_UP_S = 400")
        yield opened
    finally:
        for notebook in opened:
            notebook.close()


def _says(words: str) -> Callable[[Shown], bool]:
    return lambda shown: any(words in text for text in shown.displays())


def _numbers(shown: Shown) -> list[int]:
    return [int(line) for line in shown.lines() if line.isdecimal()]


def _commands() -> list[str]:
    return block("operate/head-lost.md", "## Start a head that has kept its memory").commands()[1:]


def test_what_runs_elsewhere_goes_on_and_keeps_its_gpus(
    bed: FarBed, notebooks: list[RemoteNotebook], until: Until, tmp_path: Path
) -> None:
    counts, waits = notebooks
    go, held = tmp_path / "go", tmp_path / "held"
    held.mkdir()
    hold = (
        "import os, pathlib, socket, time\n"
        "mine = [pathlib.Path(FOLDER, f'{socket.gethostname()}-{gpu}')\n"
        "        for gpu in os.environ['CUDA_VISIBLE_DEVICES'].split(',')]\n"
        "for file in mine: file.touch(exist_ok=False)  # fails where a GPU is given twice\n"
    ).replace("FOLDER", repr(str(held)))
    free = "for file in mine: file.unlink()\n"
    loop = f"number = 0\nwhile not pathlib.Path({str(go)!r}).exists():\n"
    silent = "    number += 1; time.sleep(0.1)\n"
    count = "    print(number, flush=True); number += 1; time.sleep(0.1)\n"
    detached = run_of(counts.ok(f"%%gpu_train --detach --gpus 1\n{hold}{loop}{silent}{free}"))
    counting = counts.begin(f"%%gpu_train --gpus 2 --ranks 1\n{hold}{loop}{count}{free}")
    counts.until(lambda shown: len(_numbers(shown)) > 3)
    until(lambda: len(list(held.iterdir())) == 3, "three GPUs to be held")
    waiting = waits.begin(f"%%gpu_train --gpus 2\n{hold}{free}answer = 42")
    waits.until(_says("place 1"))

    bed.network["head"].kill_all()
    counts.until(_says("connection to the gateway lost, the run goes on if the cluster does"))
    for line in _commands():
        bed.carry_out("head", line)
    before = len(_numbers(counts.until(lambda shown: True)))
    counts.until(lambda shown: len(_numbers(shown)) > before + 20)
    status = json.loads(bed.carry_out("head", "jupyter gpu status --json"))
    assert (status["gpus"]["total"], status["gpus"]["held"]) == (_ALL, 3)
    found = [one for one in bed.doctor() if one["check"] == "head"]
    assert [one["level"] for one in found] == ["ok"]

    go.touch()
    shown = counts.end(counting)
    assert shown.status == "ok", shown.traceback
    numbers = _numbers(shown)
    assert numbers == list(range(len(numbers)))
    assert counts.value("number") == len(numbers)
    shown = waits.end(waiting)
    assert shown.status == "ok", shown.traceback
    assert waits.value("answer") == 42
    counts.ok(f"%gpu_attach {detached}")
    assert counts.value("number") > 20
    counts.ok(f"%%gpu_train --gpus {_ALL} --ranks {_ALL} --nodes 2\nnext_one = 1")

    def are_free() -> bool:
        status = json.loads(bed.carry_out("head", "jupyter gpu status --json"))
        gpus = [status["gpus"][name] for name in ("total", "held", "free")]
        return (status["runs"], status["queue"], gpus) == ([], [], [_ALL, 0, _ALL])

    until(are_free, "all GPUs, and the last run's results durable")
