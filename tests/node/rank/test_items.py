"""Results of the items of ``launch_map`` go home, or a word on why they do not."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jupyter_gpu_release.node.rank import items
from jupyter_gpu_release.protocol.fetch import ITEM, NEXT, ItemOutcome, NextItem
from jupyter_gpu_release.protocol.wire import encode
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo
from jupyter_gpu_release.store.graph_file import open_graph
from jupyter_gpu_release.store.layout import RunPaths
from jupyter_gpu_release.store.run_folders import make_store


class _Outlet:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []

    def add_event(self, kind: str, data: Any) -> None:
        self.events.append((kind, data))

    def flush(self) -> None:
        """All is sent already."""


class _Answers:
    """Hands out item 0, then none; ``None`` among them: nothing comes for a while."""

    given: tuple[NextItem | None, ...] = (NextItem(1, 0), NextItem(2))

    def __init__(self, _sock: object) -> None:
        self._answers = list(self.given)

    def next_answer(self, _limit_s: float) -> bytes | None:
        answer = self._answers.pop(0)
        return None if answer is None else encode(answer)


def test_the_last_item_is_told_of_a_store_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = threading.Event()
    monkeypatch.setattr(items, "AnswerQueue", _Answers)
    monkeypatch.setattr(items, "require_store", lambda _store: goes_on.wait(60))
    monkeypatch.setattr(items, "write_graph", lambda *_parts, **_options: "digest")
    monkeypatch.setattr(items, "_WRITE_S", 0.0)
    outlet: Any = _Outlet()
    paths = RunPaths(tmp_path / "runs" / "a")
    exchange = items.ItemExchange(outlet, None, NamespaceInfo({}, at_home=False), paths, lambda _error: [])
    for item in exchange.item_numbers():
        exchange.send_value(item, b"x" * (1 << 17))
    (outcome,) = [msgspec.convert(data, ItemOutcome) for kind, data in outlet.events if kind == ITEM]
    goes_on.set()
    assert outcome.item == 0
    assert outcome.error is not None
    assert (outcome.error.ename, outcome.error.code) == ("StoreError", "store")
    assert "does not answer" in outcome.error.evalue


def _exchange(tmp_path: Path, outlet: Any) -> items.ItemExchange:
    paths = RunPaths(tmp_path / "store" / "runs" / "20260101-000000-00000001")
    return items.ItemExchange(outlet, None, NamespaceInfo({}, at_home=False), paths, lambda _error: ["in the cell"])


def _of(outlet: Any, kind: str) -> list[Any]:
    return [data for sent, data in outlet.events if sent == kind]


@pytest.mark.parametrize(
    ("answers", "taken", "asked"),
    [
        ((NextItem(1, 7), NextItem(2, 3), NextItem(3)), [7, 3], [(1, None), (2, 7), (3, 3)]),
        ((None, NextItem(1, 7), NextItem(2)), [7], [(1, None), (1, None), (2, 7)]),
        ((NextItem(1, 7), NextItem(1, 7), NextItem(2, 8), NextItem(3)), [7, 8], [(1, None), (2, 7), (3, 8)]),
        ((NextItem(1, 7), NextItem(error="the notebook has gone")), [7], [(1, None), (2, 7)]),
    ],
    ids=["one after the other", "no answer for a while", "an answer twice", "nobody hands out items any more"],
)
def test_each_item_is_taken_once_and_the_next_is_asked_for_when_it_begins(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answers: tuple[NextItem | None, ...],
    taken: list[int],
    asked: list[tuple[int, int | None]],
) -> None:
    monkeypatch.setattr(items, "AnswerQueue", _Answers)
    monkeypatch.setattr(_Answers, "given", answers)
    outlet = _Outlet()
    assert list(_exchange(tmp_path, outlet).item_numbers()) == taken
    assert [(each["ask"], each.get("begins")) for each in _of(outlet, NEXT)] == asked


def test_small_values_travel_in_the_event_and_large_ones_by_a_file_of_their_item(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(items, "AnswerQueue", _Answers)
    make_store(tmp_path / "store")
    (tmp_path / "store" / "runs" / "20260101-000000-00000001").mkdir()
    outlet = _Outlet()
    exchange = _exchange(tmp_path, outlet)
    exchange.send_value(3, [1, 2])
    exchange.send_value(4, b"x" * (1 << 17))
    assert list(exchange.item_numbers()) == [0]
    small, large = [msgspec.convert(data, ItemOutcome) for data in _of(outlet, ITEM)]
    assert (small.item, large.item) == (3, 4)
    assert small.values is not None
    assert (small.values.file, small.error) == ("", None)
    assert large.values is not None
    path = tmp_path / "store" / "runs" / "20260101-000000-00000001" / large.values.file
    assert open_graph(path, large.values.digest).stream


def test_what_cannot_leave_its_process_and_what_was_raised_is_told_of_its_item(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(items, "AnswerQueue", _Answers)
    outlet = _Outlet()
    exchange = _exchange(tmp_path, outlet)
    exchange.send_value(5, threading.Lock())
    exchange.send_error(6, ValueError("no"))
    refused, raised = [msgspec.convert(data, ItemOutcome).error for data in _of(outlet, ITEM)]
    assert refused is not None
    assert (refused.ename, refused.code) == ("CannotSendError", "cannot_send")
    assert "cannot leave its process" in refused.evalue
    assert "state_dict" in refused.hint
    assert raised is not None
    assert (raised.ename, raised.evalue, raised.traceback) == ("ValueError", "no", ["in the cell"])
    assert raised.pickled


def test_a_store_that_refuses_a_value_is_told_of_its_item(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(items, "AnswerQueue", _Answers)
    outlet = _Outlet()
    exchange = _exchange(tmp_path, outlet)
    exchange.send_value(4, b"x" * (1 << 17))
    assert list(exchange.item_numbers()) == [0]
    (refused,) = [msgspec.convert(data, ItemOutcome) for data in _of(outlet, ITEM)]
    assert refused.error is not None
    assert (refused.item, refused.error.code) == (4, "store")
    assert "is it mounted" in refused.error.evalue + refused.error.hint
