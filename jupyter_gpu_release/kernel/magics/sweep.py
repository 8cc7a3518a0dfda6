"""``%%gpu_sweep``: many trials of one cell; a table of them while they run, then the best one's names."""

from __future__ import annotations

import html
import importlib.util
import sys
import time
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from IPython.display import display

from ...analysis.cell_facts import transform_of_bodies
from ...analysis.searches import find_searches
from ...analysis.sources import name_of_plain_cell
from ...client.tracebacks import make_interrupt
from ...errors import GpuReleaseError, NoSuchRunError, OptionError, RunCancelledError
from ...functions.detached_sweep import DetachedSweep
from ...functions.search import Search
from ...functions.sweep import (
    begin_sweep,
    checked_space,
    detach_sweep,
    earlier_trials,
    find_sweep,
    study_of,
    watch_sweep,
)
from ...functions.sweep_plots import plots_as_png
from ...functions.trial import RUNNING, SweepTrial
from ...options.definitions import refuse_rest, split_line
from ...options.sweep_options import SWEEP_OPTIONS, WITHOUT, SweepOptions, sweep_options
from ...presentation.receipt import Receipt, bundle_of
from ...presentation.status_line import StatusLine
from ...protocol.states import is_run_id
from ...scheduling.queues.prices import Prices
from ...submission.location import locate
from ...submission.request import Cell
from ...units import format_count, format_gpu_hours, format_seconds
from ..interrupts import Interrupts
from ..notebook import Notebook, expand_variables
from ..output.cell_output import CellOutput
from ..runs.foreground import own_syntax_error, prepare_with_packages, write_inputs
from ..runs.functions import NotebookExecutor
from ..runs.result_binder import BoundRun, ResultBinder
from ..runs.trials import TrialExecutor, trial_of_cell
from .runs import newest_run
from .tables import Table

if TYPE_CHECKING:
    from optuna import Study

    from ...analysis.searches import SearchedCell
    from ...client.session import GatewaySession
    from ...functions.kept_study import SweepFacts
    from ...functions.sweep import Sweep
    from ...options.run_options import RunOptions
    from ...submission.capture import CapturedInputs

_TICK_S = 0.25
#: the table has so many trials: those under way, and the best
_MOST_ROWS = 12
_DROP = ("steps", "seconds", "run")
#: one point makes no plot
_LEAST_PLOTTED = 2
_NO_PLOTS = "plots of the sweep need matplotlib: `%pip install matplotlib`, then `sweep.plot()`"


def run_sweep(notebook: Notebook, line: str, body: str) -> None:
    """``%%gpu_sweep`` with ``body``."""
    parts = split_line(line, SWEEP_OPTIONS)
    if parts.rest:
        raise refuse_rest(parts.rest)
    own = sweep_options(expand_variables(parts.written, notebook.shell.user_ns))
    options = _trial_options(notebook, own)
    place = locate(notebook.shell, body, is_cell=True)
    name = name_of_plain_cell(notebook.shell.compile, body, place.count)
    cell = Cell(body, options, place, getattr(notebook.shell, "kernel", None) is None, name, text=body)
    searched = _searched(notebook, cell)
    space = searched.space(notebook.shell.user_ns)
    search = Search(own.metric, own.mode, own.trials, own.max_gpus, own.max_failures, None, own.pruner, None)
    where = checked_space(space, search)
    # any values will do to see what the cell reads and binds
    cell = replace(cell, body=searched.with_values(dict.fromkeys(space, 0)))
    if own.estimate:
        _estimate(notebook, cell, own, search.trials or where.size or 1)
        return
    executor, trial = TrialExecutor(notebook), trial_of_cell(searched)
    study, kept = (None, []) if own.detach else study_of(executor, options.name, where, search)
    prepared, session = prepare_with_packages(notebook, cell)
    _check_metric(own.metric, prepared)
    with Interrupts() as interrupts:
        submission = write_inputs(notebook, cell, prepared, session, interrupts)
        if study is None:
            sweep = detach_sweep(
                DetachedSweep(executor, trial, options, space, where, search, submission, is_cell=True)
            )
            notebook.shell.user_ns["sweep"] = sweep
            sys.stdout.write(f"sweep {sweep.id} goes on without this kernel; %gpu_attach {sweep.id} brings it back\n")
            return
        sweep = begin_sweep(executor, trial, options, where, study, kept, search, submission)
        notebook.shell.user_ns["sweep"] = sweep
        _SweepCell(notebook, sweep, session, prepared, kept).follow(interrupts)


def attach_named(notebook: Notebook, word: str) -> bool:
    """``%gpu_attach`` with the run or the name of a sweep that was detached, or ``last``; False: it is none."""
    found = _sweep_named(notebook, word)
    if found is not None:
        attach_sweep(notebook, *found)
    return found is not None


def _sweep_named(notebook: Notebook, word: str) -> tuple[Study, SweepFacts] | None:
    """The sweep that is driven on the cluster, if it is one that is named."""
    if word == "last":  # its trials are runs, too, and newer
        word = newest_run(notebook, live=False).sweep
    if not word or notebook.background.find(word) is not None:
        return None
    session = notebook.connection.session_in_contact(notebook.settings)  # a question beside it would not wait
    executor = NotebookExecutor(notebook)
    if not is_run_id(word):
        return find_sweep(executor, session, word)
    try:
        with notebook.rest_client() as gateway:
            view = gateway.view(word)
    except NoSuchRunError:  # a kernel drives it; or there is none, which is said when its run is looked for
        return None
    if view.sweep != word or session.welcome is None or view.user != session.welcome.user:
        return None
    found = find_sweep(executor, session, word) or find_sweep(executor, session, view.name)
    return found if found is not None and found[1].sweep == word else None


def attach_sweep(notebook: Notebook, study: Study, facts: SweepFacts) -> None:
    """Show a sweep that goes on (or went on) without a kernel, to its end; bind the best trial's names.

    An interrupt ends the watching, never the sweep.
    """
    executor = TrialExecutor(notebook) if facts.is_cell else NotebookExecutor(notebook)
    session = notebook.connection.session(notebook.settings)
    with Interrupts() as interrupts:
        sweep = watch_sweep(executor, study, facts, executor.follow(facts.sweep, facts.name))
        notebook.shell.user_ns["sweep"] = sweep
        _SweepCell(notebook, sweep, session, None, (), is_watched=True, binds=facts.is_cell).follow(interrupts)


def _estimate(notebook: Notebook, cell: Cell, own: SweepOptions, trials: int) -> None:
    """Show the plan of a trial, and of all."""
    from .estimate import estimate

    _check_metric(own.metric, estimate(notebook, cell))
    session = _session_if_any(notebook)
    ended = _ended_before(notebook, session, cell.options.name)
    spent = [trial.gpu_seconds for trial in ended if trial.gpu_seconds]
    left, trial_s = max(0, trials - len(ended)), fmean(spent) if spent else None
    display(Table(size_words(left, own.max_gpus, cell.options, trial_s, _prices_of(session))))


def _session_if_any(notebook: Notebook) -> GatewaySession | None:
    try:
        return notebook.connection.session_in_contact(notebook.settings)
    except GpuReleaseError:  # said above: there is no gateway
        return None


def _prices_of(session: GatewaySession | None) -> Prices:
    told = session.welcome.prices if session is not None and session.welcome is not None else None
    return Prices() if told is None else Prices(told.hourly, told.unit, told.warn_above)


def _ended_before(notebook: Notebook, session: GatewaySession | None, name: str) -> list[SweepTrial]:
    """Trials that a sweep of that name would keep, as far as they are known."""
    try:
        return earlier_trials(NotebookExecutor(notebook), session, name) if session is not None and name else []
    except GpuReleaseError:  # there is no store here, and so no trials
        return []


def size_words(
    trials: int,
    max_gpus: int | None,
    options: RunOptions,
    trial_s: float | None = None,
    prices: Prices = Prices(),  # noqa: B008 - frozen
) -> str:
    """Say how much a sweep is and costs, by the GPU-seconds of earlier trials (``trial_s``), or at most."""
    gpus, count = options.ask.gpus, format_count(trials, "trial")
    if not gpus:
        return f"{count} without a GPU"
    together = "as many at once as GPUs come free" if max_gpus is None else f"at most {max_gpus} GPUs at once"
    each = f"{count} with {format_count(gpus, 'GPU')} each, {together}"
    if trial_s is None and options.timeout_s is None:
        return f"{each}; nobody knows the GPU time yet: the sweep's table says it once a trial has ended"
    all_s = trials * (gpus * (options.timeout_s or 0.0) if trial_s is None else trial_s)
    price = prices.of_plan(options.ask.gpu_type or "", all_s)
    time = f"{format_gpu_hours(all_s)} of GPU time{price and f' (price: {price})'}"
    if trial_s is not None:
        return f"{each}; expected by earlier trials: {time}"
    return f"{each}; at most {time}, by the --timeout of each"


def _trial_options(notebook: Notebook, own: SweepOptions) -> RunOptions:
    """They give way to everybody, unless the line says otherwise; a gang cannot be left between its rounds."""
    usual = {"priority": ["low"]} if "ranks" in own.trial else {"priority": ["low"], "restartable": [""]}
    out = {"out": [f"{own.trial['out'][0]},{own.metric}"]} if "out" in own.trial else {}
    return notebook.options({**usual, **own.trial, **out}, without=WITHOUT)


def _searched(notebook: Notebook, cell: Cell) -> SearchedCell:
    shell = notebook.shell
    try:
        return find_searches(cell.body, transform_of_bodies(shell), shell.user_ns, cell.place.line_offset)
    except SyntaxError as error:
        raise own_syntax_error(notebook, cell, error) from None


def _check_metric(metric: str, prepared: CapturedInputs) -> None:
    if prepared.binds and metric not in prepared.binds:
        names = ", ".join(prepared.binds)
        raise OptionError(f"--metric {metric}: the cell binds {names}, and no {metric}", hint="name one of them")


class _SweepCell:
    """A sweep in the cell that waits for it."""

    def __init__(
        self,
        notebook: Notebook,
        sweep: Sweep,
        session: GatewaySession,
        prepared: CapturedInputs | None,
        kept: Sequence[SweepTrial],
        *,
        is_watched: bool = False,
        binds: bool = True,
    ) -> None:
        self._notebook = notebook
        self._sweep = sweep
        self._session = session
        self._prepared = prepared
        self._kept = kept
        #: it is driven elsewhere, and goes on when nobody looks
        self._is_watched = is_watched
        self._binds = binds
        self._output = CellOutput(notebook.shell)
        self._line = StatusLine(self._output)
        self._began_s = time.monotonic()
        self._prices = _prices_of(session)

    def follow(self, interrupts: Interrupts) -> None:
        """Show it until it is over, bind the best trial's names; raises why it ended early."""
        passed_on = 0
        while not self._sweep.wait(_TICK_S):
            self._show()
            if interrupts.count > passed_on and self._is_watched:
                raise self._stop_watching()
            if interrupts.count > passed_on:  # the second one kills
                passed_on = interrupts.count
                self._sweep.cancel()
        best, failure = self._sweep.best, self._sweep.failure
        bound = None
        if best is not None and self._binds:
            # what an earlier sweep has made refers to what was sent then
            prepared = None if best in self._kept else self._prepared
            bound = ResultBinder(self._notebook, self._session, prepared).bind_run(best.whole_view)
        self._finish(best, bound, is_whole=failure is None, is_interrupted=isinstance(failure, RunCancelledError))
        if passed_on:
            raise make_interrupt("the sweep was interrupted; `sweep` has its trials")
        if failure is not None:
            raise failure
        if bound is not None and bound.failure is not None:
            raise bound.failure

    def _stop_watching(self) -> KeyboardInterrupt:
        text = f"interrupted; sweep {self._sweep.id} goes on (%gpu_attach {self._sweep.id} brings it back)"
        self._line.finish_plain(text)
        return make_interrupt(text)

    def _show(self) -> None:
        table = self._table()
        words = table.title
        if self._line.is_in_notebook:
            words = self._text(table)
        self._line.show_bundle(words, bundle_of(self._text(table), self._page(table)))

    def _finish(self, best: SweepTrial | None, bound: BoundRun | None, *, is_whole: bool, is_interrupted: bool) -> None:
        parts = self._sweep.counts
        if self._kept:
            parts.append(f"{len(self._kept)} of them kept")
        spent = _held([trial for trial in self._sweep.all_trials if trial not in self._kept])
        wall = "" if self._is_watched else f" in {format_seconds(time.monotonic() - self._began_s)}"
        parts.append(f"{self._cost(spent)}{wall}")
        if best is not None and bound is not None and bound.values:
            parts.append(f"names of trial {best.number}: {', '.join(f'`{name}`' for name in bound.values)}")
        warnings = () if bound is None else bound.receipt.warnings
        notes = () if bound is None else bound.receipt.notes
        has_plots = self._line.is_in_notebook and len(self._sweep.ranked) >= _LEAST_PLOTTED
        can_plot = importlib.util.find_spec("matplotlib") is not None
        notes = notes if can_plot or not has_plots else (*notes, _NO_PLOTS)
        receipt = Receipt("■" if is_interrupted else "✓" if is_whole else "✗", tuple(parts), warnings, notes)
        table = replace(self._table(), title="")
        text, page = f"{receipt.text}\n{self._text(table)}".rstrip(), receipt.html + self._page(table)
        self._line.finish(bundle_of(text, page), {})
        if has_plots and can_plot:
            self._show_plots()

    def _show_plots(self) -> None:
        """Pictures, so that they are there after a reload and in what is exported."""
        for picture in plots_as_png(self._sweep.study, self._sweep.metric):
            self._output.publish({"image/png": b64encode(picture).decode()}, {}, {})

    def _table(self) -> Table:
        sweep, trials = self._sweep, self._sweep.all_trials
        names = list(dict.fromkeys(name for trial in trials for name in trial.parameters))
        shown = [trial for trial in trials if trial.state == RUNNING][-_MOST_ROWS // 2 :]
        shown = [*sweep.ranked[: _MOST_ROWS - len(shown)], *shown]
        rows = [
            (
                str(trial.number),
                trial.word,
                "" if trial.value is None else f"{trial.value:.6g}",
                *(_shown(trial.parameters.get(name, "")) for name in names),
                str(len(trial.steps) or ""),
                "" if trial.seconds is None else format_seconds(trial.seconds),
                trial.run,
            )
            for trial in shown
        ]
        heads = ("trial", "state", sweep.metric, *names, "steps", "seconds", "run")
        return Table(" · ".join([*sweep.counts, *self._left(_held(trials))]), heads, rows, drop=_DROP)

    def _left(self, spent: list[tuple[str, float]]) -> list[str]:
        """Only where GPU time has a price, the part that is spent is worth its place."""
        told = [self._cost(spent)] if self._prices.rates and spent else []
        if (left := self._sweep.left) is not None:
            told.append(f"expected for the other {left[0]}: {self._cost([(spent[-1][0], left[1])])}")
        return told

    def _cost(self, held: list[tuple[str, float]]) -> str:
        price = self._prices.of_runs(held)
        return f"{format_gpu_hours(sum(gpu_s for _, gpu_s in held))} of GPU time{price and f', {price}'}"

    def _text(self, table: Table) -> str:
        return "\n".join(filter(None, [repr(table), self._failed]))

    def _page(self, table: Table) -> str:
        return table._repr_html_() + (f"<div>{html.escape(self._failed)}</div>" if self._failed else "")

    @property
    def _failed(self) -> str:
        return f"failed: {self._sweep.errors}" if self._sweep.errors else ""


def _held(trials: Sequence[SweepTrial]) -> list[tuple[str, float]]:
    """GPU-seconds of those that are over, each with the type of their GPUs."""
    return [(trial.future.view.gpu_name, trial.gpu_seconds) for trial in trials if trial.gpu_seconds]


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
