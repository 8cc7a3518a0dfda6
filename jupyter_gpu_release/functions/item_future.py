"""``ItemFuture``: the future of one call of ``launch_map``."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from ..errors import GpuReleaseError, RunCancelledError, RunFailedError, RunLostError
from ..protocol.fetch import ItemOutcome
from ..protocol.runs import Outcome, RunView
from ..protocol.states import RunState
from .future import Executor, RunFuture

T = TypeVar("T")


class ItemFuture(RunFuture[T]):
    """The future of the call with one item; works as the one that ``launch`` returns.

    Attributes
    ----------
    index : int
        The item's place.
    item : object
        The item itself.
    id : str
        The id of the run in which it is (or was) called; empty before that.
    """

    def __init__(
        self,
        launcher: Executor,
        name: str,
        index: int,
        item: Any,
        take_out: Callable[[int], bool],
        silence: Callable[[], str],
    ) -> None:
        super().__init__(launcher, RunView(run="", user="", state="queued"), name, lambda _: None, silence)
        self.index = index
        self.item = item
        self._take_out = take_out

    @property
    def _called(self) -> str:
        return f"item {self.index} of {self.name}"

    @property
    def status(self) -> str:
        """``queued``, ``running``, ``succeeded``, ``failed``, ``cancelled`` or ``lost``."""
        if self._trouble is None:
            return super().status
        states: dict[type, RunState] = {RunCancelledError: RunState.CANCELLED, RunFailedError: RunState.FAILED}
        return states.get(type(self._trouble), RunState.LOST).word

    def logs(self) -> str:
        """The text that its worker has printed so far, for the items before and after it, too."""
        return self._launcher.logs(self.id) if self.id else ""

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """As of a launched function; the item is named in a note."""
        failure = super().exception(timeout)
        note = f"{self._called}: {reprlib.repr(self.item)}"
        if failure is not None and note not in getattr(failure, "__notes__", ()):
            failure.add_note(note)
        return failure

    def cancel(self) -> bool:
        """Take the item out; False where it was handed to a worker already: ``cancel()`` of the whole ends that."""
        return not self.done() and self._take_out(self.index)

    # -------------------------------------------------------------------------- the coordinator's side
    def on_begin(self, run: str) -> None:
        """A worker begins the call."""
        if not self.done():
            self.id = run
            self.update_view(RunView(run=run, user="", state=RunState.RUNNING.word))

    def on_end(self, run: str, outcome: ItemOutcome) -> None:
        """The call has ended."""
        if self.done():
            return
        self.id = run
        is_fine = outcome.error is None
        said = Outcome(status="ok" if is_fine else "error", values=outcome.values, error=outcome.error)
        state = RunState.SUCCEEDED if is_fine else RunState.FAILED
        self.update_view(RunView(run=run, user="", state=state.word, outcome=said))

    def on_worker_lost(self, worker: RunFuture[Any]) -> None:
        """Its worker ended while it was under way: that is how it ended."""
        if self.done():
            return
        if worker._trouble is not None:
            trouble = worker._trouble
            self.give_up(
                type(trouble)(trouble.message, hint=trouble.hint)
                if isinstance(trouble, GpuReleaseError)
                else RunLostError(str(trouble))
            )
        elif worker.status == RunState.SUCCEEDED.word:
            self.give_up(RunLostError(f"run {worker.id} ended without a word of what the item returned"))
        else:
            self.update_view(msgspec.structs.replace(worker.view, state=worker.status))
