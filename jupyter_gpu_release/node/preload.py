"""Libraries imported ahead, canary after fork.

Key of a fork server: interpreter + installed packages. It must never *run* OpenMP, autograd, CUDA or a Python
thread: after any OpenMP use in the parent, torch, autograd and KMeans hang in the child (measured).
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from ..adapters.registry import adapter_of

# torch._dynamo: the first optimiser that a cell makes imports it (1.3 s here)
DEFAULT = (
    "numpy",
    "pandas",
    "scipy",
    "matplotlib.pyplot",
    "matplotlib_inline.backend_inline",
    "sklearn.base",
    "sklearn.metrics",
    "torch",
    "torch._dynamo",
    "torch.utils.data",
    "torchvision",
    "tqdm",
    "ipywidgets",
    "PIL.Image",
    "cloudpickle",
)
#: what a name is of no use without, though its own package is installed (ours needs it)
_NEEDS = {"matplotlib_inline.backend_inline": "matplotlib"}
CANARY_S = 5.0
_HUGE = 2 << 20
_MADV_COLLAPSE = 25


def import_libraries(
    names: Iterable[str], begin: Callable[[str], None] = lambda _: None, done: Callable[[str], None] = lambda _: None
) -> dict[str, str]:
    """Import what is installed of ``names``; returns top-level name → why it could not be imported.

    ``begin`` is told of each: one that ends the process leaves no other trace. ``done``: of what was imported.
    """
    failed: dict[str, str] = {}
    for name in names:
        if not all(map(importlib.util.find_spec, (name.partition(".")[0], _NEEDS.get(name, "sys")))):
            continue
        begin(name)
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - any library may fail in any way at import
            failed[name] = f"{type(error).__name__}: {error}"
        else:
            done(name)
    return failed


#: libraries that some version or build of did not work in a forked child
_CANARIES = ("numpy", "torch", "sklearn")


def fork_unsafe_libraries(meanwhile: Callable[[], object] = lambda: None) -> list[str]:
    """Top-level names of loaded libraries that do not work in a forked child (usually none).

    ``meanwhile`` is done while the first child tries them.
    """
    loaded = [name for name in _CANARIES if name in sys.modules]
    child = _use_in_child(loaded)
    meanwhile()
    if _ends_well(child):
        return []
    return [name for name in loaded if not _ends_well(_use_in_child([name]))]


def _use_in_child(names: list[str]) -> int:
    """Fork, and use each library in the child; returns its id."""
    pid = os.fork()
    if pid == 0:
        try:
            for name in names:
                if (adapter := adapter_of(name)) is not None:
                    adapter.compute_a_little()
            os._exit(0)
        finally:
            os._exit(1)
    return pid


def _ends_well(child: int) -> bool:
    """Tell if it ends without error within ``CANARY_S``."""
    deadline = time.monotonic() + CANARY_S
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def use_huge_pages() -> int:
    """Collapse this process's heap into huge pages, as far as the kernel does it; returns how many areas.

    A fork copies page tables: measured with torch, pandas and sklearn loaded, 8 ms before and 3 ms after.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    done = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        area, mode, *rest = line.split()
        start, end = (int(part, 16) for part in area.split("-"))
        start, end = -(-start // _HUGE) * _HUGE, end // _HUGE * _HUGE
        if mode == "rw-p" and (len(rest) < 4 or rest[3] == "[heap]") and end > start:
            done += libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_COLLAPSE) == 0
    return done
