"""Reset of a process after a call of a function, so that the next call of the same function finds it as this one did.

Names, environment, folder, modules and logging are put back; what cannot be put back ends the process instead.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import signal
import sys
import sysconfig
import threading
import warnings
from collections.abc import Iterator
from functools import cache
from types import ModuleType

from ...host import process_control
from ...serialization.process_state import log_settings
from .. import installed_packages
from .shell import RankShell

#: memory of the process, and of its GPU, that may be more than before
_MORE_BYTES, _GPU_BYTES = 256 << 20, 64 << 20
#: they keep GPU memory in a pool of their own, which the next call might not use
_POOLS = ("jax", "tensorflow", "cupy", "cudf", "numba.cuda")
_SIGNALS = (signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGPIPE)
#: kinds of open files that frameworks keep for themselves
_OF_FRAMEWORKS = ("/dev/", "anon_inode:", "pipe:", "/memfd:", "/proc/")


class ProcessReset:
    """Made before the first call of a function, looks back after each one."""

    def __init__(self, shell: RankShell) -> None:
        self._shell = shell
        self._names = dict(shell.user_ns)
        self._environment = dict(os.environ)
        self._path = list(sys.path)
        self._modules = set(sys.modules)
        self._newest = _newest_module()
        self._filters = list(warnings.filters)
        self._logging = log_settings.read(logging)
        self._files = set(_open_files())
        self._fixed = self._what_stays()
        self.baseline_bytes = process_control.anonymous_bytes(os.getpid())

    def put_away(self, *, on_gpu: bool) -> str:
        """Make the process as it was; returns why that cannot be done, or nothing."""
        self._close_figures()
        self._put_back()
        gc.collect()
        return next(self._problems(on_gpu=on_gpu), "")

    def _what_stays(self) -> dict[str, object]:
        return {
            "exit handlers": atexit._ncallbacks(),
            "signal handlers": [signal.getsignal(number) for number in _SIGNALS],
            "threads": threading.enumerate(),
            "sys.stdout": (sys.stdout, sys.stderr, sys.stdin),
            "trace functions": (sys.gettrace(), sys.getprofile(), sys.excepthook),
            "log handlers": list(logging.root.handlers),
        }

    def _close_figures(self) -> None:
        figures = sys.modules.get("matplotlib._pylab_helpers")
        if figures is not None:
            figures.Gcf.destroy_all()

    def _put_back(self) -> None:
        names = self._shell.user_ns
        names.clear()
        names.update(self._names)
        self._put_environment_back()
        sys.path[:] = self._path
        warnings.filters[:] = self._filters  # type: ignore[index]
        warnings._filters_mutated()  # type: ignore[attr-defined]
        for name in {**log_settings.read(logging), **self._logging}:
            log_settings.write(logging, name, self._logging.get(name))
        if _newest_module() == self._newest:
            return
        if new := [name for name in sys.modules if name not in self._modules]:
            folders = _installed()
            for name in new:  # its file may be another one by the next call
                if _is_users(sys.modules[name], folders):
                    del sys.modules[name]
            self._modules = set(sys.modules)
        self._newest = _newest_module()

    def _put_environment_back(self) -> None:
        now = dict(os.environ)
        for name in now.keys() - self._environment.keys():
            del os.environ[name]
        for name, value in self._environment.items():
            if now.get(name) != value:
                os.environ[name] = value

    def _problems(self, *, on_gpu: bool) -> Iterator[str]:
        now = self._what_stays()
        yield from (f"its {what} are not those of before" for what, value in self._fixed.items() if now[what] != value)
        more = {target for number, target in _open_files() if (number, target) not in self._files}
        yield from (f"{path} is open" for path in more if not path.startswith(_OF_FRAMEWORKS))
        more_bytes = process_control.anonymous_bytes(os.getpid()) - self.baseline_bytes
        if more_bytes > _MORE_BYTES:
            yield f"it kept {more_bytes >> 20} MiB"
        if on_gpu:
            yield from _on_gpu()


def _newest_module() -> tuple[int, str]:
    """Another one whenever a module came (there are thousands: looking at all takes 1 ms)."""
    return len(sys.modules), next(reversed(sys.modules), "")


def _on_gpu() -> Iterator[str]:
    yield from (f"{name} keeps GPU memory" for name in _POOLS if name in sys.modules)
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
        if torch.cuda.memory_allocated() > _GPU_BYTES:
            yield "its tensors are still on the GPU"


def _is_users(module: ModuleType | None, installed: tuple[str, ...]) -> bool:
    """Modules of installed packages stay: their imports are what the next call saves."""
    paths = [getattr(module, "__file__", None), *(getattr(module, "__path__", None) or ())]
    return any(isinstance(path, str) and not path.startswith(installed) for path in paths)


def _open_files() -> Iterator[tuple[str, str]]:
    for number in os.listdir("/proc/self/fd"):
        try:
            yield number, os.readlink(f"/proc/self/fd/{number}")
        except OSError:  # the listing's own
            continue


@cache
def _installed() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    return tuple(
        f"{path}{os.sep}" for path in {paths["stdlib"], paths["platstdlib"], *installed_packages.package_folders()}
    )
