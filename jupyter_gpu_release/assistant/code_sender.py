"""Sends code as runs of an assistant. No value passes through this process: a pickle of such a run is code of its."""

from __future__ import annotations

import keyword
import pickle
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from ..analysis.cell_facts import parse_cell
from ..analysis.dataflow import analyse
from ..client.rest import GatewayClient
from ..errors import NoSuchRunError, OptionError, StillTrainingError
from ..functions.arguments import RESERVED, options_as_text
from ..functions.executor import keep_quiet
from ..functions.script import ScriptExecutor
from ..options.definitions import OPTIONS
from ..options.run_options import RunOptions
from ..protocol.lineage import UsedInput
from ..protocol.rest import RunRow
from ..protocol.states import RunState
from ..serialization.process_state import library_settings
from ..store import ownership
from ..submission.location import CellLocation
from ..submission.request import Cell, choice_of, make_submission

_ELSEWHERE = {
    "in": "name earlier runs in inputs; there are no other names",
    "send": "name earlier runs in inputs; there are no other names",
    "async": "submit always returns at once",
    "estimate": "the tool estimate says when it would start",
    "cache": "each submit runs; use an earlier run's results as inputs",
    "keep": "an assistant keeps no GPU between its runs",
    "export": "variables of the assistant's machine stay there; env sets one: {'env': {'KEY': 'value'}}",
    "gather": "rank 0's names come back; have the ranks write files for more",
}
_OPTIONS = {name: option for name, option in RESERVED.items() if name not in _ELSEWHERE} | {"out": OPTIONS["out"]}


class CodeSender(ScriptExecutor):
    """Sends code without names of this process; its session is the assistant's, and ends the runs that it leaves."""

    def __init__(self, open_gateway: Callable[[], GatewayClient]) -> None:
        super().__init__({}, "assistant")
        self._open_gateway = open_gateway

    def options(self, gpus: int | float | str, written: Mapping[str, Any]) -> RunOptions:
        """The options of a run, over the configuration files' defaults; raises :class:`OptionError`."""
        options = self.parse_options(options_as_text({"gpus": gpus, **written}, _OPTIONS, _ELSEWHERE))
        if options.keep_s:  # also with `auto`
            raise OptionError("keep is set in a configuration file", hint=_ELSEWHERE["keep"])
        return options

    def location(self) -> CellLocation:
        """No notebook's."""
        return CellLocation(line_offset=0, program="assistant")

    def submit(self, code: str, options: RunOptions, inputs: Mapping[str, str]) -> tuple[str, list[str]]:
        """Send ``code``; returns the run, which is committed, and what is to be said of it.

        ``inputs``: name → ``RUN`` or ``RUN:NAME``, as the code gets it. Raises what cannot be sent, and refusals.
        """
        used = [self._used(name, source) for name, source in inputs.items()]
        body = _loading(used, inputs) + code
        facts = analyse(_parsed(body), str)
        ambient = pickle.dumps({"settings": library_settings.capture_settings()}, protocol=5)
        prepared = self.input_capture.collect(facts, choice_of(options), self._history.up_to(body), ambient=ambient)
        prepared.used += used
        session = self.session()
        said = self.input_capture.packages.add_to(prepared, options, session.welcome, session.question_client)
        cell = Cell(body, options, self.location())
        submission = make_submission(cell, prepared, session.session_id, partial(self.store, session))
        return self.send(submission, options.name, keep_quiet).id, [*prepared.warnings, *said]

    def _used(self, name: str, source: str) -> UsedInput:
        """The result that an input names, which is there."""
        run, _, of = source.partition(":")
        of = of or name
        if not name.isidentifier() or keyword.iskeyword(name):
            raise OptionError(f"inputs: {name!r} is no name", hint='write {"model": "RUN"} or {"model": "RUN:NAME"}')
        with self._open_gateway() as gateway:
            row, view = gateway.run(run), gateway.view(run)
        _check_result(row, of)
        if view.outcome is not None and view.outcome.values is not None:
            ownership.note_results(row.run, view.outcome.values)
        return next(UsedInput(name, each.type, each.bytes, row.run) for each in row.results if each.name == of)


def _check_result(row: RunRow, name: str) -> None:
    if not RunState.of(row.state).is_terminal:
        raise StillTrainingError(f"run {row.run} is {row.state}: it has no results yet", hint="follow it to its end")
    names = [each.name for each in row.results]
    if name not in names:
        made = f"it made {', '.join(names)}" if names else "it made nothing"
        raise NoSuchRunError(f"run {row.run} made no `{name}`; {made}", hint='name it as {"model": "RUN:NAME"}')


def _loading(used: Iterable[UsedInput], inputs: Mapping[str, str]) -> str:
    """The line above the code that loads its inputs where it runs; empty without inputs."""
    parts = [f"{each.name} = gpu_release.load({each.run!r})[{_name_of(inputs, each)!r}]" for each in used]
    return "; ".join(["import jupyter_gpu_release as gpu_release", *parts]) + "\n" if parts else ""


def _name_of(inputs: Mapping[str, str], used: UsedInput) -> str:
    return inputs[used.name].partition(":")[2] or used.name


def _parsed(body: str) -> Any:
    """The code's tree; what is no Python is said with its line."""
    try:
        return parse_cell(body, str)
    except SyntaxError as error:
        raise OptionError(
            f"line {error.lineno}: {error.msg}", hint="send Python, without magics or !commands"
        ) from error
