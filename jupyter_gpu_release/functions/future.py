"""``RunFuture``: the future of a call, and its callbacks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import warnings
from collections.abc import Callable, Generator
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from ..client.results import is_usable
from ..client.tracebacks import failure_of
from ..errors import GpuReleaseError, RunLostError
from ..host.interruptible import InterruptibleCondition
from ..protocol.runs import RunView
from ..protocol.states import RunState

log = logging.getLogger(__name__)


class Callbacks:
    """One after the other, in the order in which their runs ended; the thread begins with the first."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def call_soon(self, function: Callable[[], object]) -> None:
        """Have it called soon; what it raises is logged."""
        self._calls.put(function)
        with self._lock:
            if self._thread is None or not self._thread.is_alive():  # a fork has none
                self._thread = threading.Thread(target=self._run, name="gpu-callbacks", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            call_logged(self._calls.get())


def call_logged(function: Callable[[], object]) -> None:
    """Call it; what it raises is logged, as ``concurrent.futures`` does."""
    try:
        function()
    except Exception:  # the user's own
        log.exception("a done callback of a launched function failed")


CALLBACKS = Callbacks()

_WORDS = (
    ("; the cell's names are gone", ""),
    ("; its names are gone", ""),
    ("; it left no names", ""),
    ("before its first statement", "before it began"),
    ("run the cell again", "launch it again"),
    ("the cell", "the function"),
)


def word_for_function(text: str) -> str:
    """One of our own sentences."""
    for of_cell, words in _WORDS:
        text = text.replace(of_cell, words)
    return text


def worded_for_function(view: RunView) -> RunView:
    """The view with our own sentences so changed; what the function raised stays as it is."""
    outcome = view.outcome
    if outcome is not None and outcome.error is not None and not outcome.error.code:
        return view
    if outcome is not None and (error := outcome.error) is not None:
        error = msgspec.structs.replace(
            error, evalue=word_for_function(error.evalue), hint=word_for_function(error.hint)
        )
        outcome = msgspec.structs.replace(outcome, error=error)
    return msgspec.structs.replace(view, reason=word_for_function(view.reason), outcome=outcome)


T = TypeVar("T")
#: who waits without end looks so often whether the gateway still answers
_LOOK_S = 5.0


class Executor(Protocol):
    """The executor that sent a future's call, as far as the future needs it.

    Called on the thread that asks the future. ``value_of`` and ``logs`` ask store and gateway, so they block.
    """

    def value_of(self, view: RunView, name: str) -> Any:
        """The value that a run's function returned."""

    def logs(self, run: str) -> str:
        """The recorded output of a run."""

    def with_traceback(self, failure: BaseException, view: RunView) -> BaseException:
        """``failure`` with the traceback there as its cause."""


class RunFuture(Future[T], Generic[T]):
    """One run of a launched function. Works with ``concurrent.futures.wait`` and ``as_completed``, and with ``await``.

    Attributes
    ----------
    id : str
        The run's id: ``%gpu_logs``, ``load`` and ``jupyter gpu runs show`` know it by that.
    name : str
        The function's name, or the run's own (``name=``).
    """

    def __init__(
        self,
        launcher: Executor,
        view: RunView,
        name: str,
        tell: Callable[[str], None],
        silence: Callable[[], str] = lambda: "",
    ) -> None:
        super().__init__()
        self._condition = InterruptibleCondition()
        self.id = view.run
        self.name = name
        self._launcher = launcher
        self._view = view
        self._tell = tell
        #: for how long the gateway has not answered, in words
        self._silence = silence
        self._trouble: BaseException | None = None
        self._loading = threading.Lock()
        self._loaded: list[T] = []
        #: what ``asyncio.wait`` wants to be called → the loop that it waits in
        self._waiting: dict[Callable[[Future[T]], object], asyncio.AbstractEventLoop] = {}

    # ------------------------------------------------------------------------------------- look at it
    @property
    def status(self) -> str:
        """State: ``queued``, ``starting``, ``running``, … ``succeeded``, ``failed``, ``cancelled`` or ``lost``."""
        view = self._view
        if isinstance(self._trouble, RunLostError):
            return RunState.LOST.word
        outcome = view.outcome
        if view.state != RunState.PERSISTING.word or outcome is None or not is_usable(view):
            return view.state
        # its result is here, and what becomes of it on the store changes nothing for the caller
        words = {"ok": RunState.SUCCEEDED.word, "interrupted": RunState.CANCELLED.word}
        return words.get(outcome.status, RunState.FAILED.word)

    @property
    def view(self) -> RunView:
        """All that is known of the run just now."""
        return self._view

    @property
    def is_given_up(self) -> bool:
        """Tell if it is over here because nothing more is heard of the run, and not by the run's own end."""
        return self._trouble is not None

    def running(self) -> bool:
        """Tell if it holds its GPUs (or, for a CPU stage, its cores)."""
        return RunState.of(self.status).holds_gpu

    def cancelled(self) -> bool:
        """Tell if it was cancelled, by :meth:`cancel` or by somebody else."""
        return self.status == RunState.CANCELLED.word

    def logs(self) -> str:
        """The text that the function has printed so far (also after its end); of progress bars the last state.

        Raises
        ------
        GatewayUnavailableError
            The gateway does not answer.
        """
        if self._view.state == RunState.SUBMITTED.word:  # the gateway may not know it yet
            return ""
        return self._launcher.logs(self.id)

    def __repr__(self) -> str:
        why = [self._view.reason, "" if self.done() else self._silence()]
        return f"<{self._called}: {self.status}{''.join(f' ({text})' for text in why if text)}>"

    @property
    def _called(self) -> str:
        return f"run {self.id} of {self.name}"

    # -------------------------------------------------------------------------------------- wait for it
    def result(self, timeout: float | None = None) -> T:
        """The value that the function returned; large arrays are mapped from the store, not read.

        Waits for it, also while the gateway is away (a warning says so); an interrupt ends the waiting and leaves the
        run going on.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait. None: without end.

        Raises
        ------
        TimeoutError
            It is not done within ``timeout``; it goes on.
        Exception
            What the function raised, with its traceback there.
        RunCancelledError, RunLostError, RunFailedError
            It ended in another way.
        """
        failure = self.exception(timeout)
        if failure is not None:
            raise failure
        with self._loading:
            if not self._loaded:
                self._loaded.append(self._launcher.value_of(self._view, self.name))
        return self._loaded[0]

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The exception that :meth:`result` would raise for the run (None: it went well); waits as that does.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait. None: without end.

        Raises
        ------
        TimeoutError
            It is not done within ``timeout``; it goes on.
        """
        if timeout is None:
            self._wait()
        else:
            self._wait_at_most(timeout)
        if self._trouble is not None:
            return self._trouble
        failure = failure_of(self._view, 0, to_catch=True)
        return failure if failure is None else self._launcher.with_traceback(failure, self._view)

    def _wait_at_most(self, timeout_s: float) -> None:
        try:
            super().result(timeout_s)
        except TimeoutError:
            text = f"{self._called} is {self.status} after {timeout_s:g} s"
            raise TimeoutError("; ".join(filter(None, [text, self._silence()]))) from None

    def _wait(self) -> None:
        """Wait without end; warn (once) when nothing is heard any more."""
        told = False
        while not self.done():
            with contextlib.suppress(TimeoutError):
                super().result(_LOOK_S)
            told = told or self._tells_of_silence("result(timeout=…)", 5)

    def _tells_of_silence(self, limit: str, stacklevel: int) -> bool:
        """Warn of a gateway that is silent; False: there was nothing to warn of. ``limit``: what ends such a wait."""
        silence = "" if self.done() else self._silence()
        if silence:
            text = f"{silence}; {self._called} may go on and is waited for: {limit} limits that"
            warnings.warn(text, UserWarning, stacklevel=stacklevel)
        return bool(silence)

    def __await__(self) -> Generator[Any, None, T]:
        yield from self._until_done().__await__()
        return self.result()

    async def _until_done(self) -> None:
        """A cancelled waiter leaves the run going on."""
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()

        def wake(_: Future[T]) -> None:
            with contextlib.suppress(RuntimeError):  # nobody waits any more: the loop is closed
                loop.call_soon_threadsafe(lambda: None if woken.done() else woken.set_result(None))

        self.when_done(wake)
        told = False
        while not woken.done():
            await asyncio.wait([woken], timeout=_LOOK_S)
            told = told or self._tells_of_silence("asyncio.wait_for(run, …)", 3)

    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        """Have ``fn(run)`` called when the run is over: at once if it is, else on a thread that is there for that.

        It may launch and wait. What it raises is logged.

        Parameters
        ----------
        fn : callable
            Gets this future. Functions are called one after the other, in the order in which their runs ended.
        """
        call = partial(fn, self)
        if (loop := _loop_waiting(fn)) is not None:
            self._waiting[fn] = loop
            if self.done():
                self._wake(fn)
        elif self.done():
            call_logged(call)
        else:
            super().add_done_callback(lambda _: CALLBACKS.call_soon(call))

    def remove_done_callback(self, fn: Callable[[Future[T]], object]) -> int:
        """Remove a callback, as ``asyncio.wait`` does with its own; returns how many were removed."""
        return 0 if self._waiting.pop(fn, None) is None else 1

    def _wake(self, fn: Callable[[Future[T]], object]) -> None:
        """Call ``fn`` in its own loop: once, by whoever takes it out."""
        if (loop := self._waiting.pop(fn, None)) is not None:
            with contextlib.suppress(RuntimeError):  # nobody waits any more: the loop is closed
                loop.call_soon_threadsafe(fn, self)

    def when_done(self, fn: Callable[[Future[T]], object]) -> None:
        """Like :meth:`add_done_callback`, on the session's own thread: for what neither waits nor takes long."""
        super().add_done_callback(fn)

    # ------------------------------------------------------------------------------------------ end it
    def cancel(self) -> bool:
        """End the run: a waiting one leaves the queue, a running one is interrupted, the second call kills it.

        Returns
        -------
        bool
            At once. False: it is over already. Else :meth:`result` raises :class:`RunCancelledError` once it has ended.
        """
        return self.end("interrupt")

    def end(self, signal: str) -> bool:
        """End it as :meth:`cancel` does, by another signal."""
        if self.done():
            return False
        self._tell(signal)
        return True

    # ------------------------------------------------------------------------- the session's side (its thread)
    def update_view(self, view: RunView) -> None:
        """The run's newest view."""
        self._view = worded_for_function(view)
        if is_usable(view):
            self._finish()

    def give_up(self, error: GpuReleaseError) -> None:
        """Nothing more will be heard of it."""
        if not self.done():
            self._trouble = error
            self._finish()

    def _finish(self) -> None:
        if not self.done():
            self.set_result(None)  # type: ignore[arg-type]  # what waits is woken; `result` reads the value itself
            for fn in list(self._waiting):
                self._wake(fn)


class ListedFuture(RunFuture[T]):
    """The future of a run that is over and known from a list: what came out of it is asked for when somebody looks."""

    def __init__(self, launcher: Executor, view: RunView, name: str, whole: Callable[[], RunView]) -> None:
        super().__init__(launcher, view, name, lambda _: None)
        self._whole = whole
        self.update_view(view)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """As that of others; asks the gateway for what came out of the run."""
        if self._view.outcome is None:
            self.update_view(self._whole())
        return super().exception(timeout)


def _loop_waiting(fn: Callable[..., object]) -> asyncio.AbstractEventLoop | None:
    """The loop in which ``asyncio.wait`` adds ``fn``; None: another one adds it.

    It takes whatever has these methods for a future of its loop. Not every callback that is added while a loop runs is
    meant for that: a cell of a notebook always runs in one.
    """
    if getattr(fn, "__module__", "") != asyncio.wait.__module__:
        return None
    with contextlib.suppress(RuntimeError):
        return asyncio.get_running_loop()
    return None
