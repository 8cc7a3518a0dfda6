"""The head of a cluster over several hosts loses its power and its ledger, and is started again as the page says."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from background_bed import run_of
from doc_blocks import block
from far_bed import GPUS_EACH, FarBed
from kernel_bed import RemoteNotebook, Shown
from network_hosts import Network, NetworkHost

pytestmark = [pytest.mark.timeout(900), pytest.mark.thorough]  # a cluster of its own, over several hosts, started twice
Until = Callable[..., None]
_GPU_HOSTS = ("node-a", "node-b")


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[FarBed]:
    with Network("laptop", "head", *_GPU_HOSTS, own_processes=("head", *_GPU_HOSTS)) as network:
        bed = FarBed(network, tmp_path)
        try:
            bed.start()
            yield bed
        finally:
            bed.stop()


@pytest.fixture
def notebooks(bed: FarBed, tmp_path: Path) -> Iterator[list[RemoteNotebook]]:
    """Three, whose cells wait for the gateway as long as the commands take here."""
    with contextlib.ExitStack() as stack:
        opened = []
        for name in ("runs", "waits", "stops"):
            folder = tmp_path / name
            folder.mkdir()
            opened.append(RemoteNotebook(bed.network["laptop"], folder, bed.kernel_environment()))
            stack.callback(opened[-1].close)
            opened[-1].ok("from jupyter_gpu_release.kernel.runs import follow; follow._GIVE_UP_S = 400")
        yield opened


def _commands() -> list[tuple[str, str]]:
    """The commands of the guide: the host, the line."""
    text = block("operate/head-lost.md", "## Start a head without its memory").text
    found, hosts = [], ("",)
    for part in re.split(r"^# on ", text, flags=re.MULTILINE)[1:]:
        where, *lines = part.splitlines()
        hosts = ("head",) if where.startswith("the head") else _GPU_HOSTS
        found += [(host, line) for host in hosts for line in lines]
    return found


def _names(host: NetworkHost) -> list[str]:
    found = []
    for process in host.processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            found.append(process.name())
    return found


def _says(words: str) -> Callable[[Shown], bool]:
    return lambda shown: any(words in text for text in shown.displays())


def _copied_states(bed: FarBed) -> list[str]:
    """The states of all runs, as they are in the ledger's copy on the store."""
    found = list((bed.store / "ledgers").glob("*.sqlite"))
    if not found:
        return []
    with contextlib.closing(sqlite3.connect(found[0])) as copy:
        return sorted(state for (state,) in copy.execute("SELECT state FROM runs"))


def _state(notebook: RemoteNotebook, run: str) -> str:
    """The word that ``%gpu_runs`` has for a run."""
    table = notebook.ok("%gpu_runs").displays()[-1]
    return str(next(line.split()[1] for line in table.splitlines() if line.split()[:1] == [run]))


def test_a_host_that_has_ended_has_no_processes() -> None:
    """Else a power cut there would kill whatever has no namespace that can be read: init, others' zombies."""
    with Network("ended") as network:
        os.kill(network["ended"].pid, signal.SIGKILL)
        os.waitid(os.P_PID, network["ended"].pid, os.WEXITED | os.WNOWAIT)
        assert network["ended"].processes() == []


def test_what_waited_runs_and_what_ran_is_lost(
    bed: FarBed, notebooks: list[RemoteNotebook], until: Until, tmp_path: Path
) -> None:
    runs, waits, stops = notebooks
    go, begun = tmp_path / "go", tmp_path / "begun"
    loop = f"import pathlib, time\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(0.05)\n"
    count = f"print(1, file=open({str(begun)!r}, 'a'))\n"
    detached = run_of(runs.ok(f"%%gpu_train --detach\n{loop}"))
    again = run_of(runs.ok(f"%%gpu_train --detach --retries 1\nimport pathlib\n{count}{loop}"))
    running = runs.begin(f"%%gpu_train --gpus 2\nprint('begun', flush=True)\n{loop}")
    runs.until(lambda shown: "begun" in shown.lines())
    until(begun.exists, "the one that may begin again has begun")
    later = run_of(waits.ok("%%gpu_train --detach --gpus 2\nlater = 7"))
    waiting = waits.begin("%%gpu_train --gpus 2\nanswer = 42")
    waits.until(_says("place 2"))
    stopped = stops.begin(f"%%gpu_train --gpus 2\n{loop}")
    stops.until(_says("place 3"))
    until(lambda: _copied_states(bed) == ["queued"] * 3 + ["running"] * 3, "the ledger's copy to know them all")

    bed.network["head"].kill_all()
    for file in bed.home.root.glob("ledger.sqlite*"):
        file.unlink()
    runs.until(_says("connection to the gateway lost, the run goes on if the cluster does"))
    for waiter in (waits, stops):
        waiter.until(_says("connection to the gateway lost, the run keeps its place in the queue"))
    stops.interrupt()
    stops.until(_says("interrupt once more to stop waiting"))
    stops.interrupt()
    assert stops.end(stopped).reply["ename"] == "KeyboardInterrupt"

    for host, line in _commands():
        bed.carry_out(host, line)
        if line.startswith("ray stop"):
            until(lambda host=host: not _names(bed.network[host]), f"nothing of the old cluster on {host}")
    shown = runs.end(running)
    assert shown.reply["ename"] == "RunLostError", shown.traceback
    assert "the node, or the head of the cluster, was lost" in shown.traceback
    shown = waits.end(waiting)
    assert shown.status == "ok", shown.traceback
    assert waits.value("answer") == 42

    assert _state(runs, detached) == "lost"
    until(lambda: begun.read_text() == "1\n1\n", "the one with --retries to begin again")
    until(lambda: _state(runs, again) == "running", "the gateway to hear that it has begun")
    assert "was lost" in runs.run(f"%gpu_attach {detached}").traceback
    waits.ok(f"%gpu_attach {later}")
    assert waits.value("later") == 7
    until(lambda: "cancelled" in stops.ok("%gpu_runs").displays()[-1], "the interrupted one to end")
    go.touch()
    runs.ok(f"%gpu_attach {again}")
    runs.ok(f"%%gpu_train --gpus {2 * GPUS_EACH} --ranks {2 * GPUS_EACH} --nodes 2\nnext_one = 1")
    assert runs.value("next_one") == 1

    def are_free() -> bool:
        status = json.loads(bed.carry_out("head", "jupyter gpu status --json"))
        gpus = [status["gpus"][name] for name in ("total", "held", "free")]
        return (status["runs"], status["queue"], gpus) == ([], [], [2 * GPUS_EACH, 0, 2 * GPUS_EACH])

    until(are_free, "all GPUs, and the last run's results durable")
    for host in _GPU_HOSTS:
        names = _names(bed.network[host])
        assert (names.count("raylet"), names.count("ray::NodeAgent")) == (1, 1), names
