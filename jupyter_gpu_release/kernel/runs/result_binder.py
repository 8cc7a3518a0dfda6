"""A run that has ended: its names are bound, its receipt is made, its error is at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...analysis.cell_facts import cells_of
from ...client.tracebacks import failure_of, without_traceback
from ...errors import GpuReleaseError
from ...presentation.receipt import Receipt, make_receipt
from ...protocol.runs import RunView, ValueInfo
from ...submission.capture import CapturedInputs
from ..namespace.meanwhile import InputsMeanwhile
from ..namespace.post_mortem import FailedCell, attach_frames, frames_of, rebuild
from ..namespace.values import open_values
from .missed import missed_name, missed_sentence

if TYPE_CHECKING:
    from ...client.session import GatewaySession
    from ..context import KernelContext

#: also where a library says it in an error of its own (patsy, pandas)

Leave = Callable[[Iterable[str]], set[str]]


@dataclass(frozen=True)
class BoundRun:
    """``failure``: what its cell shall raise (None: it went well). ``values``: what came back, by name."""

    receipt: Receipt
    failure: BaseException | None
    values: dict[str, Any]


class ResultBinder:
    """Binds what a run made.

    Parameters
    ----------
    prepared
        What was sent (None: by another kernel, or long ago).
    leave
        Says which names are not to be bound after all.
    in_turn
        Random states come along; a run beside the notebook's cells must not turn them back.
    meanwhile
        Knows which inputs were changed here since they were sent.
    remarks
        Sentences for the receipt, asked for once the names are bound, with the values and whether the run failed.
    """

    def __init__(
        self,
        notebook: KernelContext,
        session: GatewaySession,
        prepared: CapturedInputs | None = None,
        *,
        leave: Leave = lambda _names: set(),
        in_turn: bool = True,
        meanwhile: InputsMeanwhile | None = None,
        remarks: Callable[[dict[str, Any], bool], list[str]] = lambda _values, _failed: [],
    ) -> None:
        self._notebook = notebook
        self._session = session
        self._prepared = prepared
        self._leave = leave
        self._in_turn = in_turn
        self._meanwhile = meanwhile
        self._remarks = remarks

    def bind_run(self, view: RunView, interrupts: int = 0) -> BoundRun:
        """Bind the names and say how it went; never raises what the run raised."""
        notes = [*self._unsent(view), *self._missed(view), *self._prepared.notes] if self._prepared is not None else []
        came_back: Sequence[ValueInfo] = ()
        trouble: GpuReleaseError | None = None
        names = self._notebook.names
        names.values_of_last = {}
        has_failed = _has_failed(view, interrupts)
        try:
            came_back = self._bind(view, notes)
        except GpuReleaseError as problem:
            trouble = problem
            if has_failed:  # else this is the error that is shown
                notes.append(f"the names are not bound: {problem}")
        values, names.values_of_last = names.values_of_last, {}
        notes += self._remarks(values, trouble is not None or has_failed)
        receipt = make_receipt(view, came_back=came_back, notes=notes)
        failure = None
        if has_failed:
            failure = failure_of(view, interrupts, "\n".join(filter(None, (self._hint(view), self._below(receipt)))))
        failed = names.pop_failed_frames()  # of the first rank
        if failure is not None and view.outcome is not None and view.outcome.failed_rank:
            failed = frames_of(view.outcome, view.outcome.failed_rank, names.realm)
        if failure is not None and failed is not None:
            remains = rebuild(failed, self._notebook.shell.user_ns, names.realm)
            attach_frames(failure, remains)
            self._notebook.last_failure = FailedCell(view.run, failure, remains)
        if failure is None and trouble is not None:
            receipt = replace(receipt, sign="✗", parts=("the names are not bound", *receipt.parts))
            failure = without_traceback(trouble, self._below(receipt))
        return BoundRun(receipt, failure, values)

    def _below(self, receipt: Receipt) -> str:
        """The receipt's lines under a traceback: in colour in a notebook, where frames fill the page."""
        in_notebook = getattr(self._notebook.shell, "kernel", None) is not None
        return receipt.below_traceback if in_notebook else receipt.text

    def _unsent(self, view: RunView) -> list[str]:
        """The name that the cell did not find, if the notebook has it."""
        error = view.outcome.error if view.outcome is not None else None
        if error is None or self._prepared is None:
            return []
        name = missed_name(error)
        mine = self._notebook.shell.user_ns
        if name not in mine or name in self._prepared.originals or name in self._prepared.binds:
            return []
        return [f"`{name}` is in the notebook and was not sent: --in +{name}"]

    def _missed(self, view: RunView) -> list[str]:
        """The statement of the notebook that made here what the cell misses in its rank."""
        error = view.outcome.error if view.outcome is not None else None
        if error is None or error.code:
            return []
        mine = self._notebook.shell.user_ns
        sentence = missed_sentence(error, cells_of(mine), mine)
        return [sentence] if sentence else []

    def _hint(self, view: RunView) -> str:
        """Explain an error that has to do with how names travel."""
        if view.outcome is None or view.outcome.error is None or self._prepared is None:
            return ""
        return self._notebook.detached.hint(view.outcome.error.evalue, [sent.name for sent in self._prepared.sent])

    def _bind(self, view: RunView, notes: list[str]) -> Sequence[ValueInfo]:
        outcome = view.outcome
        if outcome is None or outcome.values is None:
            return ()
        stream, buffers = open_values(self._session, view.run, outcome.values)
        names = self._notebook.names
        bound = names.apply(
            stream,
            buffers,
            outcome,
            self._prepared,
            run=view.run,
            leave=self._leave,
            in_turn=self._in_turn,
            meanwhile=self._meanwhile,
        )
        notes += names.notes
        if outcome.notes:
            self._notebook.detached.add_notes(outcome.notes)
        return bound


def _has_failed(view: RunView, interrupts: int) -> bool:
    """Tell if :func:`.failure_of` has an exception for the run."""
    outcome = view.outcome
    return outcome is None or outcome.status != "ok" or outcome.error is not None or interrupts > 1
