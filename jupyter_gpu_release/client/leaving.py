"""Sessions end with the process that opened them, and never live on in a child that it forks."""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Protocol

_GOODBYE_S = 0.5


class Leaving(Protocol):
    """What is open until the process ends."""

    def close(self, timeout_s: float) -> None:
        """The process ends."""

    def forget_in_fork(self) -> None:
        """This is a forked child: let go of everything without a word."""


_open: weakref.WeakSet[Leaving] = weakref.WeakSet()


def end_with_process(session: Leaving) -> None:
    """Close ``session`` when this process exits."""
    _open.add(session)


def _close_all() -> None:
    for session in list(_open):
        session.close(_GOODBYE_S)


def _forget_all_in_fork() -> None:
    for session in list(_open):
        session.forget_in_fork()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_forget_all_in_fork)
