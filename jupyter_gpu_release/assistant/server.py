"""The tools of ``jupyter gpu mcp``: what an assistant may do with the cluster, one function each."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ImageContent, TextContent

from .._version import __version__
from ..client.rest import GatewayClient
from ..errors import GpuReleaseError
from ..presentation.status_tables import active_table, gpu_table, queue_table
from ..presentation.text_table import text_lines
from ..presentation.wording import cancel_words, describe_estimate, error_words, name_of, place_words, state_words
from ..protocol.events import Event
from ..protocol.rest import RunRow
from ..protocol.states import RunState
from ..submission.request import question_of
from ..units import format_bytes, format_seconds
from .code_sender import CodeSender
from .output_page import PNG, Picture, page_of, pictures_of

Content = list[TextContent | ImageContent]
P = ParamSpec("P")
T = TypeVar("T")
_INSTRUCTIONS = """\
Runs Python on the GPUs of a team's cluster. Each submit is a run of its own: it takes its GPUs, runs the code, gives
them back. Names that the code binds are its results; later runs get them by reference (inputs), they never come here.
Print or display what you want to read: text, and figures as pictures. Ask for no more GPUs than the code uses; code
that only looks at results takes gpus=0. Set a timeout. Follow a run to its end; cancel what is not needed any more.
"""
_WIDTH, _LOOK_S, _LONGEST_WAIT_S, _MOST_PICTURES = 160, 0.5, 120.0, 4


def serve(open_gateway: Callable[[], GatewayClient]) -> None:
    """Serve one assistant on standard input and output, until it closes them; what it has not detached ends then."""
    sender = CodeSender(open_gateway)
    try:
        make_server(Tools(open_gateway, sender)).run("stdio")
    finally:
        sender.close()


def make_server(tools: Tools) -> MCPServer:
    """The server with its tools; errors are our sentences, with their hint."""
    server = MCPServer("jupyter-gpu", instructions=_INSTRUCTIONS, version=__version__, log_level="WARNING")
    for tool in (tools.status, tools.estimate, tools.submit, tools.follow, tools.results, tools.runs, tools.cancel):
        server.add_tool(_in_words(tool), structured_output=False)
    return server


def _in_words(tool: Callable[P, T]) -> Callable[P, T]:
    @functools.wraps(tool)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return tool(*args, **kwargs)
        except GpuReleaseError as error:
            raise ToolError("\n".join(filter(None, (error.message, error.hint and f"→ {error.hint}")))) from error

    return call


class Tools:
    """Each method is a tool. They run in threads, several at a time."""

    def __init__(self, open_gateway: Callable[[], GatewayClient], sender: CodeSender) -> None:
        self._open_gateway = open_gateway
        self._sender = sender

    def status(self) -> str:
        """Show who holds which GPU, which runs are under way, who waits and why."""
        with self._open_gateway() as gateway:
            document = gateway.status()
        gpus = document.gpus
        kind = "simulated GPUs" if document.simulated else "GPUs"
        lines = [f"{gpus.total} {kind}: {gpus.held} held, {gpus.free} free"]
        for heads, rows in (gpu_table(document, time.time()), active_table(document), queue_table(document)):
            lines += ["", *text_lines(heads, rows, _WIDTH)] if rows else []
        return "\n".join(lines)

    def estimate(self, gpus: int | float | str = 1, options: dict[str, Any] | None = None) -> str:
        """Say when a run would start that is submitted now with these options. Nothing runs."""
        question = question_of(self._sender.options(gpus, options or {}), self._sender.location())
        with self._open_gateway() as gateway:
            return describe_estimate(gateway.ask_estimate(question), gateway.status().user)

    def submit(
        self,
        code: str,
        gpus: int | float | str = 1,
        options: dict[str, Any] | None = None,
        inputs: dict[str, str] | None = None,
    ) -> str:
        """Run Python code on the cluster; returns the run's id at once. Use follow to read its output.

        gpus: how many (0: none, 0.5: half of one, "h100:2": two of a type). options: those of %%gpu_train, such as
        {"timeout": "10m", "name": "lr 0.1", "memory": "8GiB", "env": {"KEY": "value"}, "ranks": 2, "detach": true}.
        inputs: results of earlier runs, by name: {"model": "RUN"}, or {"model": "RUN:net"} for its name net.
        Names that the code binds are the run's results. A run ends with this connection, unless it is detached.
        """
        run, said = self._sender.submit(code, self._sender.options(gpus, options or {}), inputs or {})
        with self._open_gateway() as gateway:
            return "\n".join([_line_of(gateway.run(run)), *said])

    def follow(self, run: str, after: int = 0, wait_s: float = 20) -> Content:
        """Read the output of a run after event `after`, text and pictures; waits for some, wait_s seconds at most.

        The first line says how the run is, and from which event to follow it on.
        """
        until_s = time.monotonic() + min(wait_s, _LONGEST_WAIT_S)
        with self._open_gateway() as gateway:
            found = gateway.events(run, after)
            while not (found.events or _is_over(found.state)) and time.monotonic() < until_s:
                time.sleep(_LOOK_S)
                found = gateway.events(run, after)
            row = gateway.run(run)
        page = page_of(found.events, after)
        is_all = _is_over(row.state) and not (page.more or found.more)
        rest = "that is all" if is_all else f"follow on with after={page.last}"
        return _contents([f"{_line_of(row)}; {rest}", *page.parts])

    def results(self, run: str) -> Content:
        """Show how a run ended, the names that it made (type, size), its files, its last pictures.

        To look at a value, submit code with gpus=0 that gets it as an input and prints it.
        """
        with self._open_gateway() as gateway:
            row = gateway.run(run)
            pictures = pictures_of(_all_events(gateway, run))[-_MOST_PICTURES:]
        return _contents(["\n".join([_line_of(row), *_facts(row)]), *pictures])

    def runs(self, limit: int = 20) -> str:
        """List your newest runs."""
        with self._open_gateway() as gateway:
            rows = gateway.runs(limit, mine=True, brief=True).runs
        return "\n".join(map(_line_of, rows)) or "There are no runs yet."

    def cancel(self, run: str) -> str:
        """End a run: a waiting one leaves the queue, a running one is interrupted; the second time it is killed."""
        with self._open_gateway() as gateway:
            before = gateway.run(run)
            return cancel_words(before, before if _is_over(before.state) else gateway.cancel(run))


def _is_over(state: str) -> bool:
    return RunState.of(state).is_terminal


def _all_events(gateway: GatewayClient, run: str) -> list[Event]:
    found = gateway.events(run)
    events = found.events
    while found.more:
        found = gateway.events(run, found.last)
        events = [*(event for event in events if pictures_of([event])), *found.events]
    return events


def _line_of(row: RunRow) -> str:
    """A run in one line: ``RUN (lr 0.1): queued, place 2``, ``RUN: running, 1 GPU held for 12 s``."""
    name = name_of(row)
    held = f"{row.gpus:g} GPUs held for {format_seconds(row.held_s)}" if row.granted_at is not None else ""
    facts = (state_words(row), place_words(row.position), held)
    return f"{row.run}{f' ({name})' if name else ''}: {', '.join(filter(None, facts))}"


def _facts(row: RunRow) -> list[str]:
    made = [f"{each.name}: {each.type}, {format_bytes(each.bytes)}" for each in row.results]
    files = [f"file {each.path}: {format_bytes(each.bytes)}" for each in row.files]
    price = [f"price: {row.price}"] if row.price else []
    return [*([error_words(row.error)] if row.error else []), *price, *made, *files, *row.notes]


def _contents(parts: list[str | Picture]) -> Content:
    return [
        TextContent(type="text", text=part)
        if isinstance(part, str)
        else ImageContent(type="image", data=part.data, mime_type=PNG)
        for part in parts
    ]
