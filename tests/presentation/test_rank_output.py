"""Output of ranks above 0 in a notebook: collapsed, marked, bounded, brought up to date."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_gpu_release.kernel.output.cell_output import CellOutput
from jupyter_gpu_release.presentation import rank_output
from jupyter_gpu_release.presentation.run_output import RunOutput
from jupyter_gpu_release.protocol.events import Event


class Publisher:
    def __init__(self) -> None:
        self.shown: list[tuple[dict[str, Any], bool]] = []
        self.ids: set[str] = set()

    def publish(self, data: Any, metadata: Any = None, transient: Any = None, update: bool = False) -> None:
        self.shown.append((data, update))
        self.ids.add(transient["display_id"])

    def clear_output(self, wait: bool = False) -> None:
        raise AssertionError("rank 0 has not cleared anything")


def relay_in_a_notebook(publisher: Publisher) -> RunOutput:
    return RunOutput(CellOutput(SimpleNamespace(display_pub=publisher, kernel=object())))


def events(*pieces: tuple[str, dict[str, Any]]) -> list[Event]:
    return [Event(number, 0.0, kind, data) for number, (kind, data) in enumerate(pieces, start=1)]


def text(rank: int, words: str, **marks: str) -> tuple[str, dict[str, Any]]:
    return "stream", {"name": "stdout", "text": words, "rank": rank, **marks}


def test_ranks_are_collapsed_in_one_display(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_output, "_PAUSE_S", 3600.0)
    publisher = Publisher()
    relay = relay_in_a_notebook(publisher)
    relay.show(events(text(0, "mine\n"), text(1, "<b>one</b>\nan"), text(2, "served\n", who="ps 0")))
    relay.show(events(text(1, "other\r\n10%\r20%\r\x1b[31m30%\x1b[0m"), ("clear_output", {"wait": False, "rank": 1})))
    relay.show(events(("display", {"data": {"text/plain": "Figure"}, "rank": 1})))
    for _ in range(2):
        relay.show_held_back()
    assert capsys.readouterr().out == "mine\n"
    assert len(publisher.ids) == 1
    assert [update for _, update in publisher.shown] == [False, True]
    last = publisher.shown[-1][0]
    assert re.findall(r"<summary>(.*?)</summary>", last["text/html"]) == ["[rank 1] 30%Figure", "[ps 0] served"]
    assert "&lt;b&gt;one&lt;/b&gt;\nanother\n30%Figure" in last["text/html"]
    assert last["text/plain"].splitlines()[-1] == "[ps 0] served"


def test_long_output_keeps_its_last_lines_and_says_so() -> None:
    publisher = Publisher()
    relay = relay_in_a_notebook(publisher)
    relay.show(events(text(3, "".join(f"line {n}\n" for n in range(5000)))))
    page = publisher.shown[-1][0]["text/html"]
    assert "… the last 200 of 5000 lines\nline 4800\n" in page
    assert len(page) < 20_000
    assert publisher.shown[-1][0]["text/plain"].splitlines() == [f"[rank 3] line {n}" for n in range(4997, 5000)]


def test_only_errors_with_something_to_say_are_folded_too() -> None:
    publisher = Publisher()
    relay = relay_in_a_notebook(publisher)
    broken = {"ename": "RuntimeError", "evalue": "peer", "traceback": ["connection closed by peer"], "rank": 2}
    ended = {"ename": "KeyboardInterrupt", "evalue": "", "traceback": ["ended"], "rank": 3}
    relay.show(events(("error", broken), ("error", ended)))
    relay.show_other_errors("ValueError", "the first one")
    assert publisher.shown[-1][0]["text/plain"] == "[rank 2] connection closed by peer"
