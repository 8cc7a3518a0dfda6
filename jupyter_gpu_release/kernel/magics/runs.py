"""``%gpu_runs``, ``wait``, ``attach``, ``detach``, ``logs``, ``cancel``, ``release``."""

from __future__ import annotations

import re
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from IPython.display import display

from ...client.results import is_usable
from ...client.tracebacks import failure_of, make_interrupt
from ...errors import ConflictError, GatewayUnavailableError, GpuReleaseError, NoSuchRunError, OptionError
from ...options.definitions import refuse_words
from ...presentation.plain_text import traceback_of
from ...presentation.run_output import RunOutput
from ...protocol.rest import RunRow, WarmRow
from ...protocol.runs import Outcome, RunView
from ...protocol.states import RunState, is_run_id
from ...serialization import codec
from ...submission.location import find_notebook, shows_late_output
from ...units import format_seconds
from ...unpickling import Trust
from ..interrupts import Interrupts
from ..namespace.post_mortem import FailedCell, attach_frames, begin_post_mortem, error_of, frames_of, rebuild
from ..namespace.values import open_values
from ..output.cell_output import CellOutput, SilentOutput
from ..output.replay import show_recorded
from ..runs.follow import FollowMode, RunFollower
from ..runs.result_binder import ResultBinder
from .tables import runs_table

if TYPE_CHECKING:
    from ...client.session import GatewaySession
    from ..notebook import Notebook
    from ..runs.background import BackgroundRun


def attach_to(notebook: Notebook, run: str) -> None:
    """Replay the run in the cell that runs now, follow it to its end, bind its names; raises what it raised.

    An interrupt ends the following, never the run.
    """
    own = notebook.background.find(run)
    if own is not None and not own.is_bound:
        _show_here(notebook, own)
        if own.failure is not None:
            own.is_reported = True
            raise own.failure
        return
    session, following, view = _follow_here(notebook, run, is_own=own is not None)
    if session.welcome is not None and view.user != session.welcome.user:
        following.display.close_line(f"run {run} is {view.state}; its results belong to {view.user}")
        raise NoSuchRunError(f"run {run} belongs to {view.user}: its names stay there")
    returned = ResultBinder(notebook, session, in_turn=False).bind_run(view)
    following.display.end(returned.receipt, failed=returned.failure is not None)
    if returned.failure is not None:
        raise returned.failure


def _follow_here(notebook: Notebook, run: str, *, is_own: bool) -> tuple[GatewaySession, RunFollower, RunView]:
    """Show a run's output in the cell that runs now until its names can be used."""
    with Interrupts() as interrupts:
        session = notebook.connection.session(notebook.settings)
        feed = session.follow(run, adopt=True)
        manner = FollowMode(leaves=True, replays=True, suffix=f" · run {run}")
        on_events = partial(notebook.published.note_published, session, run)
        following = RunFollower(CellOutput(notebook.shell), session, feed, interrupts, manner, on_events)
        try:
            view = following.until_usable()
        except GpuReleaseError as error:
            following.display.close_line(error.message)
            raise
    if not is_usable(view):
        text = _left(view, is_own=is_own)
        following.display.close_line(text)
        raise make_interrupt(text)
    return session, following, view


def _show_here(notebook: Notebook, own: BackgroundRun) -> None:
    """Show output and receipt of a run beside the cells in the cell that runs now; its names are bound as ever."""
    _, following, _ = _follow_here(notebook, own.run, is_own=True)
    own.is_done.wait()
    notebook.background.bind_done()
    own.is_shown = True
    if own.returned is not None:
        following.display.end(own.returned.receipt, failed=own.failure is not None)


def _left(view: RunView, *, is_own: bool) -> str:
    text = f"interrupted; run {view.run} goes on"
    if is_own or view.detached:
        return f"{text} (%gpu_attach {view.run} brings it back)"
    return f"{text}, as long as the kernel that it belongs to (%gpu_detach lets it go on without)"


_MOST_RUNS = 1000
_DEBUG = re.compile(r"(?P<run>(?!-)\S+)?(?:(?:^|\s+)--rank[= ]\s*(?P<rank>\d+))?")
#: runs among which this notebook's newest is looked for
_LOOKED_THROUGH = 200


def show_runs(notebook: Notebook, line: str) -> None:
    """``%gpu_runs [N]``."""
    word = line.strip() or "20"
    if not word.isdigit() or not 0 < int(word) <= _MOST_RUNS:
        raise OptionError(f"%gpu_runs {word}: not a number of runs", hint=f"write %gpu_runs 20 (at most {_MOST_RUNS})")
    with notebook.rest_client() as gateway:
        own = {run.run for run in notebook.background.under_way()}
        display(runs_table(gateway.runs(int(word), mine=True), int(word), own))


def cancel_run(notebook: Notebook, line: str) -> None:
    """``%gpu_cancel RUN``."""
    run = _run_named(notebook, "gpu_cancel", line, live=True)
    with notebook.rest_client() as gateway:
        row = gateway.cancel(run)
    sys.stdout.write(f"run {run}: {row.state}{_how_it_ends(row)}\n")


def _how_it_ends(row: RunRow) -> str:
    if row.state == RunState.PERSISTING.word:
        return ": its results are being given up"
    return (f": {row.reason}" if row.reason else "") if RunState.of(row.state).is_terminal else ", ending"


def debug(notebook: Notebook, line: str) -> None:
    """``%gpu_debug [RUN] [--rank N]``."""
    asked = _DEBUG.fullmatch(line.strip())
    if asked is None:
        raise OptionError(f"%gpu_debug {line.strip()}: not understood", hint="write %gpu_debug RUN --rank N, or less")
    failed, rank = notebook.last_failure, None if asked["rank"] is None else int(asked["rank"])
    if asked["run"]:
        failed = _failure_of(notebook, _run_named(notebook, "gpu_debug", asked["run"]), rank)
    elif failed is None:
        raise OptionError("no GPU cell has failed in this kernel", hint="write %gpu_debug RUN, as listed by %gpu_runs")
    elif rank is not None:
        failed = _failure_of(notebook, failed.run, rank)
    if not _takes_input(notebook.shell):
        raise OptionError(
            f"run {failed.run} cannot be debugged here: this front end takes no input",
            hint=f"write %gpu_debug {failed.run} in JupyterLab, Notebook or IPython; %tb shows its traceback here",
        )
    begin_post_mortem(notebook.shell, failed)


def _takes_input(shell: Any) -> bool:
    """Tell if somebody can type: programs that execute notebooks (nbclient, papermill) say in each request not."""
    kernel = getattr(shell, "kernel", None)
    return kernel is None or bool(kernel.get_parent().get("content", {}).get("allow_stdin", True))


def _failure_of(notebook: Notebook, run: str, rank: int | None) -> FailedCell:
    """The error of a rank (None: the run's) with its frames; those of the cell itself have the run's names."""
    session = notebook.connection.session(notebook.settings)
    view = show_recorded(session, run, RunOutput(SilentOutput(notebook.shell)))
    error = failure_of(view, 0)
    if error is None:
        raise OptionError(f"run {run} did not fail ({view.state})", hint="%gpu_runs lists the runs that did")
    outcome, realm = view.outcome or Outcome(status="lost"), notebook.names.realm
    loaded = codec.Loaded()
    if outcome.values is not None:
        loaded = codec.load(*open_values(session, run, outcome.values), realm, trust=Trust.GATEWAY)
    wanted = outcome.failed_rank if rank is None else rank
    failed = frames_of(outcome, wanted, realm) if wanted else loaded.facts.get("failed")
    if failed is None:
        raise _no_frames(run, wanted, [*([0] if loaded.facts.get("failed") else []), *outcome.frames])
    remains = rebuild(failed, {**notebook.shell.user_ns, **loaded.values}, realm)
    error = error if wanted == outcome.failed_rank else error_of(failed.errors[0])
    attach_frames(error, remains)
    return FailedCell(run, error, remains)


def _no_frames(run: str, rank: int, others: list[int]) -> OptionError:
    hint = "a rank keeps those of an error that its cell raised"
    if others:
        hint += f"; %gpu_debug {run} --rank {others[0]} has some"
    return OptionError(
        f"rank {rank} of run {run} left no frames behind" if rank or others else f"run {run} left no frames behind",
        hint=hint,
    )


def wait(notebook: Notebook, line: str) -> None:
    """``%gpu_wait [RUN]``."""
    run = _named_beside(notebook, "gpu_wait", line)
    if not shows_late_output(notebook.shell):
        for each in notebook.background.unshown(run):
            _show_here(notebook, each)
    notebook.background.wait(run)


def detach(notebook: Notebook, line: str) -> None:
    """``%gpu_detach [RUN]``."""
    for run in notebook.background.detach(_named_beside(notebook, "gpu_detach", line)):
        sys.stdout.write(f"run {run} goes on without this kernel; %gpu_attach {run} brings it back\n")


def _named_beside(notebook: Notebook, magic: str, line: str) -> str:
    """The run in the background that is named, ``last`` too; empty: all of them, or there is none."""
    word = line.strip()
    if word == "last":
        return next((run.run for run in reversed(notebook.background.under_way())), "")
    if word and not is_run_id(word):
        raise OptionError(f"%{magic}: {word!r} is not a run", hint=f"write %{magic} for all, or %{magic} RUN")
    return word


def attach(notebook: Notebook, line: str) -> None:
    """``%gpu_attach RUN|last``."""
    attach_to(notebook, _run_named(notebook, "gpu_attach", line))


def replay(notebook: Notebook, line: str) -> None:
    """``%gpu_logs RUN``: what is recorded up to now, shown again."""
    run = _run_named(notebook, "gpu_logs", line)
    relay = RunOutput(CellOutput(notebook.shell))
    _show_end(relay, show_recorded(notebook.connection.session(notebook.settings), run, relay))


def _show_end(relay: RunOutput, view: RunView) -> None:
    in_gang = any(error.get("rank") for error in relay.errors)
    for error in relay.errors:
        sys.stderr.write(traceback_of(error, in_gang=in_gang))
    more = f"{view.state}: there may be more to come (%gpu_attach {view.run} follows it)"
    sys.stderr.write(f"[run {view.run}: {view.state if RunState.of(view.state).is_terminal else more}]\n")


def _run_named(notebook: Notebook, magic: str, line: str, *, live: bool = False) -> str:
    word = line.strip()
    if word == "last":
        return newest_run(notebook, live=live).run
    if not is_run_id(word):
        given = f"{word!r} is not a run" if word else "no run is named"
        raise OptionError(f"%{magic}: {given}", hint=f"write %{magic} RUN, as listed by %gpu_runs, or %{magic} last")
    return word


def newest_run(notebook: Notebook, *, live: bool) -> RunRow:
    """``last``: the newest run of this notebook, else the user's newest (``live``: that is not over)."""
    with notebook.rest_client() as gateway:
        newest = gateway.newest(live=live)
        path = find_notebook(notebook.shell.user_ns)
        if not path or newest.notebook == path:
            return newest
        own = [row for row in gateway.runs(_LOOKED_THROUGH, mine=True).runs if row.notebook == path]
        return next((row for row in own if not (live and RunState.of(row.state).is_terminal)), newest)


def give_back(notebook: Notebook, line: str) -> None:
    """``%gpu_release``: end this kernel's warm leases and say what was freed."""
    refuse_words("gpu_release", line)
    for said in _given_back(notebook) or ["nothing is kept"]:
        sys.stdout.write(f"{said}\n")


def _given_back(notebook: Notebook) -> list[str]:
    said = []
    try:
        gateway = notebook.rest_client()
    except GatewayUnavailableError:  # no cluster, so nothing of it is kept; one that is named and silent is an error
        if notebook.connection.is_configured(notebook.settings):
            raise
        return []
    with gateway:
        status = gateway.status()
        for row in status.warm_of(notebook.connection.session_id):
            try:
                gateway.release_lease(row.lease)
            except ConflictError:  # its time was over a moment ago, or a cell beside has just taken it
                continue
            said.append(_describe(row, simulated=status.simulated))
    return said


def _describe(row: WarmRow, *, simulated: bool) -> str:
    plural = "" if row.gpus == 1 else "s"
    kind = "simulated GPU" if simulated else "GPU"
    where = f" on {', '.join(row.hosts)}" if row.hosts else ""
    held = format_seconds(max(0.0, time.time() - row.since))
    return f"given back: {row.gpus} {kind}{plural} ({', '.join(row.gpu_ids)}{where}), kept for {held} after {row.run}"
