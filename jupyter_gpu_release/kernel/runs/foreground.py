"""The life of one run as the cell sees it: sent, followed, its names bound, its error raised."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from ...analysis import sources
from ...client.results import is_usable
from ...client.tracebacks import make_interrupt, shows_lines, syntax_error
from ...errors import GpuReleaseError, OptionError
from ...options.run_options import RunOptions
from ...presentation.wording import describe_wait
from ...protocol.cell import INLINE_LIMIT_BYTES
from ...protocol.events import Event
from ...protocol.runs import RunView
from ...store.files import UNLIMITED, Pace
from ...submission.capture import CapturedInputs
from ...submission.packages import CellPackages
from ...submission.placeholders import NeedsRunError
from ...submission.request import Cell, Submission, choice_of, exported_variables, make_submission
from ...units import parse_bytes
from ..context import KernelContext
from ..interrupts import Interrupts
from ..namespace.values import store_of
from ..output.cell_output import CellOutput
from .cache import key_of, reuse, with_key
from .follow import RunFollower
from .hash_order import note_on_hashes, note_on_ids
from .names_on_request import HeldBack
from .result_binder import ResultBinder
from .sending import send_inputs

_NOT_THERE = "not in GPU cells, unless what sets it is under `%%gpu_setup`"
_ALONE = (
    "this cell calls init_process_group(), and runs as one process with {gpus} GPUs: --ranks {gpus} runs it as {gpus} "
    "processes with a GPU each, with RANK, WORLD_SIZE and MASTER_ADDR set\n"
)

if TYPE_CHECKING:
    from ...adapters.stdlib.environment import SignalHandlers
    from ...client.feed import RunFeed
    from ...client.session import GatewaySession
    from ...presentation.receipt import ShortCells
    from .background import BackgroundRuns
    from .missed import Registrations


class CellContext(KernelContext, Protocol):
    """The notebook, for cells that wait for their runs or leave them to the background."""

    background: BackgroundRuns
    short_cells: ShortCells
    signal_handlers: SignalHandlers
    registrations: Registrations


def prepare(notebook: CellContext, cell: Cell) -> CapturedInputs:
    """Check the cell and collect what it needs; nothing is taken yet.

    Raises the cell's own syntax error as IPython shows it, and what cannot be sent, by name.
    """
    exported_variables(cell.options.export)
    try:
        plain = _plain_loops(notebook, cell) if cell.options.restartable else {}
        prepared = _collect(notebook, cell)
    except SyntaxError as error:
        raise own_syntax_error(notebook, cell, error) from None
    prepared.plain_loops = list(plain)
    for line, why in plain.items():
        prepared.warnings.append(f"--restartable: it can be preempted only after the loop in line {line}: {why}")
    for warning in prepared.warnings:
        sys.stderr.write(f"{warning}\n")
    if prepared.asks_input:
        sys.stderr.write("this cell calls input(): nobody can answer on the cluster, so that call will fail there\n")
    if prepared.joins_group and _is_alone(cell.options):
        sys.stderr.write(_ALONE.format(gpus=cell.options.ask.gpus))
    return prepared


def own_syntax_error(notebook: CellContext, cell: Cell, error: SyntaxError) -> BaseException:
    """The cell's syntax error, to be raised as IPython shows it."""
    sources.register_sources(notebook.shell.compile, [cell.source])
    error.filename = cell.source.filename
    return syntax_error(error, notebook.shell)


def _plain_loops(notebook: CellContext, cell: Cell) -> dict[int, str]:
    """Loops between whose rounds the cell cannot be left, with reasons; OptionError for what is to be and cannot."""
    from ...analysis.cell_facts import parse_cell, transform_of_bodies
    from ...analysis.resumable_loops import plain_loops, resumable_problems

    tree = parse_cell(cell.body, transform_of_bodies(notebook.shell), line_offset=cell.place.line_offset)
    if problems := resumable_problems(tree):
        raise OptionError(f"--restartable: {problems[0]}", hint="or leave --restartable out")
    return plain_loops(tree.body, notebook.shell.user_ns)


def _is_alone(options: RunOptions) -> bool:
    return options.ask.ranks == 1 and options.ask.gpus > 1 and "RANK" not in options.env


def _collect(notebook: CellContext, cell: Cell) -> CapturedInputs:
    """Names that a run in the background is still making are waited for, so that "Run All" goes through."""
    room = parse_bytes(notebook.settings.implicit_send_max, option="c.GpuRelease.implicit_send_max")
    choice = replace(choice_of(cell.options), implicit_bytes=room, fetches=not cell.options.in_background)
    while True:
        try:
            return notebook.names.collect(cell.body, choice, line_offset=cell.place.line_offset)
        except NeedsRunError as need:
            if need.awaited.is_over:  # a placeholder that was kept under another name
                raise need.refusal from None
            notebook.background.wait_for_name(need.awaited.run, need.name)


def train(notebook: CellContext, cell: Cell) -> None:
    """Run ``cell`` on the cluster and bind what comes back; raises what the cell raised.

    With ``--async`` or ``--detach`` it returns as soon as the run is committed.
    """
    prepared, session = prepare_with_packages(notebook, cell)
    key = key_of(notebook, cell, prepared) if cell.options.cache else None
    if key is not None and reuse(notebook, session, cell, key):
        return
    with Interrupts() as interrupts:
        submission = write_inputs(notebook, cell, prepared, session, interrupts)
        if key is not None:
            submission = with_key(submission, key)
        if cell.options.in_background:
            if interrupts.count:
                submission.withdraw()
                raise make_interrupt("interrupted before anything was sent")
            notebook.background.begin(session, submission, interrupts)
            return
        run = _Run(notebook, session, submission, interrupts)
        error = run.submit_and_wait()
    if error is not None:
        raise error


def prepare_with_packages(notebook: CellContext, cell: Cell) -> tuple[CapturedInputs, GatewaySession]:
    """Prepare a cell and connect; raises as :func:`prepare` does, and why there is no cluster."""
    prepared = prepare(notebook, cell)
    session = notebook.connection.open(notebook.settings)
    welcome = session.welcome
    prepared.notes += note_on_hashes(cell.body, prepared.originals, welcome.hash_seed if welcome is not None else "")
    prepared.notes += [*note_on_ids(cell.body, prepared.originals), *notebook.signal_handlers.notes(_NOT_THERE)]
    used = {*prepared.packages, *_packages_of(prepared.originals.values())}
    local = {name.partition(".")[0] for name in notebook.names.input_capture.local_modules}
    prepared.notes += notebook.registrations.notes(used, notebook.shell.user_ns, cell.body, local)
    _add_packages(notebook, cell, prepared, session)
    return prepared, session


def _packages_of(values: Iterable[Any]) -> set[str]:
    """Packages that are values of names, or have their classes or functions."""
    return {
        str(value.__name__ if isinstance(value, types.ModuleType) else _maker(value).__module__).partition(".")[0]
        for value in values
    }


def _maker(value: Any) -> Any:
    return value if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType) else type(value)


def _add_packages(notebook: CellContext, cell: Cell, prepared: CapturedInputs, session: GatewaySession) -> None:
    """Find the environment that the cell needs; says what it gets otherwise than it is here."""
    packages = notebook.names.input_capture.packages
    for line in packages.add_to(prepared, cell.options, session.welcome, session.question_client):
        sys.stderr.write(f"{line}\n")


def find_packages(notebook: CellContext, options: RunOptions) -> CellPackages | None:
    """Return the decision for a cell with these options; None: it gets the cluster's packages as they are."""
    from ...client.rest import GatewayClient

    if options.environment == "cluster":
        return None
    target = notebook.connection.target(notebook.settings)
    open_gateway = partial(GatewayClient.for_target, target)
    with open_gateway() as gateway:
        theirs = gateway.packages().installed.digest
    name = "" if options.environment == "auto" else options.environment
    return notebook.names.input_capture.packages.find(options.pip, theirs, open_gateway, name)


def write_inputs(
    notebook: CellContext, cell: Cell, prepared: CapturedInputs, session: GatewaySession, interrupts: Interrupts
) -> Submission:
    """Send the inputs to the store, where they are large; an interrupt ends that."""
    compiler = notebook.shell.compile
    known = sources.sources_in(compiler, prepared.stream)

    def send(pace: Pace) -> Submission:
        return make_submission(cell, prepared, session.session_id, lambda: store_of(session), known, pace)

    if prepared.total_bytes <= INLINE_LIMIT_BYTES:
        submission = send(UNLIMITED)
    else:
        submission = send_inputs(send, prepared.total_bytes, CellOutput(notebook.shell), interrupts)
    sources.register_sources(compiler, [cell.source])  # functions that the cell defines come home with its file name
    return submission


class _Run:
    def __init__(
        self, notebook: CellContext, session: GatewaySession, submission: Submission, interrupts: Interrupts
    ) -> None:
        self._notebook = notebook
        self._session = session
        self._submission = submission
        self._interrupts = interrupts
        self._following: RunFollower | None = None

    def submit_and_wait(self) -> BaseException | None:
        """Send, follow, bind; returns the exception that the cell shall raise."""
        if self._interrupts.count:
            self._submission.withdraw()
            return make_interrupt("interrupted before anything was sent")
        feed = self._session.submit(self._submission.request, while_unsent=self._submission.keep_inputs)
        held = HeldBack(self._notebook, self._session, self._submission) if self._submission.prepared.held else None
        following = self._following_of(feed, held)
        try:
            try:
                view = following.until_usable()
            finally:
                if held is not None:
                    held.close(goes_on=following.view.gone_at is None)
        except GpuReleaseError as error:
            if not following.is_accepted:
                self._submission.withdraw()
            following.display.close_line(error.message)
            return following.failure(error)
        except BaseException:  # ours or the display's fault: nobody would look after the run any more
            self._session.signal(feed.run, "kill")
            raise
        if not is_usable(view):
            return self._leave(following, view)
        if view.granted_at is None:
            self._submission.withdraw()
        return self._end(following, view)

    def _following_of(self, feed: RunFeed, held: HeldBack | None) -> RunFollower:
        def on_events(events: Iterable[Event]) -> None:
            self._notebook.published.note_published(self._session, feed.run, events)
            if held is not None:
                held.answer_questions(events)

        output = CellOutput(self._notebook.shell)
        return RunFollower(output, self._session, feed, self._interrupts, on_events=on_events)

    def _leave(self, following: RunFollower, view: RunView) -> BaseException:
        """The user does not want to wait for the rest."""
        if view.gone_at is None:
            text = f"interrupted without contact to the gateway; run {view.run} may still go on"
        else:
            wait = view.waits_for
            waits = f" ({describe_wait(wait)})" if wait is not None and wait.reason else ""
            text = f"interrupted while the results were being written{waits}; they are kept with run {view.run}"
        following.display.close_line(text)
        return make_interrupt(text)

    def _end(self, following: RunFollower, view: RunView) -> BaseException | None:
        coming = ResultBinder(
            self._notebook,
            self._session,
            self._submission.prepared,
            remarks=lambda _values, _failed: self._notebook.short_cells.hint(view),
        )
        returned = coming.bind_run(view, self._interrupts.count)
        following.display.end(returned.receipt, failed=shows_lines(returned.failure))
        return returned.failure
