"""A fork of the rank that writes large results after the GPU is free.

The fork shares the rank's memory copy-on-write, so nothing is copied before the rank ends. It closes the
device's descriptors first, never touches a framework, and only writes plain host buffers.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import msgspec

from ..core.messages import ErrorInfo, Graph, Outcome, encode
from ..errors import StoreError
from . import frames
from .frames import Kind

_TRIES = 5
_RETRY_S = 1.0
_BYTES_A_S = 1 << 30
_LONGEST_WAIT_S = 0.05


def fork_persister(outcome: Outcome, write: Callable[[], str], file: str, sock: socket.socket, size: int) -> int:
    """Fork; the child calls ``write() -> digest`` and reports ``PERSISTED`` once the rank is gone. Returns its pid.

    It waits a twentieth of the time that writing ``size`` bytes takes: giving the GPU back gets the cores first.
    """
    rank = os.getpid()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        _persist(rank, outcome, write, file, sock, min(_LONGEST_WAIT_S, size / _BYTES_A_S / 20))
    return pid


def _persist(
    rank: int, outcome: Outcome, write: Callable[[], str], file: str, sock: socket.socket, wait_s: float
) -> NoReturn:
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _close_devices()
        time.sleep(wait_s)
        done = _write_with_retries(outcome, write, file)
        while os.getppid() == rank:  # its frames come first on this socket
            time.sleep(0.001)
        sock.setblocking(True)
        frames.send(sock, Kind.PERSISTED, encode(done))
        code = 0
    finally:
        os._exit(code)


def _write_with_retries(outcome: Outcome, write: Callable[[], str], file: str) -> Outcome:
    for attempt in range(1, _TRIES + 1):
        try:
            return msgspec.structs.replace(outcome, values=Graph(file=file, digest=write()))
        except StoreError as error:
            problem = error
            if attempt < _TRIES:
                time.sleep(_RETRY_S)
    info = ErrorInfo(ename="StoreError", evalue=problem.message, code=problem.code, mend=problem.mend)
    return msgspec.structs.replace(outcome, values=None, results=[], status="error", error=outcome.error or info)


def _close_devices() -> None:
    with contextlib.suppress(OSError):
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                if str(Path(f"/proc/self/fd/{name}").readlink()).startswith("/dev/nvidia"):
                    os.close(int(name))
