"""A run's record becomes what its own cell would show."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import pytest

from jupyter_gpu_release.errors import ForbiddenError, GatewayUnavailableError, NoSuchRunError, StoreError
from jupyter_gpu_release.host.threads import StoreThreads
from jupyter_gpu_release.presentation.run_row import run_row
from jupyter_gpu_release.protocol.events import Event
from jupyter_gpu_release.protocol.runs import ErrorInfo, Holder, Outcome, RunView, StartEstimate, ValueInfo
from jupyter_gpu_release.protocol.session import Events, Update
from jupyter_gpu_release.serialization import exceptions
from jupyter_gpu_release.server_extension.api.views import newest_of_cells
from jupyter_gpu_release.server_extension.gateway import GatewayConnection
from jupyter_gpu_release.server_extension.models import OutputMessage
from jupyter_gpu_release.server_extension.outputs import following
from jupyter_gpu_release.server_extension.outputs.following import follow
from jupyter_gpu_release.server_extension.outputs.transcript import Transcript
from jupyter_gpu_release.store.event_log import EventWriter
from jupyter_gpu_release.store.layout import RunPaths

RUN = "20261123-010203-abcdef01"


def view(state: str, **facts: Any) -> RunView:
    return RunView(RUN, "ada", state, simulated=True, granted_at=1.0, hosts=["node"], **facts)


def events(*pieces: tuple[str, dict[str, Any]], after: int = 0) -> list[Event]:
    return [Event(after + n, 0.0, kind, data) for n, (kind, data) in enumerate(pieces, start=1)]


def text(words: str) -> tuple[str, dict[str, Any]]:
    return "stream", {"name": "stdout", "text": words}


@pytest.mark.parametrize("seen", [view("queued"), view("succeeded", gone_at=2.0, outcome=Outcome("ok"))])
def test_what_other_ranks_said_last_is_shown_while_nothing_more_comes(seen: RunView) -> None:
    transcript = Transcript(RUN)
    said = [("stream", {"name": "stdout", "text": f"epoch {n}\n", "rank": 1, "who": "rank 1"}) for n in range(3)]
    for event in events(*said):
        transcript.show_events([event])
    transcript.show_view(seen)
    cell = Cell()
    cell.apply(transcript.take_changes())
    assert any("[rank 1] epoch 2" in output["data"]["text/plain"] for output in cell.outputs)


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


def test_while_the_results_are_written_the_heading_says_where_the_run_begins() -> None:
    transcript, cell = Transcript(RUN), Cell()
    transcript.show_view(view("running"))
    transcript.show_events(events(text("one\n")))
    transcript.show_view(view("running", gone_at=2.0))
    cell.apply(transcript.take_changes())
    marks = [output.get("metadata", {}).get("jupyter_gpu_release") for output in cell.outputs]
    assert marks == [{"run": RUN}, None, {"run": RUN, "live": True}]


class Line:
    """A line to a gateway: with messages, or away for good."""

    def __init__(
        self, store: Path, messages: Sequence[object] = (), user: str = "", *, is_silent: bool = False
    ) -> None:
        self.is_silent = is_silent
        self.store = str(store)
        self.is_of_one_user = bool(user)
        self.user = user
        self._messages = messages

    def is_there(self) -> bool:
        return self.is_silent

    async def follow(self, run: str, after: int) -> AsyncGenerator[object, None]:
        for message in self._messages:
            yield message
        raise GatewayUnavailableError("away")


def followed(line: Line) -> list[OutputMessage]:
    async def collect() -> list[OutputMessage]:
        return [message async for message in follow(cast(GatewayConnection, line), RUN, StoreThreads())]

    return asyncio.run(collect())


def _record(store: Path, user: str, **more: object) -> None:
    paths = RunPaths.of(store, RUN)
    paths.manifest.parent.mkdir(parents=True)
    facts = {"schema_version": 1, "run": RUN, "user": user, "state": "succeeded", "granted_at": 1.0, "gone_at": 2.0}
    facts |= more
    paths.manifest.write_text(json.dumps(facts))


def test_without_a_gateway_a_users_token_shows_the_users_own_runs_alone(tmp_path: Path) -> None:
    _record(tmp_path, "ada")
    (told,) = followed(Line(tmp_path, user="ada"))
    assert told.changes
    assert told.mine
    assert followed(Line(tmp_path))[0].changes  # the server's own token
    with pytest.raises(ForbiddenError):
        followed(Line(tmp_path, user="bob"))


def test_while_the_gateway_is_silent_the_store_shows_what_it_has(tmp_path: Path) -> None:
    """A page that is opened then would be empty; what goes on is neither over nor lost."""

    async def first(count: int) -> list[OutputMessage]:
        line = cast(GatewayConnection, Line(tmp_path, user="ada", is_silent=True))
        async with aclosing(follow(line, RUN, StoreThreads())) as messages:
            return [await anext(messages) for _ in range(count)]

    assert [message.problem for message in asyncio.run(first(1))] == ["away"]  # not of this store: not gone, either
    _record(tmp_path, "ada", state="running", gone_at=None)
    writer = EventWriter(RunPaths.of(tmp_path, RUN).events)
    writer.write(events(text("half of it\n")))
    writer.close()
    output, state, problem = asyncio.run(first(3))
    cell = Cell()
    cell.apply(output.changes)
    cell.apply(state.changes)
    assert cell.outputs[1]["text"] == "half of it\n"
    assert "the cluster does not answer" in json.dumps(cell.outputs[0])
    assert (output.live, state.live, problem.live, problem.problem) == (True, True, True, "away")


def test_a_long_log_comes_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of gigabytes is never in memory as a whole, and no thread but those for stores reads it."""
    _record(tmp_path, "ada")
    writer = EventWriter(RunPaths.of(tmp_path, RUN).events)
    writer.write(events(*[text(f"{n:4}" + "x" * 600_000 + "\n") for n in range(6)]))
    writer.close()
    monkeypatch.setattr(asyncio, "to_thread", _only_asks_for_the_gateway(asyncio.to_thread))
    told = followed(Line(tmp_path, user="ada"))
    assert [message.live for message in told] == [True] * (len(told) - 1) + [False]
    assert all(message.mine for message in told)
    assert max(len(json.dumps(message.changes)) for message in told) < 2_000_000
    cell = Cell()
    for message in told:
        cell.apply(message.changes)
    heading, output, receipt = cell.outputs
    assert heading["metadata"]["jupyter_gpu_release"] == {"run": RUN}
    assert [line[:4] for line in output["text"].splitlines()] == [f"{n:4}" for n in range(6)]
    assert receipt["metadata"]["jupyter_gpu_release"]["status"] == "ok"


def test_nothing_that_the_store_tells_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of widgets may be told at any moment, between two looks, too."""
    _record(tmp_path, "ada")
    writer = EventWriter(RunPaths.of(tmp_path, RUN).events)
    writer.write(events(text("a"), text("b")))
    writer.close()
    count = iter(range(100))
    monkeypatch.setattr(Transcript, "take_changes", lambda _: [{"op": "add", "output": next(count)}])
    told = followed(Line(tmp_path, user="ada"))
    changes = [change["output"] for message in told for change in message.changes]
    assert changes == list(range(next(count)))


def _only_asks_for_the_gateway(to_thread: Any) -> Any:
    def checked(work: Any, *arguments: Any) -> Any:
        assert work.__name__ == "is_there"
        return to_thread(work, *arguments)

    return checked


def test_an_imported_run_is_not_trusted_as_ones_own(tmp_path: Path) -> None:
    """Its output was made by whoever exported it."""
    _record(tmp_path, "ada", imported_from="mallory")
    (told,) = followed(Line(tmp_path, user="ada"))
    assert told.changes
    assert not told.mine


def test_an_imported_run_is_no_cells_newest_run() -> None:
    own = run_row(view("succeeded", notebook="a.ipynb", cell="c"), 2.0)
    imported = run_row(view("succeeded", notebook="a.ipynb", cell="c", imported_from="mallory"), 2.0)
    assert newest_of_cells([imported], lambda path: True) == []
    assert [row.cell for row in newest_of_cells([imported, own], lambda path: True)] == ["c"]


def test_a_run_without_a_record_is_unknown_and_a_damaged_record_is_not(tmp_path: Path) -> None:
    with pytest.raises(NoSuchRunError):
        followed(Line(tmp_path))
    _record(tmp_path, "ada")
    RunPaths.of(tmp_path, RUN).manifest.write_text("{")
    with pytest.raises(StoreError):
        followed(Line(tmp_path))


def test_the_line_of_a_run_that_waits_does_not_get_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its place comes with the gateway's views; the times in it go on between them."""
    monkeypatch.setattr(following, "_RENEWED_S", 0.01)
    since = StartEstimate(holders=[Holder("bob", 3, since=1000.0)])
    waits = RunView(RUN, "ada", "queued", gpus=4, position=2, start=since)

    class Silent(Line):
        async def follow(self, run: str, after: int) -> AsyncGenerator[object, None]:
            yield Update(waits)
            monkeypatch.setattr("time.time", lambda: 1720.0)
            await asyncio.Event().wait()

    async def first(count: int) -> list[OutputMessage]:
        async with aclosing(follow(cast(GatewayConnection, Silent(tmp_path)), RUN, StoreThreads())) as messages:
            return [await anext(messages) for _ in range(count)]

    monkeypatch.setattr("time.time", lambda: 1600.0)
    cell, said = Cell(), []
    for message in asyncio.run(first(2)):
        cell.apply(message.changes)
        said.append(cell.outputs[0]["data"]["text/plain"])
    assert ["bob holds 3 GPUs for 12 min" in text for text in said][-1]
    assert all("place 2" in text for text in said)


def test_a_fault_in_what_is_shown_ends_the_following(tmp_path: Path) -> None:
    broken = Events(RUN, events(("stream", {"name": "stdout", "text": 1})))
    with pytest.raises(TypeError):
        followed(Line(tmp_path, [Update(view("running")), broken]))


def test_an_error_is_the_cells_own_and_no_pickle_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    transcript, cell, loaded = Transcript(RUN), Cell(), list[bytes]()
    monkeypatch.setattr(exceptions, "unpack_error", loaded.append)
    transcript.show_view(view("running"))
    error = ErrorInfo("ZeroDivisionError", "division by zero", ["Traceback …", "ZeroDivisionError"], pickled=b"\x80bad")
    transcript.show_view(view("failed", gone_at=2.0, outcome=Outcome("error", error)))
    cell.apply(transcript.take_changes())
    last = cell.outputs[-1]
    assert (last["output_type"], last["ename"], last["evalue"]) == ("error", error.ename, error.evalue)
    assert [last["traceback"][0], last["traceback"][-1]] == error.traceback
    assert f"run {RUN}" in last["traceback"][1]
    assert loaded == [b""]


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
