"""An interrupt at any line of a session's beginning leaves one that can be closed, or used."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from ports import free_port

from jupyter_gpu_release.client import session as session_module
from jupyter_gpu_release.client import websocket
from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.errors import GatewayUnavailableError

_FILES = {session_module.__file__, websocket.__file__}


class _StrikesAt:
    """Raises KeyboardInterrupt at the nth line of the session's own code that this thread carries out."""

    def __init__(self, line: int) -> None:
        self.left = line
        self.has_struck = False

    def __enter__(self) -> _StrikesAt:
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in _FILES:
            return None
        if event == "line" and not self.has_struck:
            self.left -= 1
            if self.left < 0:
                self.has_struck = True
                raise KeyboardInterrupt
        return self._trace


def _new_threads(before: set[threading.Thread]) -> list[str]:
    return sorted(thread.name for thread in set(threading.enumerate()) - before)


@pytest.mark.parametrize("goes_on", [False, True])
def test_an_interrupt_at_any_line_leaves_no_half_session(goes_on: bool, until: Callable[..., None]) -> None:
    before = set(threading.enumerate())
    line, has_struck = 0, True
    while has_struck:
        session = GatewaySession(Target(f"http://127.0.0.1:{free_port()}", "t"), "s")
        with _StrikesAt(line) as strikes, contextlib.suppress(KeyboardInterrupt, GatewayUnavailableError):
            session.connect(0.0)
        has_struck = strikes.has_struck
        if goes_on:
            with pytest.raises(GatewayUnavailableError):
                session.connect(0.0)
            until(lambda: _new_threads(before) == ["gpu-session"], f"its thread, and no other: line {line}")
        session.close()
        until(lambda: not _new_threads(before), f"the end of all threads: line {line}")
        line += 1
    assert line > 8
