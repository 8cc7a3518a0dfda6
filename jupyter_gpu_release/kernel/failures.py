"""What the notebook shows of an error: our own as message and mend, the cell's as the user's exception."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ..core.messages import ErrorInfo
from ..errors import GpuReleaseError, from_code

E = TypeVar("E", bound=BaseException)
#: IPython shows these two in its own way and would show our frames instead of the cell's
_SHOWN_SPECIALLY = (SyntaxError, BaseExceptionGroup)


def with_traceback_lines(error: E, lines: Sequence[str]) -> E:
    """Make IPython show exactly ``lines`` for ``error`` (its ``_render_traceback_`` protocol)."""
    shown = list(lines)
    render: Callable[[], list[str]] = lambda: shown  # noqa: E731
    error._render_traceback_ = render  # type: ignore[attr-defined]
    return error


def without_traceback(error: GpuReleaseError, *below: str) -> GpuReleaseError:
    """Our own errors show what is wrong and what mends it, no frames of ours; ``below`` are further lines."""
    lines = [f"\x1b[31m{type(error).__name__}\x1b[39m: {error.message}"]
    if error.mend:
        lines.append(f"  → {error.mend}")
    return with_traceback_lines(error, [*lines, *below])


def syntax_error(error: SyntaxError, shell: Any) -> BaseException:
    """The cell's syntax error as IPython itself shows one (raised from a magic it would show the magic's frames)."""
    lines = shell.SyntaxTB.structured_traceback(type(error), error, [])
    return with_traceback_lines(_named(type(error).__name__)(str(error)), lines)


def remote_error(info: ErrorInfo, *below: str) -> BaseException:
    """The exception to raise here for what the cell raised there; ``below`` are lines under its traceback."""
    if info.code:
        return without_traceback(from_code(info.code, info.evalue, info.mend), *below)
    error = _unpickled(info)
    if error is None:
        error = _named(info.ename)(info.evalue)
    lines = info.traceback or [f"{info.ename}: {info.evalue}"]
    try:
        return with_traceback_lines(error, [*lines, *below])
    except Exception:  # noqa: BLE001 - the user's class may forbid new attributes in any way it likes
        return with_traceback_lines(_named(info.ename)(info.evalue), [*lines, *below])


def _unpickled(info: ErrorInfo) -> BaseException | None:
    if not info.pickled:
        return None
    try:
        error = pickle.loads(info.pickled)
    except Exception:  # noqa: BLE001 - foreign code: the class may be missing here or need other arguments
        return None
    if not isinstance(error, BaseException) or isinstance(error, _SHOWN_SPECIALLY):
        return None
    return error if type(error).__name__ == info.ename else None


def _named(name: str) -> type[Exception]:
    """A stand-in for an exception class that cannot be had here."""
    return type(name if name.isidentifier() else "RemoteError", (Exception,), {"__module__": "jupyter_gpu_release"})


def in_our_words(error: BaseException) -> BaseException:
    """``error`` as the notebook shall show it: what has no rendering yet gets one without frames of ours."""
    if hasattr(error, "_render_traceback_"):
        return error
    if isinstance(error, GpuReleaseError):
        return without_traceback(error)
    return with_traceback_lines(error, [f"\x1b[31m{type(error).__name__}\x1b[39m: {error}".rstrip(": ")])
