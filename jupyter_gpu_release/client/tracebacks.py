"""A run's failure as an exception here: our own as message and mend, the cell's as the user's exception."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import GpuReleaseError, RunCancelledError, RunFailedError, RunLostError, from_code
from ..presentation.plain_text import without_backticks
from ..presentation.tracebacks import drop_own_causes, without_own

if TYPE_CHECKING:
    from ..protocol.runs import ErrorInfo, Outcome, RunView
    from ..serialization.exceptions import Raised

E = TypeVar("E", bound=BaseException)
#: IPython calls a method of this name instead of formatting the traceback itself
_RENDER = "_render_traceback_"
#: IPython shows these in its own way and would show our frames instead of the cell's, or nothing
_SHOWN_SPECIALLY = (SyntaxError, BaseExceptionGroup, SystemExit)


def with_traceback_lines(error: E, lines: Sequence[str]) -> E:
    """Make IPython show exactly ``lines`` for ``error`` (its ``_render_traceback_`` protocol)."""
    shown = list(lines)
    render: Callable[[], list[str]] = lambda: shown  # noqa: E731
    BaseException.__setattr__(error, _RENDER, render)  # the user's class may forbid new attributes
    return error


def shows_lines(error: BaseException | None) -> bool:
    """Tell if IPython shows the lines of an error: of a magic that there is not it shows the text alone."""
    kinds = [(kind.__module__, kind.__name__) for kind in type(error).__mro__]
    return error is not None and ("IPython.core.error", "UsageError") not in kinds


def lines_of(error: BaseException) -> list[str]:
    """The lines that IPython would show for ``error``, where it has a rendering of ours; else its class and text."""
    render = getattr(error, _RENDER, None)
    return list(render()) if render is not None else [f"{type(error).__name__}: {error}"]


def without_traceback(error: GpuReleaseError, *below: str) -> GpuReleaseError:
    """Our own errors show what is wrong and what mends it, no frames of ours; ``below`` are further lines."""
    lines = [f"\x1b[31m{type(error).__name__}\x1b[39m: {error.message}"]
    if error.hint:
        lines.append(f"  → {without_backticks(error.hint)}")
    return with_traceback_lines(error, [*lines, *below])


def end_tracebacks_at_users_line(shell: Any) -> None:
    """Show only the user's line, none of ours, where code meets one of our errors (``load``, a placeholder)."""

    def render(error: GpuReleaseError) -> list[str]:
        drop_own_causes(error)
        shown: list[str] = shell.InteractiveTB.structured_traceback(
            type(error), error, without_own(error.__traceback__)
        )
        return shown

    setattr(GpuReleaseError, _RENDER, render)


def show_whole_tracebacks() -> None:
    """Take :func:`end_tracebacks_at_users_line` back."""
    if _RENDER in vars(GpuReleaseError):
        delattr(GpuReleaseError, _RENDER)


def syntax_error(error: SyntaxError, shell: Any) -> BaseException:
    """The cell's syntax error as IPython itself shows one (raised from a magic it would show the magic's frames)."""
    lines = shell.SyntaxTB.structured_traceback(type(error), error, [])
    return with_traceback_lines(_named(type(error).__name__)(str(error)), lines)


def remote_error(info: ErrorInfo, *below: str, to_catch: bool = False) -> BaseException:
    """The exception to raise here for what the cell raised there; ``below`` are lines under its frames.

    ``to_catch``: its class counts more than how IPython would show it.
    """
    if info.code:
        return without_traceback(from_code(info.code, info.evalue, info.hint), *below)
    lines = info.traceback or [f"{info.ename}: {info.evalue}"]
    from ..serialization import exceptions  # not while the extension is being loaded

    avoided = (SystemExit,) if to_catch else _SHOWN_SPECIALLY
    try:
        error = _rebuilt(exceptions.unpack_error(info.pickled), info.ename, info.evalue, avoided)
        return with_traceback_lines(error, _closing(lines, below))
    except Exception:  # noqa: BLE001 - foreign code: a class can be odd in any way it likes
        return with_traceback_lines(_named(info.ename)(info.evalue), _closing(lines, below))


def _closing(lines: Sequence[str], before: Sequence[str]) -> list[str]:
    """The exception itself stays the last line, as in a plain cell: programs that run notebooks show that one."""
    return [*lines[:-1], *before, *([""] if before else []), *lines[-1:]]


def _rebuilt(found: Raised, name: str, text: str, avoided: tuple[type[BaseException], ...] = ()) -> BaseException:
    """The user's exception, of its own class or else of the nearest of its bases that can be had here."""
    from ..serialization import exceptions
    from ..unpickling import Trust

    for place, (module, qualname) in enumerate(found.classes):
        cls = exceptions.class_named(module, qualname)
        if cls is None or issubclass(cls, avoided):
            continue
        group = [_member(*member) for member in found.group]
        if not place:
            error = exceptions.rebuild_error(found, cls, Trust.GATEWAY, group)
            if exceptions.has_text(error):  # else it is made of what did not travel
                return error
        stand_in = _named(name, cls if issubclass(cls, Exception) else Exception, text)
        return exceptions.rebuild_error(found, stand_in, Trust.GATEWAY, group)
    raise LookupError(name)


def _member(text: str, found: Raised) -> BaseException:
    name = found.classes[0][1].rpartition(".")[2]
    try:
        return _rebuilt(found, name, text)
    except Exception:  # noqa: BLE001 - foreign code, as above
        return _named(name)(text)


def _named(name: str, base: type[Exception] = Exception, text: str | None = None) -> type[Exception]:
    """A stand-in for an exception class that cannot be had here; ``text``: what it says."""
    space: dict[str, Any] = {"__module__": "jupyter_gpu_release"}
    if text is not None:
        space["__str__"] = lambda _error: text
    return type(name if name.isidentifier() else "RemoteError", (base,), space)


def in_our_words(error: BaseException) -> BaseException:
    """``error`` as the notebook shall show it: what has no rendering yet gets one without frames of ours."""
    if isinstance(error, GpuReleaseError):
        return error if _RENDER in vars(error) else without_traceback(error)
    if hasattr(error, _RENDER):
        return error
    return with_traceback_lines(error, [f"\x1b[31m{type(error).__name__}\x1b[39m: {error}".rstrip(": ")])


def make_interrupt(text: str = "", lines: Sequence[str] = ()) -> KeyboardInterrupt:
    """The KeyboardInterrupt that ends an interrupted cell, without frames of ours."""
    return with_traceback_lines(KeyboardInterrupt(text), [*lines] or [f"\x1b[31mKeyboardInterrupt\x1b[39m: {text}"])


def failure_of(view: RunView, interrupts: int, below: str = "", *, to_catch: bool = False) -> BaseException | None:
    """The exception for a run that did not go well (None: it did); ``below`` is shown under its frames.

    ``to_catch``: see :func:`remote_error`.
    """
    under = [below] if below else []
    outcome = view.outcome
    if outcome is None or (outcome.error is None and outcome.status != "ok"):
        return _failure_without_error(view, interrupts, under)
    if outcome.error is None:
        return make_interrupt("interrupted") if interrupts > 1 else None
    if outcome.status == "interrupted":
        return _interrupted(view, outcome, interrupts, under)
    if outcome.status == "timeout" and not outcome.error.code:
        from ..units import format_seconds  # not while the extension is being loaded

        ran = format_seconds((outcome.ended_s or 0) - (outcome.started_s or 0))
        error = RunFailedError(f"stopped after {ran} at its --timeout", hint="give it a longer --timeout, or none")
        return with_traceback_lines(error, [*outcome.error.traceback, *under, str(error)])
    return remote_error(outcome.error, *under, to_catch=to_catch)


def _interrupted(view: RunView, outcome: Outcome, interrupts: int, under: Sequence[str]) -> BaseException:
    assert outcome.error is not None
    lines = outcome.error.traceback or [f"\x1b[31mKeyboardInterrupt\x1b[39m: {outcome.error.evalue or 'interrupted'}"]
    if interrupts:
        return with_traceback_lines(KeyboardInterrupt(outcome.error.evalue), _closing(lines, under))
    if outcome.error.code and outcome.error.ename == KeyboardInterrupt.__name__:  # killed, or not begun yet
        return without_traceback(RunCancelledError(outcome.error.evalue), *under)
    if outcome.error.code:
        return remote_error(outcome.error, *under)
    error = RunCancelledError(
        view.reason or "the run was cancelled, by %gpu_cancel, another program or the end of its kernel"
    )
    return with_traceback_lines(error, [*lines, f"\x1b[31mRunCancelledError\x1b[39m: {error.message}", *under])


def _failure_without_error(view: RunView, interrupts: int, under: Sequence[str]) -> BaseException:
    if interrupts:
        text = view.reason or "interrupted"
        return make_interrupt(text, [f"\x1b[31mKeyboardInterrupt\x1b[39m: {text}", *under])
    reason = view.reason or f"the run is {view.state}"
    kinds = {"cancelled": RunCancelledError, "lost": RunLostError}
    return without_traceback(kinds.get(view.state, RunFailedError)(reason), *under)
