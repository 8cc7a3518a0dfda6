"""The event log on a filesystem that fills up: no torn record in the middle, nothing lost that can be kept."""

from __future__ import annotations

import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from jupyter_gpu_release.errors import StoreError
from jupyter_gpu_release.protocol.events import Event
from jupyter_gpu_release.store import event_log
from jupyter_gpu_release.store.event_log import EventWriter, events_after, read_events, read_piece, read_unforged
from jupyter_gpu_release.store.files import SHARED_FOLDER


def _event(number: int, size: int = 10) -> Event:
    return Event(number, 1.0, "stream", {"name": "stdout", "text": "x" * size})


@pytest.fixture
def limit_files() -> Iterator[Callable[[int], None]]:
    """Files may grow to so many bytes: a write that reaches beyond takes a part, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def test_what_a_full_disk_refuses_is_written_later(tmp_path: Path, limit_files: Callable[[int], None]) -> None:
    path = tmp_path / "events.log"
    writer = EventWriter(path)
    writer.write([_event(1)])
    size = path.stat().st_size
    limit_files(size + 30)
    for number in (2, 3):
        with pytest.raises(StoreError, match=r"events\.log: File too large"):
            writer.write([_event(number, 100)])
    assert [event.n for event in read_events(path)] == [1]
    assert path.stat().st_size == size  # no torn part
    assert [event.n for event in writer.unwritten_events()] == [2, 3]
    assert [event.n for event in events_after(path, 2, writer)] == [3]
    limit_files(resource.RLIM_INFINITY)
    writer.write([_event(4)])
    writer.close()
    assert [event.n for event in read_events(path)] == [1, 2, 3, 4]
    assert writer.unwritten_events() == []


def test_a_folder_that_is_away_at_first(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path / "run" / "events.log")
    with pytest.raises(StoreError, match="No such file"):
        writer.write([_event(1)])
    (tmp_path / "run").mkdir()
    writer.write([])
    writer.close()
    assert [event.n for event in read_events(tmp_path / "run" / "events.log")] == [1]


def test_what_is_too_much_ends_the_log_without_a_hole(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path / "run" / "events.log")
    for number in (1, 2, 3):
        with pytest.raises(StoreError):
            writer.write([_event(number, 10 << 20)])
    (tmp_path / "run").mkdir()
    with pytest.raises(StoreError, match="output is missing"):
        writer.write([_event(4)])
    writer.close()
    assert [event.n for event in read_events(tmp_path / "run" / "events.log")] == [1]


def test_pickles_in_a_log_that_a_group_can_write_are_those_of_its_writer(tmp_path: Path) -> None:
    """What a member puts there, or alters, is shown without its pickle; all else is what it was."""
    tmp_path.chmod(SHARED_FOLDER)
    own, forged = (Event(1, 0.0, "published", {"name": "x", "graph": {"stream": what}}) for what in (b"own", b"forged"))
    item = Event(2, 0.0, "item", {"item": 3, "values": {"file": "item-3.graph", "digest": "d"}})
    plain = [Event(3, 0.0, "published", {"name": "loss", "value": 0.5}), Event(4, 0.0, "stream", {"text": "x"})]
    log, late = EventWriter(tmp_path / "events.log"), Event(5, 0.0, "item", {"item": 4, "values": None})
    log.write([own, item, *plain])
    assert events_after(tmp_path / "events.log", 0, log) == [own, item, *plain]
    other = EventWriter(tmp_path / "other.log")
    other.write([forged, item, *plain, late])
    (tmp_path / "events.log").write_bytes((tmp_path / "other.log").read_bytes())
    shown = events_after(tmp_path / "events.log", 0, log)
    assert [event.n for event in shown if event.data.get("withheld") or event.data.get("error")] == [1, 5]
    assert b"forged" not in repr(shown).encode()
    assert shown[1:4] == [item, *plain]
    alone = list(read_unforged(tmp_path / "events.log"))
    assert [event.n for event in alone if event.data.get("withheld") or event.data.get("error")] == [1, 2, 5]
    tmp_path.chmod(0o700)
    assert events_after(tmp_path / "events.log", 0, log)[0] == forged, "there nobody else can have written it"
    for writer in (log, other):
        writer.close()


def test_attempts_go_on_in_logs_of_their_own_and_what_an_old_one_still_says_is_not_read(tmp_path: Path) -> None:
    first, third, last = (EventWriter(tmp_path / name) for name in ("events.log", "events.2.log", "events.10.log"))
    first.write([_event(n, 1) for n in (1, 2, 3)])
    third.write([_event(n, 2) for n in (4, 5)])
    first.write([_event(n, 1) for n in (4, 5, 6, 7)])
    third.write([_event(6, 2)])
    last.write([_event(7, 3)])
    third.write([_event(7, 2)])
    for log in (first, third, last):
        log.close()
    (tmp_path / "events.x.log").touch()
    path = tmp_path / "events.log"
    assert [(event.n, len(event.data["text"])) for event in read_events(path)] == [
        (1, 1),
        (2, 1),
        (3, 1),
        (4, 2),
        (5, 2),
        (6, 2),
        (7, 3),
    ]
    assert [event.n for event in read_events(path, 4)] == [5, 6, 7]
    assert [event.n for event in events_after(path, 1, last)] == [2, 3, 4, 5, 6, 7]
    found, at = list[int](), 0
    while piece := read_piece(path, at, 1)[0]:
        found += [event.n for event in piece]
        at = read_piece(path, at, 1)[1]
    assert found == [1, 2, 3, 4, 5, 6, 7]


def test_refusals_that_are_over_do_not_add_up(
    tmp_path: Path, limit_files: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events.log"
    writer = EventWriter(path)
    monkeypatch.setattr(event_log, "KEPT_BYTES", 300)
    for number in range(1, 11):
        limit_files(1)
        with pytest.raises(StoreError):
            writer.write([_event(number, 100)])
        limit_files(1 << 20)
        writer.write([])
    writer.close()
    assert [event.n for event in read_events(path)] == list(range(1, 11))


def test_a_writer_knows_its_newest_pickles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "_MOST_KNOWN", 2)
    with closing(EventWriter(tmp_path / "events.log")) as log:
        values = [{"graph": {"stream": b"own"}}, {"file": "x.graph"}, {"value": 1}, {"graph": {"stream": b"own"}}]
        log.write([Event(n, 0.0, "published", {"name": "x", **value}) for n, value in enumerate(values, start=1)])
        assert list(log.written) == [2, 4]
