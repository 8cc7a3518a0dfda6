"""Kernels that tests use one after the other, each test as if its kernel were new: to start one costs 2 s of a core."""

from __future__ import annotations

import os
import queue
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

#: a busy machine takes long to import the extension; a kernel that a test left busy need not be waited for so long
_BEGINS_WITHIN_S, _ENDS_WITHIN_S = 120.0, 30.0


class _Started(Protocol):
    manager: Any
    folder: Path

    def run(self, code: str, limit_s: float, /) -> Any: ...
    def close(self) -> None: ...


K = TypeVar("K", bound=_Started)


_BEGIN = """
import os
os.environ.clear()
os.environ.update({environment!r})
os.chdir({folder!r})
%load_ext jupyter_gpu_release
del os
"""
#: modules of the test's folder go, too: the next one may have others of their names. A reset costs two collections
_END = """
%unload_ext jupyter_gpu_release
import sys
for name, module in list(sys.modules.items()):
    if str(getattr(module, "__file__", "")).startswith({folder!r}):
        del sys.modules[name]
%reset -f
"""


class KernelPool(Generic[K]):
    """``take`` and ``give_back``; a kernel that was killed, ended or does not answer is replaced."""

    def __init__(self, start: Callable[[Mapping[str, str], Path], K]) -> None:
        self._start = start
        self._idle: list[K] = []

    def take(self, environment: Mapping[str, str], folder: Path) -> K:
        """A kernel with the extension loaded, in ``folder``, with the tests' environment and this one."""
        begin = _BEGIN.format(environment={**os.environ, **environment}, folder=str(folder))
        kernel = self._idle.pop() if self._idle else self._start(environment, folder)
        kernel.folder = folder
        assert _does(kernel, begin, _BEGINS_WITHIN_S)
        return kernel

    def give_back(self, kernel: K) -> None:
        """The test is over; nothing of its own stays."""
        if kernel.manager.is_alive() and _does(kernel, _END.format(folder=str(kernel.folder)), _ENDS_WITHIN_S):
            self._idle.append(kernel)
        else:
            kernel.close()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


def _does(kernel: _Started, code: str, limit_s: float) -> bool:
    try:
        return bool(kernel.run(code, limit_s).reply["status"] == "ok")
    except (queue.Empty, TimeoutError):
        return False
