"""A run's record becomes what its own cell would show."""

from __future__ import annotations

from typing import Any

from jupyter_gpu_release.protocol.events import Event
from jupyter_gpu_release.protocol.runs import ErrorInfo, Outcome, RunView, ValueInfo
from jupyter_gpu_release.server_extension.outputs.transcript import Transcript

RUN = "20261123-010203-abcdef"


def view(state: str, **facts: Any) -> RunView:
    return RunView(RUN, "ada", state, simulated=True, granted_at=1.0, hosts=["node"], **facts)


def events(*pieces: tuple[str, dict[str, Any]], after: int = 0) -> list[Event]:
    return [Event(after + n, 0.0, kind, data) for n, (kind, data) in enumerate(pieces, start=1)]


def text(words: str) -> tuple[str, dict[str, Any]]:
    return "stream", {"name": "stdout", "text": words}


class Cell:
    """Applies changes as a page does."""

    def __init__(self) -> None:
        self.outputs: list[dict[str, Any]] = []

    def apply(self, changes: list[dict[str, Any]]) -> None:
        for change in changes:
            if change["op"] == "clear":
                self.outputs.clear()
            elif change["op"] == "set":
                self.outputs[change["index"]] = change["output"]
            elif self.outputs and self.outputs[-1].get("name", "-") == change["output"].get("name"):
                self.outputs[-1]["text"] += change["output"]["text"]
            else:
                self.outputs.append(dict(change["output"]))


def test_output_goes_on_below_what_was_recorded_and_ends_with_the_receipt() -> None:
    transcript, cell = Transcript(RUN), Cell()
    transcript.show_events(events(text("0%\r"), text("50%\r"), text("100%\n")))
    transcript.show_view(view("running"))
    cell.apply(transcript.take_changes())
    assert cell.outputs[0]["metadata"]["jupyter_gpu_release"] == {"run": RUN, "live": True}
    assert cell.outputs[1]["text"] == "100%\n"
    transcript.show_events(events(text("100%\n"), text("more\n"), after=2))  # the third is known
    cell.apply(transcript.take_changes())
    transcript.show_view(view("succeeded", gone_at=2.0, outcome=Outcome("ok", results=[ValueInfo("x", "int")])))
    cell.apply(transcript.take_changes())
    assert transcript.is_over
    assert cell.outputs[1]["text"] == "100%\nmore\n"
    heading, _, receipt = cell.outputs
    assert heading["data"]["text/plain"].startswith("ran on node")
    assert receipt["metadata"]["jupyter_gpu_release"]["status"] == "ok"
    assert f"%gpu_attach {RUN}" in receipt["data"]["text/plain"]
    assert not [
        output for output in cell.outputs if output.get("metadata", {}).get("jupyter_gpu_release", {}).get("live")
    ]


def test_an_error_is_the_cells_own_and_no_pickle_is_loaded() -> None:
    transcript, cell = Transcript(RUN), Cell()
    transcript.show_view(view("running"))
    error = ErrorInfo("ZeroDivisionError", "division by zero", ["Traceback …", "ZeroDivisionError"], pickled=b"\x80bad")
    transcript.show_view(view("failed", gone_at=2.0, outcome=Outcome("error", error)))
    cell.apply(transcript.take_changes())
    last = cell.outputs[-1]
    assert (last["output_type"], last["ename"], last["evalue"]) == ("error", error.ename, error.evalue)
    assert last["traceback"][:2] == error.traceback
    assert f"run {RUN}" in last["traceback"][-1]


def test_a_cell_that_clears_itself_ends_as_it_would_in_its_kernel() -> None:
    transcript, cell = Transcript(RUN), Cell()
    display = ("display", {"data": {"text/plain": "plot 1"}, "transient": {"display_id": "p"}})
    transcript.show_events(events(text("old\n"), ("clear_output", {"wait": True}), display))
    transcript.show_view(view("running"))
    cell.apply(transcript.take_changes())
    update = ("update_display", {"data": {"text/plain": "plot 2"}, "transient": {"display_id": "p"}})
    transcript.show_events(events(update, after=3))
    transcript.show_view(view("succeeded", gone_at=2.0, outcome=Outcome("ok")))
    cell.apply(transcript.take_changes())
    assert [output["data"]["text/plain"][:6] for output in cell.outputs] == ["plot 2", "✓ 1 si"]
