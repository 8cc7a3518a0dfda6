"""Tracebacks of our own errors end at the user's line: what lies below it is this package's business."""

from __future__ import annotations

import os
from types import TracebackType

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_PACKAGE = __name__.partition(".")[0]


def without_own(trace: TracebackType | None) -> TracebackType | None:
    """A copy of ``trace`` without the frames of this package at its end (all of it, where nothing else is in it)."""
    links = []
    while trace is not None:
        links.append(trace)
        trace = trace.tb_next
    last = next((n for n in reversed(range(len(links))) if not _is_ours(links[n])), len(links) - 1)
    copy: TracebackType | None = None
    for link in reversed(links[: last + 1]):
        copy = TracebackType(copy, link.tb_frame, link.tb_lasti, link.tb_lineno)
    return copy


def drop_own_causes(error: BaseException) -> None:
    """Forget the errors behind ``error`` that this package caught to say the same in its own words."""
    for before in (error.__cause__, error.__context__):
        if before is not None and before.__traceback__ is not None and _is_ours(before.__traceback__):
            error.__cause__ = None  # forbids showing __context__, too


def _is_ours(link: TracebackType) -> bool:
    file = link.tb_frame.f_code.co_filename
    if file == "<string>":  # the `__init__` of a dataclass
        return str(link.tb_frame.f_globals.get("__name__", "")).partition(".")[0] == _PACKAGE
    return file.startswith(_OURS)
