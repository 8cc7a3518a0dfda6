"""Finds out if this process holds a GPU or a port: open or mapped device files of a driver, threads, sockets."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from pathlib import Path

#: of NVIDIA's and AMD's drivers (WSL has the second)
_DEVICES = ("/dev/nvidia", "/dev/dxg", "/dev/dri/", "/dev/kfd")
#: threads of ours, by the beginning of their names; they know no device
_OURS = "jgr-"


def may_hold_gpu() -> bool:
    """Tell if a device is open or mapped, or another thread of Python's could open one before the process ends."""
    if has_threads():
        return True
    try:
        if any(path.startswith(_DEVICES) for path in _open_files().values()):
            return True
        mapped = Path("/proc/self/maps").read_bytes()  # of a fork of torch: 4 ms
    except OSError:  # no descriptor is left, say
        return True
    return any(device.encode() in mapped for device in _DEVICES)


def has_threads() -> bool:
    """Tell if threads of the cell's are left, which may do anything; ``_thread`` begins some that have no name."""
    idents = {thread.ident for thread in threading.enumerate() if thread.is_alive()} | sys._current_frames().keys()
    return not idents <= {thread.ident for thread in _ours()}


def may_keep_port() -> bool:
    """Tell if a library's thread may wait at a port: that keeps it, although its descriptor is closed."""
    try:
        if len(os.listdir("/proc/self/task")) <= len(_ours()):
            return False
        return any(path.startswith("socket:") and _is_of_internet(fd) for fd, path in _open_files().items())
    except OSError:  # no descriptor is left, say
        return True


def _ours() -> list[threading.Thread]:
    main = threading.main_thread()
    return [thread for thread in threading.enumerate() if thread is main or thread.name.startswith(_OURS)]


def _open_files() -> dict[int, str]:
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the listing's own
            found[int(fd)] = os.readlink(f"/proc/self/fd/{fd}")
    return found


def _is_of_internet(descriptor: int) -> bool:
    looked_at = socket.socket(fileno=descriptor)
    looked_at.detach()
    return looked_at.family in (socket.AF_INET, socket.AF_INET6)
