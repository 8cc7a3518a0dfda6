"""SIGBUS handler for truncated files, StoreError on the main thread.

A signal's handler cannot raise where it is (a thread of OpenMP, the middle of a memcpy), so a helper thread asks the
interpreter to run a handler on the main thread, again and again until it could raise there.

The kernel answers such a read with SIGBUS. Here its handler puts pages of zeros in the place of those that cannot be
read, so that the read (by numpy, by memcpy, by a thread of OpenMP) goes on, and has the main thread raise a
:class:`StoreError` soon after. A SIGBUS at any other address finds the handler that was there before (faulthandler's,
or none), so that real bugs die as they would.

What cannot be read of a file is told once: threads that strike at the same moment are one misfortune.

The handler is Python code, called through ctypes on the thread that read. That is sound because the signal is the
answer to one instruction of that thread, which touches memory of a file: it holds no lock of the memory allocator.
A library whose own threads read while its main thread holds the interpreter's lock would wait for ever; those that
compute in threads give the lock back.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import os
import signal
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from time import sleep
from typing import Any, Protocol

from ...errors import StoreError
from ...protocol.states import is_run_id
from .memory import map_zeros, page_flags

_FIRST_WAIT_S = 0.001
_LONGEST_WAIT_S = 0.05


class MainThreadRaiser:
    """``number``: the signal whose Python handler is used; ``inside``: code that nothing may be raised in."""

    def __init__(self, number: signal.Signals, inside: types.CodeType) -> None:
        self._number = number
        self._inside = inside
        self._lost: dict[tuple[Path, Path], None] = {}
        self._is_interrupt = False
        self._is_running = False

    def install_handler(self) -> None:
        """Take the Python-level handler, where that is possible (in the main thread)."""
        with contextlib.suppress(ValueError):
            signal.signal(self._number, self._on_main_thread)

    def note_lost_file(self, graph: Path, file: Path) -> None:
        """``file``, which ``graph`` refers to, could not be read."""
        self._lost[graph, file] = None
        self._start()

    def on_interrupt(self) -> None:
        """A KeyboardInterrupt struck where it could not be raised."""
        self._is_interrupt = True
        self._start()

    def _start(self) -> None:
        if not self._is_running:
            self._is_running = True
            _thread.start_new_thread(self._ask, ())

    def _ask(self) -> None:
        wait_s = _FIRST_WAIT_S
        while self._lost or self._is_interrupt:
            if self._is_interrupt and not self._is_inside(sys._current_frames().get(_main_thread())):
                self._is_interrupt = False
                _thread.interrupt_main(signal.SIGINT)
            if self._lost and signal.getsignal(self._number) != self._on_main_thread:
                self._say(self._take())  # nobody listens on the main thread
            if self._lost:
                _thread.interrupt_main(self._number)
            sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
        self._is_running = False
        if self._lost:  # came meanwhile
            self._start()

    def _on_main_thread(self, _number: int, frame: types.FrameType | None) -> None:
        if not self._lost or self._is_inside(frame):
            return
        error = self._take()
        if _is_between_cells(frame):
            self._say(error)
            return
        raise error

    def _is_inside(self, frame: types.FrameType | None) -> bool:
        while frame is not None and frame.f_code is not self._inside:
            frame = frame.f_back
        return frame is not None

    def _take(self) -> StoreError:
        lost, self._lost = self._lost, {}
        return _error(list(lost))

    @staticmethod
    def _say(error: StoreError) -> None:
        sys.stderr.write(f"StoreError: {error}\n")


def _main_thread() -> int:
    return threading.main_thread().ident or 0


def _error(lost: list[tuple[Path, Path]]) -> StoreError:
    graph, file = lost[0]
    run = graph.parent.name if is_run_id(graph.parent.name) else ""
    others = f" (and {len(lost) - 1} more files)" if len(lost) > 1 else ""
    of_run = f" of run {run} ({graph.name})" if run else ""
    text = (
        f"{file}{of_run} cannot be read any more (removed, cut short, or its filesystem is gone){others}; "
        "what was not read of it before is zeros now"
    )
    again = f"`%gpu_attach {run}` when the filesystem is back, or " if run else ""
    return StoreError(text, hint=f"do not use these values: {again}run the cell that made them again")


def _is_between_cells(frame: types.FrameType | None) -> bool:
    """Tell if this is a notebook's kernel that runs no cell: raising would end its event loop."""
    if "ipykernel.kernelapp" not in sys.modules:
        return False
    while frame is not None:
        if frame.f_code.co_name == "run_code" and "interactiveshell" in frame.f_code.co_filename:
            return False
        frame = frame.f_back
    return True


_PAGE = os.sysconf("SC_PAGESIZE")
_MEMORY_ERRORS = (4, 5)  # BUS_MCEERR_AR, BUS_MCEERR_AO: broken memory, not a broken file
_SA_SIGINFO = 4
_SA_RESTART = 0x10000000
_IN_MEMORY = 0xC0  # present or swapped


class Mapping(Protocol):
    """The interface that a mapped file must have."""

    address: int
    path: Path
    used_by: Path
    torn: list[int]

    def __len__(self) -> int: ...


class _Info(ctypes.Structure):
    _fields_ = (
        ("signo", ctypes.c_int),
        ("errno", ctypes.c_int),
        ("code", ctypes.c_int),
        ("pad", ctypes.c_int),
        ("address", ctypes.c_void_p),
    )


_Handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.POINTER(_Info), ctypes.c_void_p)


class _Action(ctypes.Structure):
    """``struct sigaction`` of glibc and musl on 64-bit Linux."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ubyte * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class SigbusHandler:
    """The process's handler of SIGBUS; ``find``: the mapping in which an address lies."""

    def __init__(self, find: Callable[[int], Mapping | None]) -> None:
        self._find = find
        self._alarm = MainThreadRaiser(signal.SIGBUS, SigbusHandler._on_signal.__code__)
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._callback = _Handler(self._on_signal)
        self._mine = _Action(ctypes.cast(self._callback, ctypes.c_void_p), flags=_SA_SIGINFO | _SA_RESTART)
        self._previous = _Action()

    def install(self) -> None:
        """Put the handler in front of whatever handles SIGBUS now; cheap when it is there already."""
        now = _Action()
        self._sigaction(None, now)
        if now.handler == self._mine.handler:
            return
        self._previous = now
        self._alarm.install_handler()
        self._sigaction(self._mine, None)

    def _sigaction(self, new: _Action | None, old: _Action | None) -> None:
        pointers = [None if action is None else ctypes.byref(action) for action in (new, old)]
        self._libc.sigaction(int(signal.SIGBUS), *pointers)

    def _on_signal(self, _number: int, info: Any, _context: int | None) -> None:
        try:
            facts = info.contents
            if not self._mend(facts.address or 0, facts.code):
                self._pass_on(facts.code)
        except KeyboardInterrupt:
            self._alarm.on_interrupt()

    def _mend(self, address: int, code: int) -> bool:
        mapping = self._find(address) if code > 0 and code not in _MEMORY_ERRORS else None
        if mapping is None:
            return False
        page = address // _PAGE * _PAGE
        try:
            map_zeros(page, self._lost_bytes(mapping, page))
        except OSError:
            return False
        mapping.torn.append(page)
        if mapping.torn[0] is page:  # other threads may strike at the same moment
            self._alarm.note_lost_file(mapping.used_by, mapping.path)
        return True

    def _lost_bytes(self, mapping: Mapping, page: int) -> int:
        """From this page to the next one that is in memory: reading each of the others would fail, or wait, as well."""
        end = (mapping.address + len(mapping) + _PAGE - 1) // _PAGE * _PAGE
        flags = page_flags(page, end - page) or b"\0"
        return next((number for number, flag in enumerate(flags) if number and flag & _IN_MEMORY), len(flags)) * _PAGE

    def _pass_on(self, code: int) -> None:
        """Let the previous handler have it: the instruction is tried again, and fails again."""
        self._sigaction(self._previous, None)
        if code <= 0:  # sent by somebody: nothing would come again by itself
            os.kill(os.getpid(), signal.SIGBUS)


_guard: SigbusHandler | None = None


def guard_mappings(find: Callable[[int], Mapping | None]) -> None:
    """Guard the mappings that ``find`` knows from now on (called whenever one is made)."""
    global _guard
    if _guard is None:
        _guard = SigbusHandler(find)
    _guard.install()
