"""Results that cannot be written at once: kept, spilled, adopted, given up, lost; on real filesystems that refuse."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
from disks import tmpfs
from node_bed import Node
from soak import thorough
from vanishing_store import LARGE, SMALL, assert_whole, begin, failures_of, persister_of, waits_of

from jupyter_gpu_release.errors import StoreError
from jupyter_gpu_release.host import process_control
from jupyter_gpu_release.node.ipc.frames import RankOrder, SpoolConfig
from jupyter_gpu_release.node.results import persister
from jupyter_gpu_release.node.results.spool import SpoolEntry, SpoolRecord
from jupyter_gpu_release.protocol.node import AttemptId, RunPhase, RunSaved
from jupyter_gpu_release.protocol.runs import Outcome, Save
from jupyter_gpu_release.protocol.wire import encode
from jupyter_gpu_release.store.event_log import read_events
from jupyter_gpu_release.store.graph_file import open_graph

Until = Callable[[Callable[[], object], str], None]


def test_large_results_are_durable_before_the_run_is_final(own_node: Node) -> None:
    run = own_node.run(LARGE)
    assert run.outcome.status == "ok"
    assert_whole(own_node, run.order.run, run.outcome.values)
    own_node.loop.call_soon_threadsafe(own_node.keeping.forget_attempt, run.order.attempt_id)


class _Endless(socket.socket):
    """Has always another message, and counts those that were read."""

    reads = 0
    message = b""

    def recv(self, size: int, flags: int = 0) -> bytes:
        self.reads += 1
        return self.message


@pytest.mark.timeout(30)
@pytest.mark.parametrize("data", [encode(SpoolRecord("20260101-000000-00000001", "", "", 0)), b"?"])
def test_who_sends_without_end_gets_little_of_the_agents_time(own_node: Node, until: Until, data: bytes) -> None:
    """A record of no run here, or no message at all: where owners run cells each of them may send."""
    keeping, (ours, theirs) = own_node.keeping, socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with theirs, _Endless(fileno=ours.detach()) as line:
        line.message = data
        theirs.send(b"never read")

        async def is_read_without_a_pause() -> bool:
            keeping._lines[1] = line
            keeping._listen(1)
            while not line.reads:
                await asyncio.sleep(0)
            return asyncio.get_running_loop().remove_reader(line)

        assert not own_node.call(is_read_without_a_pause())
        at_once = line.reads
        until(lambda: line.reads > at_once, "it is read again")

        async def stop() -> None:
            asyncio.get_running_loop().remove_reader(keeping._lines.pop(1))

        own_node.call(stop())


def test_a_persister_is_known_from_its_first_moment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On a busy machine the fork server looks at its orphans before the fork's first statement."""
    monkeypatch.setattr(persister, "_leave_the_rank", signal.pause)
    order = RankOrder("20260101-000000-00000001", b"", str(tmp_path), keep=SpoolConfig(str(tmp_path), ""))
    pid = persister.fork_persister(order, Outcome("ok"), b"", [], 0).pid
    try:
        assert process_control.is_persister(pid)
        assert not process_control.is_persister(os.getpid())
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


class _Refused:
    """A try that the store has refused at once."""

    is_over, error = True, StoreError("no space left")

    def __init__(self, *_: object) -> None:
        """Writes nothing."""


class _Clock:
    """Time passes only where the persister waits."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        patch.setattr(persister, "time", SimpleNamespace(monotonic=lambda: self.now_s, sleep=self.wait))
        patch.setattr(persister.signal, "sigtimedwait", lambda _, pause_s: self.wait(pause_s))

    def wait(self, pause_s: float) -> None:
        self.now_s += pause_s


def test_it_is_the_first_of_all_failures_from_which_time_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clock, attempt = _Clock(monkeypatch), AttemptId("20260101-000000-00000001", 0)
    monkeypatch.setattr(persister, "_Try", _Refused)
    entry = SpoolEntry(tmp_path, attempt)
    order = SpoolConfig(str(tmp_path), str(tmp_path / "agent.sock"))
    persister.Persister(order, entry, tmp_path, Outcome("ok"), b"stream", [], 6).run(0)
    record = entry.read_record()
    assert record is not None
    assert record.state == "spilled"
    assert clock.now_s == pytest.approx(1006.0), "it hears of a refusal a second after it has begun a try"


@pytest.mark.parametrize(("decoy", "reason"), [(False, "is not there"), (True, "it has no store.json")])
def test_a_store_that_comes_back_gets_the_results(own_node: Node, until: Until, decoy: bool, reason: str) -> None:
    run, away = begin(own_node, LARGE, until, decoy=decoy)
    run.wait_for(failures_of)
    wait = failures_of(run)[0]
    assert wait.path.endswith("values.graph")
    assert reason in wait.reason
    # only the latest failure is told when the run is released: that may be the second
    assert (wait.bytes >= 24 << 20, wait.kept, wait.tries >= 1) == (True, "memory", True)
    assert wait.next_try_at is not None
    # nobody made it anew, or wrote to what lies in its place, which would hide the results later
    assert [str(path.relative_to(own_node.store)) for path in own_node.store.rglob("*")] == ["runs"] * decoy
    if decoy:
        shutil.rmtree(own_node.store)
    away.rename(own_node.store)
    assert run.wait().status == "ok"
    assert_whole(own_node, run.order.run, run.outcome.values)


def test_values_of_all_ranks_are_gathered_and_the_gpus_free_without_a_store(own_node: Node) -> None:
    away = own_node.store.with_name("store-away")
    source = (
        "from jupyter_gpu_release import ranks\nimport os\n" + LARGE + "\ntable += ranks.rank\nranks.barrier()\n"
        f"if ranks.rank == 0:\n    os.rename({str(own_node.store)!r}, {str(away)!r})\nranks.barrier()"
    )
    run = own_node.start(source, gather=["table"], ranks=2, gpu_ids=["0", "1"])
    run.wait_for(lambda run: run.phase("released"))
    assert run.phase("final") is None
    away.rename(own_node.store)
    outcome = run.wait()
    assert (outcome.status, outcome.error) == ("ok", None)
    assert outcome.values is not None
    graph = open_graph(own_node.store / "runs" / run.order.run / "values.graph", outcome.values.digest, verify=True)
    first, second = (np.frombuffer(part, np.float64) for part in graph.buffers if len(part) >= 24 << 20)
    assert (first == np.arange(3 << 20)).all()
    assert (second == first + 1).all()


def test_output_that_could_not_be_recorded_is_recorded_later(own_node: Node, until: Until) -> None:
    away = own_node.store.with_name("store-away")
    source = f"import os\nos.rename({str(own_node.store)!r}, {str(away)!r})\nprint('last words')\n" + SMALL
    run = own_node.start(source)
    run.wait_for(failures_of)
    assert "last words" in "".join(str(event.data) for event in run.on_node.events_after(0))
    away.rename(own_node.store)
    assert run.wait().status == "ok"
    recorded = read_events(own_node.store / "runs" / run.order.run / "events.log")
    assert "last words" in "".join(str(event.data) for event in recorded)
    assert not any("not recorded" in note for note in run.outcome.notes)


def test_small_results_are_not_final_before_they_are_durable(own_node: Node, until: Until) -> None:
    run, away = begin(own_node, SMALL, until)
    run.wait_for(failures_of)
    released = run.phase("released")
    assert released is not None
    assert released.outcome is not None
    assert released.outcome.values is not None
    assert released.outcome.values.stream  # the names are usable at once
    until(lambda: failures_of(run)[-1].kept == "disk", "small results are on the node's own disk")
    assert run.phase("final") is None
    away.rename(own_node.store)
    outcome = run.wait()
    assert outcome.status == "ok"
    assert outcome.values is not None
    assert open_graph(own_node.store / "runs" / run.order.run / "values.graph", outcome.values.digest).stream


@pytest.mark.thorough
def test_what_fails_for_long_is_spilled_and_leaves_the_memory(own_node: Node, until: Until) -> None:
    run, away = begin(own_node, LARGE, until)
    pid = persister_of(own_node, until)
    run.wait_for(lambda run: any(wait.kept == "disk" for wait in waits_of(run)))
    until(lambda: process_control.is_gone(pid), "the persister let go of its memory")
    spool = Path(own_node.keeping.order.spool) / run.order.run
    assert spool.stat().st_mode & 0o077 == 0
    away.rename(own_node.store)
    assert run.wait().status == "ok"
    assert_whole(own_node, run.order.run, run.outcome.values)
    own_node.loop.call_soon_threadsafe(own_node.keeping.forget_attempt, run.order.attempt_id)
    until(lambda: not spool.exists(), "the spool is empty")


def test_more_than_the_budget_is_spilled_at_once(tmp_path: Path, until: Until) -> None:
    (tmp_path / "store").mkdir()
    node = Node(tmp_path / "store", ["numpy"], persist_memory_bytes=16 << 20, persist_bytes_per_s=1 << 20)
    try:
        run = node.start(LARGE)
        # at 1 MiB/s the first try goes well and would take 24 s
        run.wait_for(lambda run: any(wait.kept == "disk" for wait in waits_of(run)))
        assert not failures_of(run)
        node.loop.call_soon_threadsafe(node.keeping.give_up_results, run.order.attempt_id, "enough")
        assert run.wait().status == "interrupted"
    finally:
        node.close()


def test_the_limit_of_the_operator_is_kept(tmp_path: Path) -> None:
    """From a moment before the first byte to one after the last: a machine that stalls makes it only longer."""
    (tmp_path / "store").mkdir()
    limit = 20 << 20
    node = Node(tmp_path / "store", ["numpy"], persist_bytes_per_s=limit)
    try:
        run = node.run(LARGE + "\nimport time\nprint(time.time())")
        final = run.phase("final")
        assert final is not None
        assert_whole(node, run.order.run, run.outcome.values)
        assert (24 << 20) / (final.at_s - float(run.text())) <= limit * 1.01
    finally:
        node.close()


def test_the_next_agent_adopts_what_a_persister_keeps(own_node: Node, until: Until) -> None:
    run, away = begin(own_node, LARGE, until)
    run.wait_for(failures_of)
    pid = persister_of(own_node, until)
    (adopted,) = own_node.call(own_node.start_agent_anew())
    assert (adopted.attempt_id.run, adopted.outcome.status, adopted.outcome.results[0].name) == (
        run.order.run,
        "ok",
        "table",
    )
    assert process_control.is_persister(pid)
    away.rename(own_node.store)
    until(lambda: adopted.phase == "final", "the adopted run is final")
    assert_whole(own_node, adopted.attempt_id.run, adopted.outcome.values)
    until(
        lambda: [m.phase for m in own_node.messages if isinstance(m, RunPhase)] == ["released", "final"],
        "both phases to be told",
    )


def test_the_next_agent_moves_what_was_spilled(own_node: Node, until: Until) -> None:
    run, away = begin(own_node, LARGE, until)
    os.kill(persister_of(own_node, until), signal.SIGTERM)  # as at the cluster's end
    run.wait_for(lambda run: any(wait.kept == "disk" for wait in waits_of(run)))
    (adopted,) = own_node.call(own_node.start_agent_anew())
    away.rename(own_node.store)
    until(lambda: adopted.phase == "final", "the adopted run is final")
    assert_whole(own_node, adopted.attempt_id.run, adopted.outcome.values)


def test_results_that_became_durable_without_an_agent_are_reported(own_node: Node, until: Until) -> None:
    run, away = begin(own_node, LARGE, until)
    own_node.call(_deaf(own_node))
    pid = persister_of(own_node, until)
    away.rename(own_node.store)
    until(lambda: process_control.is_gone(pid), "the persister is done")
    (adopted,) = own_node.call(own_node.start_agent_anew())
    until(lambda: adopted.phase == "final", "the adopted run is final")
    assert_whole(own_node, adopted.attempt_id.run, adopted.outcome.values)
    assert run.phase("final") is None


def test_a_persister_that_is_killed_leaves_a_run_that_names_what_is_lost(own_node: Node, until: Until) -> None:
    run, _away = begin(own_node, LARGE, until)
    pid = persister_of(own_node, until)
    until(lambda: psutil.Process(pid).nice() >= 10, "it to step back: giving GPUs back comes first")
    os.kill(pid, signal.SIGKILL)
    outcome = run.wait()
    assert (outcome.status, outcome.values, outcome.results) == ("lost", None, [])
    assert outcome.error is not None
    assert outcome.error.evalue.startswith(f"results of run {run.order.run} (table, np; ") or (
        f"results of run {run.order.run} (table; " in outcome.error.evalue
    )
    assert "are lost: the process that kept them was killed" in outcome.error.evalue


def test_results_can_be_given_up(own_node: Node, until: Until) -> None:
    run, _away = begin(own_node, LARGE, until)
    pid = persister_of(own_node, until)
    own_node.loop.call_soon_threadsafe(own_node.keeping.give_up_results, run.order.attempt_id, "cancelled by ada")
    outcome = run.wait()
    assert (outcome.status, outcome.values) == ("interrupted", None)
    assert outcome.error is not None
    assert "given up: cancelled by ada" in outcome.error.evalue
    until(lambda: process_control.is_gone(pid), "the persister has ended")
    assert not (Path(own_node.keeping.order.spool) / run.order.run).exists()


@pytest.mark.parametrize("victim", ["supervisor", *thorough("fork server")])
def test_results_survive_those_that_made_them(own_node: Node, until: Until, victim: str) -> None:
    run, away = begin(own_node, LARGE, until)
    pid = persister_of(own_node, until)
    server = own_node.call(own_node.servers.start_server()).pid
    if victim == "fork server":
        os.kill(server, signal.SIGKILL)
    else:
        supervisor = psutil.Process(pid).ppid()
        if supervisor != server:
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                os.kill(supervisor, signal.SIGKILL)
        looked = own_node.start("x = 1")
        looked.wait_for(lambda run: run.phase("released"))  # the fork server has looked at its children
        shutil.rmtree(own_node.store)  # made for that run, and not the store: nothing is written to it
    assert process_control.is_persister(pid)
    away.rename(own_node.store)
    assert run.wait().status == "ok"
    assert_whole(own_node, run.order.run, run.outcome.values)


@pytest.mark.thorough
def test_a_disk_that_is_full_then_read_only_is_said_and_written_when_it_is_neither(own_node: Node) -> None:
    name = (own_node.store / "store.json").read_bytes()
    with tmpfs(own_node.store, "8m"):
        (own_node.store / "runs").mkdir()
        (own_node.store / "store.json").write_bytes(name)
        run = own_node.start(LARGE, workdir=str(own_node.store.parent))
        run.wait_for(failures_of)
        wait = failures_of(run)[0]
        assert wait.reason == "No space left on device"
        assert wait.free_bytes is not None
        assert wait.free_bytes <= 8 << 20
        subprocess.run(["mount", "-o", "remount,ro,size=64m", str(own_node.store)], check=True)
        run.wait_for(lambda run: any("Read-only" in wait.reason for wait in failures_of(run)))
        subprocess.run(["mount", "-o", "remount,rw", str(own_node.store)], check=True)
        assert run.wait().status == "ok"
        assert_whole(own_node, run.order.run, run.outcome.values)


@pytest.mark.thorough
def test_a_full_local_disk_keeps_them_in_memory(own_node: Node, until: Until) -> None:
    run, away = begin(own_node, LARGE, until)
    pid = persister_of(own_node, until)
    with tmpfs(Path(own_node.keeping.order.spool), "4m"):
        os.kill(pid, signal.SIGUSR1)
        run.wait_for(lambda run: len(failures_of(run)) > 2)
        assert process_control.is_persister(pid)
        assert failures_of(run)[-1].kept == "memory"
        away.rename(own_node.store)
        assert run.wait().status == "ok"
        assert_whole(own_node, run.order.run, run.outcome.values)


async def _deaf(node: Node) -> None:
    node.keeping.close()


def test_a_later_attempt_has_files_of_its_own_and_the_next_agent_tells_which_it_is(
    own_node: Node, until: Until
) -> None:
    """An agent from before it may go on with the first one, on another node, for as long as nobody hears of it."""
    away = own_node.store.with_name("store-away")
    first = own_node.run(LARGE + "\nprint('first')\n")
    gone = f"import os\nos.rename({str(own_node.store)!r}, {str(away)!r})\n"
    second = own_node.start(gone + LARGE, run=first.order.run, made=True, attempt=1, after_event=1)
    second.wait_for(failures_of)
    (adopted,) = [run for run in own_node.call(own_node.start_agent_anew()) if run.attempt_id.attempt]
    assert adopted.attempt_id == second.order.attempt_id
    away.rename(own_node.store)
    until(lambda: adopted.phase == "final", "the adopted attempt is final")
    phases = [m.attempt_id for m in own_node.messages if isinstance(m, RunPhase) and m.phase == "final"]
    assert second.order.attempt_id in phases
    folder = own_node.store / "runs" / first.order.run
    for outcome, name in ((first.outcome, "values.graph"), (adopted.outcome, "values.1.graph")):
        assert outcome.values is not None
        assert outcome.values.file == name
        assert open_graph(folder / name, outcome.values.digest, verify=True).buffers
    own_node.run("print('third')", run=first.order.run, made=True, attempt=2, after_event=1)
    texts = [event.data["text"] for event in read_events(folder / "events.log")]
    assert ("".join(texts), (folder / "events.2.log").exists()) == ("first\nthird\n", True)


def test_a_new_gateway_is_told_the_latest_save(own_node: Node) -> None:
    run = own_node.run("print('done')")
    assert run.on_node.view().save is None
    save = Save(1, 0, 1.0, "round 2")
    own_node.loop.call_soon_threadsafe(run.on_node.on_saved, save)
    run.wait_for(lambda run: any(isinstance(message, RunSaved) for message in run.messages))
    assert run.on_node.view().save == save
