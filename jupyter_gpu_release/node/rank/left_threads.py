"""Threads of the cell's that still work when it ends: what they do later is lost with the process."""

from __future__ import annotations

import functools
import sys
import threading
import time
import types
from collections.abc import Iterator
from concurrent.futures import thread as executors
from typing import Any

from ...adapters.users_code import is_file_of_the_user, is_of_the_user

#: threads of ours, by the beginning of their names
OURS = "jgr-"
#: what is as good as done ends meanwhile
_NEARLY_DONE_S = 0.05


class LeftThreads:
    """Threads that began since it was made, and that do what the user has written or told them to do.

    Those of libraries (pools that wait for work, a monitor of progress bars) lose nothing.
    """

    def __init__(self) -> None:
        self._before = set(threading.enumerate())

    def notes(self) -> list[str]:
        """A sentence for the receipt, if some still work."""
        if not (working := self._working()):
            return []
        until = time.monotonic() + _NEARLY_DONE_S
        for thread in working:
            thread.join(max(0.0, until - time.monotonic()))
        if not (working := self._working()):
            return []
        words = f"{len(working)} thread(s) still ran after the cell ({', '.join(dict.fromkeys(working.values()))})"
        return [f"{words}, and were ended: wait for them in the cell"]

    def _working(self) -> dict[threading.Thread, str]:
        frames = sys._current_frames()
        new = [each for each in threading.enumerate() if each not in self._before and not each.name.startswith(OURS)]
        return {thread: name for thread in new if (name := _work_of(thread, frames.get(thread.ident or 0)))}


def _work_of(thread: threading.Thread, frame: types.FrameType | None) -> str:
    """The name of the user's function that it runs or shall run; empty: none."""
    begun_with = thread.function if isinstance(thread, threading.Timer) else getattr(thread, "_target", None)
    stack = list(_stack(frame))
    tasks = [each.f_locals.get("work_item") for each in stack if each.f_code is executors._worker.__code__]
    for function in [begun_with, *(getattr(task, "fn", None) for task in tasks)]:
        if _is_told_by_the_user(function):
            return str(getattr(function, "__qualname__", thread.name))
    if users := [each for each in stack if _is_users(each)]:
        return users[-1].f_code.co_qualname
    queue: Any = executors._threads_queues.get(thread)
    return thread.name if queue is not None and queue.qsize() else ""


def _stack(frame: types.FrameType | None) -> Iterator[types.FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_told_by_the_user(function: Any) -> bool:
    """A function of the user's, or one of Python's in C (``results.append``): no library's thread begins with that."""
    if isinstance(function, functools.partial):
        return _is_told_by_the_user(function.func)
    if isinstance(function, types.BuiltinFunctionType):
        return (function.__module__ or "builtins").partition(".")[0] in sys.stdlib_module_names
    return isinstance(function, types.FunctionType | types.MethodType) and is_of_the_user(function)


def _is_users(frame: types.FrameType) -> bool:
    """Generated code of libraries (dataclasses, `torch.compile`) has no file either."""
    file = frame.f_code.co_filename
    return frame.f_globals.get("__name__") == "__main__" or (not file.startswith("<") and is_file_of_the_user(file))
