"""Results on a node's own disk: whose they are, who looks after them, and when they are tried again."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jupyter_gpu_release.errors import StoreError
from jupyter_gpu_release.node.ipc.frames import SpoolConfig
from jupyter_gpu_release.node.results import mover as module
from jupyter_gpu_release.node.results.mover import Mover
from jupyter_gpu_release.node.results.spool import (
    BackOff,
    SpoolEntry,
    SpoolRecord,
    short_address,
    spool_entries,
    wait_after_failure,
    write_values,
)
from jupyter_gpu_release.protocol.node import AttemptId
from jupyter_gpu_release.protocol.runs import Outcome, PersistWait, ValueInfo
from jupyter_gpu_release.protocol.wire import decode
from jupyter_gpu_release.store.graph_file import open_graph
from jupyter_gpu_release.store.run_folders import make_store

_RUN = "20260101-000000-00000001"
_ID, _LATER = AttemptId(_RUN, 0), AttemptId(_RUN, 2)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    make_store(tmp_path / "store")
    return tmp_path / "store"


def _record(store: Path, **facts: Any) -> SpoolRecord:
    return SpoolRecord(_RUN, "n", str(store / "runs" / _RUN), 9, **facts)


def test_pauses_grow_to_half_a_minute() -> None:
    back_off = BackOff()
    assert [back_off.next_pause_s() for _ in range(7)] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    for _ in range(5000):
        assert back_off.next_pause_s() == 30.0


def test_attempts_in_the_spool_are_found_and_nothing_else(tmp_path: Path) -> None:
    assert spool_entries(tmp_path / "none") == []
    for name in (f"{_RUN}.2", _RUN, "mover.lock", "agent.sock", f"{_RUN}.x", f"{_RUN}.0", "20260101"):
        (tmp_path / name).mkdir()
    assert [entry.attempt_id for entry in spool_entries(tmp_path)] == [_ID, _LATER]


def test_one_agent_looks_after_a_run_until_it_is_over(tmp_path: Path, store: Path) -> None:
    first, second = SpoolEntry(tmp_path, _ID), SpoolEntry(tmp_path, _ID)
    first.write_record(_record(store))
    assert (first.claim(), second.claim()) == (True, False)
    first.remove_files()
    assert not first.folder.exists()
    assert second.claim(), "nobody has it any more"
    second.remove_files()


def test_what_the_agent_knew_goes_before_what_the_rank_said(tmp_path: Path, store: Path) -> None:
    entry = SpoolEntry(tmp_path, _ID)
    assert (entry.read_record(), entry.read_outcome()) == (None, None)
    said, known = Outcome("ok", notes=["of the rank"]), Outcome("ok", notes=["of the agent"])
    entry.write_record(_record(store, outcome=said))
    assert entry.read_outcome() == said
    entry.write_outcome(known)
    assert entry.read_outcome() == known
    (entry.folder / "outcome").write_bytes(b"half")
    assert entry.read_outcome() == said
    (entry.folder / "record").write_bytes(b"half")
    assert (entry.read_record(), entry.read_outcome()) == (None, None)


def test_values_go_to_the_file_of_their_attempt_and_halves_of_it_are_removed(store: Path) -> None:
    target = _record(store, attempt=2).target
    assert target != _record(store).target
    target.parent.mkdir(parents=True)
    half, other = target.parent / f".{target.name}.aa.tmp", target.parent / ".inputs.graph.aa.tmp"
    for path in (half, other):
        path.write_bytes(b"half")
    digest = write_values(target, b"stream", [b"b"])
    assert bytes(open_graph(target, digest).stream) == b"stream"
    assert (half.exists(), other.exists()) == (False, True)


def test_a_store_that_is_not_there_is_not_made_anew(store: Path) -> None:
    store.rename(store.parent / "away")
    with pytest.raises(StoreError, match="is not there"):
        write_values(_record(store).target, b"stream", [])
    assert not store.exists()


def test_what_results_wait_for_is_said_as_the_system_says_it(tmp_path: Path) -> None:
    full = StoreError("cannot write values.graph: No space left on device")
    full.__cause__ = OSError(28, "No space left on device")
    gone = StoreError("the store is not there: is it mounted?")
    gone.__cause__ = FileNotFoundError(2, "No such file or directory")
    back_off = BackOff()
    target = tmp_path / "values.graph"
    for error, reason in (
        (full, "No space left on device"),
        (gone, gone.message),
        (OSError(5, "I/O"), "[Errno 5] I/O"),
    ):
        wait, _ = wait_after_failure(target, 9, error, "disk", back_off)
        assert (wait.reason, wait.kept, wait.bytes, wait.path) == (reason, "disk", 9, str(target))
        assert wait.free_bytes is not None
        assert wait.free_bytes > 0
    asked_s = time.time()
    wait, pause_s = wait_after_failure(target, 9, "no progress for 60 s", "memory", back_off)
    assert (wait.reason, wait.free_bytes, wait.tries, pause_s) == ("no progress for 60 s", None, 4, 8.0)
    assert wait.next_try_at is not None
    assert asked_s + 8.0 <= wait.next_try_at <= time.time() + 8.0
    assert wait_after_failure(tmp_path / "no" / "values.graph", 9, full, "disk", back_off)[0].free_bytes is None


def test_a_long_path_of_a_socket_is_reached(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as agent,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as us,
    ):
        with short_address(folder / "a.sock") as address:
            agent.bind(address)
        with short_address(folder / "a.sock") as address:
            us.sendto(b"word", address)
        assert agent.recv(9) == b"word"
    with short_address(tmp_path / "b") as address:
        assert address == str(tmp_path / "b")


class _Bed:
    """A spool with values that were spilled, and the agent's socket."""

    def __init__(self, folder: Path, store: Path) -> None:
        self.entry = SpoolEntry(folder / "spool", _ID)
        self.record = _record(store, state="spilled", outcome=Outcome("ok", results=[ValueInfo("x", "int", 9)]))
        digest = self.entry.spill_values(b"stream", [b"buffer"])
        self.record = msgspec.structs.replace(self.record, spilled_digest=digest, waits_for=PersistWait("p", 9, "full"))
        self.entry.write_record(self.record)
        self.agent = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.agent.bind(str(folder / "a.sock"))
        self.agent.setblocking(False)
        self.mover = Mover(SpoolConfig(str(folder / "spool"), str(folder / "a.sock"), "n"))

    def told(self) -> SpoolRecord:
        return decode(self.agent.recv(1 << 16), SpoolRecord)


@pytest.fixture
def bed(tmp_path: Path, store: Path) -> Any:
    made = _Bed(tmp_path, store)
    yield made
    made.agent.close()


def test_what_was_spilled_is_moved_once_and_told(bed: _Bed) -> None:
    assert bed.mover.move_due() == 0
    record = bed.entry.read_record()
    assert record == bed.told()
    assert record is not None
    assert (record.state, record.waits_for, record.outcome) == ("durable", None, bed.record.outcome)
    assert bytes(open_graph(record.target, record.digest).stream) == b"stream"
    assert not (bed.entry.folder / "store").exists()
    assert bed.mover.move_due() == 0


def test_what_cannot_be_moved_is_kept_told_and_tried_again_when_it_is_due(
    bed: _Bed, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = store.rename(store.parent / "away")
    assert bed.mover.move_due() == 1
    record = bed.entry.read_record()
    assert record == bed.told()
    assert record is not None
    assert record.waits_for is not None
    assert (record.state, record.waits_for.kept, record.waits_for.tries) == ("spilled", "disk", 1)
    away.rename(store)
    assert bed.mover.move_due() == 1, "it is not due"
    monkeypatch.setattr(time, "monotonic", lambda now=time.monotonic: now() + 3600.0)
    assert bed.mover.move_due() == 0
    assert bed.told().state == "durable"


def test_what_was_given_up_while_it_was_moved_leaves_nothing_in_the_spool(
    bed: _Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = module.write_values

    def give_up_meanwhile(*facts: Any) -> str:
        digest = write(*facts)
        bed.entry.remove_files()
        return digest

    monkeypatch.setattr(module, "write_values", give_up_meanwhile)
    bed.mover.move_due()
    assert not bed.entry.folder.exists()
    assert bed.told().state == "durable"


def test_a_persister_keeps_its_own_values(bed: _Bed) -> None:
    """Results in a process's memory, or durable already, are not the mover's."""
    for state in ("memory", "durable"):
        bed.entry.write_record(msgspec.structs.replace(bed.record, state=state))
        assert bed.mover.move_due() == 0
        assert not bed.record.target.exists()


def test_an_outcome_that_is_too_long_for_a_word_is_told_without_it(bed: _Bed) -> None:
    long = Outcome("ok", notes=["x" * (1 << 20)])
    bed.entry.write_record(msgspec.structs.replace(bed.record, outcome=long))
    bed.mover.move_due()
    told, record = bed.told(), bed.entry.read_record()
    assert record is not None
    assert (told.state, told.outcome, record.outcome) == ("durable", None, long)
