"""Frames of an error with their variables, for a post-mortem in the notebook (``%debug``) when this process is gone."""

from __future__ import annotations

import contextlib
import inspect
import sys
import time
import types
from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Any

from ...adapters.registry import adapters_of, first_answer, size_of
from ...protocol.cell import FRAMES_LIMIT_BYTES, MOST_ERRORS, MOST_FRAMES, FailedError, FailedFrames, Frame
from ...serialization import codec, exceptions
from ...serialization.rebuild import NamespaceInfo
from .changes import is_immutable

#: the GPU is held meanwhile
_LONGEST_S = 0.5
_MOST_LOOKED_AT = 3000
_LONGEST_TEXT = 200
_CONTAINERS = (list, tuple, set, frozenset)


def collect_frames(
    error: BaseException,
    namespace: dict[str, Any],
    realm: NamespaceInfo,
    limit_bytes: int = FRAMES_LIMIT_BYTES,
    withheld: str = "",
) -> FailedFrames | None:
    """The user's frames of ``error``, and of the errors that it came from; None: it has none.

    Of variables that are too large, or cannot be pickled, a line of text goes home; ``withheld``: so it is with all but
    numbers and texts, and why.
    """
    chain = _chain(error)
    links = [_users_links(each.__traceback__, namespace, is_last=each is error) for each in chain]
    if not links[0]:
        return None
    errors = [_failed(each, own, namespace) for each, own in zip(chain, links, strict=True)]
    found = [link.tb_frame for own in links for link in own]
    order = _by_importance([len(own) for own in links])
    refs, values, texts = _variables(found, order, namespace, limit_bytes, withheld)
    dump = codec.dump({}, realm, rest=lambda: values, rest_bytes=limit_bytes)
    texts |= {key: text_of(values[key], str(reason)) for key, reason in dump.failed.items()}
    return FailedFrames(errors, refs, texts, dump.stream, [bytes(buffer) for buffer in dump.buffers])


def _chain(error: BaseException) -> list[BaseException]:
    """``error`` and those that it came from, as tracebacks show them, the last one first."""
    chain = [error]
    while len(chain) < MOST_ERRORS:
        last = chain[-1]
        before = last.__cause__ or (None if last.__suppress_context__ else last.__context__)
        if before is None or any(before is known for known in chain):
            break
        chain.append(before)
    return chain


def _users_links(
    trace: types.TracebackType | None, namespace: dict[str, Any], *, is_last: bool
) -> list[types.TracebackType]:
    """Frames from the cell's own on; of a deep recursion its ends.

    The traceback of an error that was handled (not ``is_last``) begins where that was done, perhaps in a library.
    """
    links = []
    while trace is not None:
        links.append(trace)
        trace = trace.tb_next
    first = next((n for n, link in enumerate(links) if link.tb_frame.f_globals is namespace), None)
    links = links[len(links) if first is None and is_last else first or 0 :]
    return links if len(links) <= MOST_FRAMES else [*links[: MOST_FRAMES // 2], *links[-MOST_FRAMES // 2 :]]


def _failed(error: BaseException, links: list[types.TracebackType], namespace: dict[str, Any]) -> FailedError:
    pickled = b""
    with contextlib.suppress(Exception):  # the user's class may be odd in any way
        pickled = exceptions.pack_error(error)
    frames = [_frame(link, namespace) for link in links]
    return FailedError(type(error).__name__, exceptions.error_text(error), pickled, frames, error.__cause__ is not None)


def _frame(link: types.TracebackType, namespace: dict[str, Any]) -> Frame:
    frame, code = link.tb_frame, link.tb_frame.f_code
    names = [name for name in frame.f_locals if name.isidentifier()]
    return Frame(
        file=code.co_filename,
        name=code.co_name,
        first_line=code.co_firstlineno,
        line=link.tb_lineno or 0,
        module=str(frame.f_globals.get("__name__", "")),
        is_users=frame.f_globals is namespace,
        variables=None if frame.f_locals is frame.f_globals else names,
        arguments=_arguments(code),
    )


def _arguments(code: types.CodeType) -> list[str]:
    flags = (inspect.CO_VARARGS, inspect.CO_VARKEYWORDS)
    count = code.co_argcount + code.co_kwonlyargcount + sum(bool(code.co_flags & flag) for flag in flags)
    return [name for name in code.co_varnames[:count] if name.isidentifier()]


def _by_importance(counts: list[int]) -> list[int]:
    """Numbers of frames: those of the last error first, of each error the innermost one."""
    firsts = accumulate(counts, initial=0)
    return [
        number for first, count in zip(firsts, counts, strict=False) for number in reversed(range(first, first + count))
    ]


def _variables(
    frames: list[types.FrameType], order: list[int], namespace: Mapping[str, Any], limit_bytes: int, withheld: str
) -> tuple[dict[str, str], dict[str, Any], dict[str, str]]:
    """Variables by ``"<frame> <name>"``: what a name of the notebook holds, too; what is to be sent, or text."""
    own = {id(value): name for name, value in namespace.items() if not name.startswith("_")}
    refs: dict[str, str] = {}
    values: dict[str, Any] = {}
    texts: dict[str, str] = {}
    until, left = time.monotonic() + _LONGEST_S, limit_bytes
    for number, name, value in _locals_of(frames, order):
        key = f"{number} {name}"
        size = 0 if time.monotonic() < until else limit_bytes + 1
        if id(value) in own and not is_immutable(value):
            refs[key] = own[id(value)]
        elif withheld and not isinstance(value, (str, int, float, type(None), types.ModuleType)):
            texts[key] = f"<{type(value).__module__}.{type(value).__qualname__}: {withheld}>"
        elif isinstance(value, types.ModuleType) or (size := size or bytes_at_least(value, left)) <= left:
            values[key], left = value, left - size
        else:
            texts[key] = text_of(value, "too large to be sent")
    return refs, values, texts


def _locals_of(frames: list[types.FrameType], order: list[int]) -> Iterator[tuple[int, str, Any]]:
    for number in order:
        frame = frames[number]
        if frame.f_locals is not frame.f_globals:
            yield from ((number, name, value) for name, value in frame.f_locals.items() if name.isidentifier())


def bytes_at_least(value: Any, limit: int, *, but: Callable[[Any], bool] = lambda _thing: False) -> int:
    """A lower bound, found by looking at a few thousand objects; stops above ``limit``. ``but``: does not count."""
    found, looked_at, queue, seen = 0, 0, [value], dict[int, Any]()
    while queue and found <= limit and looked_at < _MOST_LOOKED_AT:
        thing = queue.pop()
        kind = type(thing)
        if id(thing) in seen or but(thing) or issubclass(kind, (type, types.ModuleType, types.FunctionType)):
            continue
        seen[id(thing)] = thing
        looked_at += 1
        if (size := size_of(thing)) is not None:
            found += size
        elif kind in (str, bytes, bytearray):
            found += len(thing)
        elif issubclass(kind, _CONTAINERS):
            found += 8 * len(thing)
            queue += list(thing)[:_MOST_LOOKED_AT] if len(thing) < 1 << 20 else []
        elif issubclass(kind, dict):
            found += 16 * len(thing)
            queue += list(thing.values())[:_MOST_LOOKED_AT] if len(thing) < 1 << 20 else []
        else:
            queue += list(getattr(thing, "__dict__", {}).values())
    return found


def nbytes_of(thing: Any) -> Any:
    """Size in bytes that an array gives for itself; None: it is no array."""
    try:
        return thing.nbytes
    except Exception:  # noqa: BLE001 - foreign code
        return None


def text_of(value: Any, reason: str) -> str:
    """``repr`` of a huge or odd object may take for ever, or fail: arrays say their shape, others their class."""
    kind = type(value)
    shape = first_answer(adapter.shape_of(value) for adapter in adapters_of(kind))
    size = f" of shape {tuple(shape)}" if shape is not None else ""
    if (
        not size
        and sys.getsizeof(value, 0) < 1 << 12
        and kind.__module__ in ("builtins", "_thread", "_io", "threading")
    ):
        size = f" {value!r}"
    return f"<{kind.__module__}.{kind.__qualname__}{size}: {reason}>"[:_LONGEST_TEXT]
