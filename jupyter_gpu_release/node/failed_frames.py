"""Frames of an error with their variables, for a post-mortem in the notebook (``%debug``) when this process is gone."""

from __future__ import annotations

import sys
import time
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..core.failed_frames import LIMIT_BYTES, MOST_FRAMES, FailedFrames, Frame
from ..storage import codec
from ..storage.rebuild import Realm
from .fingerprint import is_immutable

#: the GPU is held meanwhile
_LONGEST_S = 0.5
_MOST_LOOKED_AT = 3000
_LONGEST_TEXT = 200
_CONTAINERS = (list, tuple, set, frozenset)


def collect_frames(error: BaseException, namespace: dict[str, Any], realm: Realm) -> FailedFrames | None:
    """The user's frames of ``error``, the outermost first; None: it has none.

    Of variables that are too large, or cannot be pickled, a line of text goes home.
    """
    links = _users_links(error.__traceback__, namespace)
    frames = [_frame(link, namespace) for link in links]
    if not frames:
        return None
    refs, values, texts = _variables(links, namespace)
    dump = codec.dump({}, realm, rest=lambda: values, rest_bytes=LIMIT_BYTES)
    texts |= {key: text_of(values[key], str(reason)) for key, reason in dump.failed.items()}
    return FailedFrames(frames, refs, texts, dump.stream, [bytes(buffer) for buffer in dump.buffers])


def _users_links(trace: types.TracebackType | None, namespace: dict[str, Any]) -> list[types.TracebackType]:
    """From the cell's own frame on; of a deep recursion its ends."""
    links = []
    while trace is not None:
        links.append(trace)
        trace = trace.tb_next
    first = next((n for n, link in enumerate(links) if link.tb_frame.f_globals is namespace), len(links))
    links = links[first:]
    return links if len(links) <= MOST_FRAMES else [*links[: MOST_FRAMES // 2], *links[-MOST_FRAMES // 2 :]]


def _frame(link: types.TracebackType, namespace: dict[str, Any]) -> Frame:
    frame, code = link.tb_frame, link.tb_frame.f_code
    names = [name for name in frame.f_locals if name.isidentifier()]
    return Frame(
        file=code.co_filename, name=code.co_name, first_line=code.co_firstlineno, line=link.tb_lineno or 0,
        module=str(frame.f_globals.get("__name__", "")), is_users=frame.f_globals is namespace,
        variables=None if frame.f_locals is frame.f_globals else names,
    )  # fmt: skip


def _variables(
    links: list[types.TracebackType], namespace: Mapping[str, Any]
) -> tuple[dict[str, str], dict[str, Any], dict[str, str]]:
    """By ``"<frame> <name>"``: what a name of the notebook holds, too; what is to be sent; words about the rest."""
    own = {id(value): name for name, value in namespace.items() if not name.startswith("_")}
    refs: dict[str, str] = {}
    values: dict[str, Any] = {}
    texts: dict[str, str] = {}
    until, left = time.monotonic() + _LONGEST_S, LIMIT_BYTES
    for number, name, value in _inner_first(links):
        key = f"{number} {name}"
        size = 0 if time.monotonic() < until else LIMIT_BYTES + 1
        if id(value) in own and not is_immutable(value):
            refs[key] = own[id(value)]
        elif isinstance(value, types.ModuleType) or (size := size or bytes_at_least(value, left)) <= left:
            values[key], left = value, left - size
        else:
            texts[key] = text_of(value, "too large to be sent")
    return refs, values, texts


def _inner_first(links: list[types.TracebackType]) -> Iterator[tuple[int, str, Any]]:
    for number in reversed(range(len(links))):
        frame = links[number].tb_frame
        if frame.f_locals is not frame.f_globals:
            yield from ((number, name, value) for name, value in frame.f_locals.items() if name.isidentifier())


def bytes_at_least(value: Any, limit: int, *, but: Callable[[Any], bool] = lambda _thing: False) -> int:
    """A lower bound, found by looking at a few thousand objects; stops above ``limit``. ``but``: does not count."""
    found, looked_at, queue, seen = 0, 0, [value], set()
    while queue and found <= limit and looked_at < _MOST_LOOKED_AT:
        thing = queue.pop()
        kind = type(thing)
        if id(thing) in seen or but(thing) or issubclass(kind, (type, types.ModuleType, types.FunctionType)):
            continue
        seen.add(id(thing))
        looked_at += 1
        if kind.__module__.partition(".")[0] in ("numpy", "torch") and isinstance(size := _nbytes(thing), int):
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


def _nbytes(thing: Any) -> Any:
    try:
        return thing.nbytes
    except Exception:  # noqa: BLE001 - foreign code
        return None


def text_of(value: Any, reason: str) -> str:
    """``repr`` of a huge or odd object may take for ever, or fail: arrays say their shape, others their class."""
    kind = type(value)
    shape = getattr(value, "shape", None) if kind.__module__.partition(".")[0] in ("numpy", "torch", "pandas") else None
    size = f" of shape {tuple(shape)}" if shape is not None else ""
    if (
        not size
        and sys.getsizeof(value, 0) < 1 << 12
        and kind.__module__ in ("builtins", "_thread", "_io", "threading")
    ):
        size = f" {value!r}"
    return f"<{kind.__module__}.{kind.__qualname__}{size}: {reason}>"[:_LONGEST_TEXT]
