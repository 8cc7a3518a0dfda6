from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_gpu_release.kernel.output.cell_output import CellOutput
from jupyter_gpu_release.presentation.run_output import RunOutput
from jupyter_gpu_release.protocol.events import Event


class RecordingPublisher:
    """What a display publisher is asked for, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def publish(self, data: Any, metadata: Any = None, *, transient: Any = None, update: bool = False) -> None:
        self.calls.append(("publish", data, metadata, transient, update))

    def clear_output(self, wait: bool = False) -> None:
        self.calls.append(("clear", wait))


def events(*pairs: tuple[str, dict[str, Any]]) -> list[Event]:
    return [Event(n, 0.0, kind, data) for n, (kind, data) in enumerate(pairs, start=1)]


def text(words: str, name: str = "stdout", **more: Any) -> tuple[str, dict[str, Any]]:
    return "stream", {"name": name, "text": words, **more}


@pytest.fixture
def publisher() -> RecordingPublisher:
    return RecordingPublisher()


@pytest.fixture
def relay(publisher: RecordingPublisher) -> RunOutput:
    return RunOutput(CellOutput(SimpleNamespace(display_pub=publisher)))


def test_text_goes_to_its_stream(relay: RunOutput, capsys: pytest.CaptureFixture[str]):
    relay.show(events(text("a"), text("b\n"), text("oh\n", "stderr"), text("c\r")))
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("ab\nc\r", "oh\n")


def test_displays_keep_everything(relay: RunOutput, publisher: RecordingPublisher):
    data = {"text/plain": "x", "image/png": "aGk="}
    relay.show(
        events(
            ("display", {"data": data, "metadata": {"image/png": {"width": 3}}, "transient": {"display_id": "d"}}),
            ("update_display", {"data": {"text/plain": "y"}, "metadata": {}, "transient": {"display_id": "d"}}),
            ("clear_output", {"wait": False}),
        )
    )
    assert publisher.calls == [
        ("publish", data, {"image/png": {"width": 3}}, {"display_id": "d"}, False),
        ("publish", {"text/plain": "y"}, {}, {"display_id": "d"}, True),
        ("clear", False),
    ]
    assert relay.cleared


def test_clearing_that_waits_is_for_the_cells_own_output_only(relay: RunOutput, publisher: RecordingPublisher):
    relay.show(events(("clear_output", {"wait": True})))
    assert publisher.calls == []
    relay.show(events(("display", {"data": {"text/plain": "new"}}), ("clear_output", {"wait": True})))
    assert publisher.calls == [("clear", True), ("publish", {"text/plain": "new"}, {}, {}, False)]
    relay.show(events(("clear_output", {"wait": False, "rank": 1})))
    assert len(publisher.calls) == 2, "what another rank clears is its own"
    relay.show(events(("traceback", {"ename": "E", "evalue": "", "traceback": ["T"]})))
    assert publisher.calls[2:] == [("clear", True)]


def test_text_is_not_joined_across_a_display(relay: RunOutput, capsys: pytest.CaptureFixture[str]):
    order: list[str] = []

    class Publisher(RecordingPublisher):
        def publish(self, data: Any, metadata: Any = None, **_: Any) -> None:
            order.append(capsys.readouterr().out + "|" + data["text/plain"])

    RunOutput(CellOutput(SimpleNamespace(display_pub=Publisher()))).show(
        events(text("1"), ("display", {"data": {"text/plain": "D"}}), text("2"))
    )
    assert order == ["1|D"]
    assert capsys.readouterr().out == "2"


def test_other_ranks_are_marked_at_each_line(relay: RunOutput, capsys: pytest.CaptureFixture[str]):
    relay.show(events(text("a\nb", rank=1)))
    relay.show(events(text(" more\n\nc\r", rank=1), text("d\n", rank=0), text("10%\r20%", rank=1)))
    expected = "[rank 1] a\n[rank 1] b more\n\n[rank 1] c\rd\n[rank 1] 10%\r[rank 1] 20%"
    assert capsys.readouterr().out == expected


def test_ranks_do_not_share_their_lines(relay: RunOutput, capsys: pytest.CaptureFixture[str]):
    relay.show(events(text("x", rank=1)))
    relay.show(events(text("y", rank=2)))
    relay.show(events(text(" again\n", rank=2), text("z\n", rank=0)))
    assert capsys.readouterr().out == "[rank 1] x\n[rank 2] y again\nz\n"


def test_errors_are_kept_for_the_end(relay: RunOutput, capsys: pytest.CaptureFixture[str]):
    relay.show(
        events(
            ("error", {"ename": "ValueError", "evalue": "no", "traceback": ["T0"]}),
            ("error", {"ename": "KeyError", "evalue": "k", "traceback": ["T1"], "rank": 1}),
            ("error", {"ename": "ValueError", "evalue": "no", "traceback": ["T2"], "rank": 2}),
            ("error", {"ename": "KeyboardInterrupt", "evalue": "", "traceback": ["T3"], "rank": 3}),
        )
    )
    assert capsys.readouterr() == ("", "")
    relay.show_other_errors("ValueError", "no")
    assert capsys.readouterr().err == "[rank 1] T1\n"


def test_says_before_it_shows(capsys: pytest.CaptureFixture[str]):
    said: list[int] = []
    relay = RunOutput(CellOutput(SimpleNamespace(display_pub=RecordingPublisher())), lambda: said.append(1))
    relay.show(events(("comm", {"msg_type": "comm_open", "content": {}}), ("clear_output", {"wait": True, "rank": 1})))
    assert (said, relay.has_shown) == ([], False)
    relay.show(events(text("a")))
    assert (said, relay.has_shown) == ([1], True)


def test_says_before_a_widget_takes_what_follows():
    said: list[int] = []
    relay = RunOutput(CellOutput(SimpleNamespace(display_pub=RecordingPublisher())), lambda: said.append(1))
    taking = {"msg_type": "comm_msg", "content": {"data": {"method": "update", "state": {"msg_id": "m"}}}}
    relay.show(events(("comm", taking)))
    assert (said, relay.has_shown) == ([1], True)


def test_notes_are_lines_of_ours_in_a_notebook_and_on_stderr_elsewhere(capsys: pytest.CaptureFixture[str]):
    note = events(("note", {"text": "again from `epoch` 3"}))
    published = RecordingPublisher()
    RunOutput(CellOutput(SimpleNamespace(display_pub=published, kernel=object()))).show(note)
    RunOutput(CellOutput(SimpleNamespace(display_pub=published))).show(note)
    assert capsys.readouterr().err == "again from epoch 3\n"
    ((_, shown, *_),) = published.calls
    assert shown["text/plain"] == "again from epoch 3"
    assert "again from <code>epoch</code> 3" in shown["text/html"]
    assert "again from <code>epoch</code> 3" in shown["text/html"]
