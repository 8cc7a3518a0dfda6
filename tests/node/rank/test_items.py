"""Results of the items of ``launch_map`` go home, or a word on why they do not."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jupyter_gpu_release.node.rank import items
from jupyter_gpu_release.protocol.fetch import ITEM, ItemOutcome, NextItem
from jupyter_gpu_release.protocol.wire import encode
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo
from jupyter_gpu_release.store.layout import RunPaths


class _Outlet:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []

    def add_event(self, kind: str, data: Any) -> None:
        self.events.append((kind, data))

    def flush(self) -> None:
        """All is sent already."""


class _Answers:
    """Hands out item 0, then none."""

    def __init__(self, _sock: object) -> None:
        self._answers = [NextItem(1, 0), NextItem(2)]

    def start_reading(self) -> None:
        """There is nothing to read."""

    def next_answer(self, _limit_s: float) -> bytes:
        return encode(self._answers.pop(0))


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
