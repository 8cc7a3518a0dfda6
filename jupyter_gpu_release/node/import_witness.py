"""Notes what a library asks for while it is imported where it has neither a GPU nor a rank's place yet.

What it was told then would stay true in every cell that is forked from here: a library that found no GPU as it was
imported stays on the CPU, without a word. So it is seen, and such a library is imported once its cell has its GPUs.

No driver stands in for this: that would have to be built on each node, and could be told from a real one. A driver can
only be reached by loading its library, by opening its devices or by running its program. The first is seen as it is
asked for by ``ctypes`` (whether or not there is a driver), and from anybody in the list of mapped files; where there is
no driver to be mapped there is no GPU to be missed either. Threads count as well, unless they are ended before a fork
(as OpenBLAS does): no fork has them, and what they were started for (the back end of JAX) is dead in it.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

#: why a library cannot be forked; a process that is not forked any more may import it
THREADS = "it starts threads when it is imported"
_DRIVER = re.compile(r"(?:^|/)(lib(?:cuda|nvidia-ml|amdhip64|hsa-runtime64|rocm_smi64|amd_smi|dxcore)\.so[^/\s]*)")
_DEVICE = re.compile(r"(?:^|/)dev/(nvidia\w*|dxg|kfd|dri/\w+)")
_PROGRAM = re.compile(r"(?:^|/|\s)(nvidia-smi|rocm-smi|amd-smi)\b")
_VISIBLE = frozenset(
    {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "JUPYTER_GPU_IDS"}
)
_PLACE = frozenset({"RANK", "LOCAL_RANK", "GROUP_RANK", "NODE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR"})


class ImportWitness:
    """A context in which libraries are imported; :meth:`note_import` is called after each."""

    def __init__(self) -> None:
        #: name that was imported → what it asks for, in words
        self.unfit: dict[str, str] = {}
        #: names whose libraries ask for their rank's place
        self.ask_for_rank: list[str] = []
        self._asked: list[str] = []
        self._asks_for_place = False
        self._seen = _devices_now()
        self._threads = _threads_now()

    def __enter__(self) -> ImportWitness:
        load, run, read = ctypes._dlopen, subprocess.Popen._execute_child, os._Environ.__getitem__  # type: ignore[attr-defined]
        self._originals = load, run, read

        def load_library(name: Any, *more: Any) -> Any:
            self._note(_DRIVER, str(name))
            return load(name, *more)

        def run_program(popen: Any, arguments: Any, *more: Any) -> Any:
            self._note(_PROGRAM, arguments if isinstance(arguments, str) else " ".join(map(str, arguments)))
            return run(popen, arguments, *more)

        def read_variable(variables: Any, name: Any) -> Any:
            if sys._getframe(1).f_code is not _COPY:
                self._asked += [name] if name in _VISIBLE else []
                self._asks_for_place |= name in _PLACE
            return read(variables, name)

        self._set(load_library, run_program, read_variable)
        return self

    def __exit__(self, *_: object) -> None:
        self._set(*self._originals)

    def _set(self, load: Any, run: Any, read: Any) -> None:
        ctypes._dlopen = load  # type: ignore[attr-defined]
        subprocess.Popen._execute_child = run  # type: ignore[attr-defined]
        os._Environ.__getitem__ = read  # type: ignore[method-assign]

    def _note(self, what: re.Pattern[str], text: str) -> None:
        if (found := what.search(text)) is not None:
            self._asked.append(found[1])

    def note_import(self, name: str) -> None:
        """Blame this one for all that was asked for since the last call."""
        devices, threads = _devices_now(), _threads_now()
        if threads > self._threads:
            threads = _threads_after_a_fork()
        asked = dict.fromkeys([*self._asked, *sorted(devices - self._seen)])
        if asked:
            self.unfit[name] = f"it asks for a GPU when it is imported ({', '.join(asked)})"
        elif threads > self._threads:
            self.unfit[name] = THREADS
        if self._asks_for_place:
            self.ask_for_rank.append(name)
        self._asked, self._asks_for_place, self._seen, self._threads = [], False, devices, threads


_COPY = os._Environ.copy.__code__


def _devices_now() -> set[str]:
    """Drivers that are mapped, and devices that are mapped or open."""
    texts = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            texts.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        except OSError:  # the listing's own
            continue
    return {found[1] for text in texts for what in (_DRIVER, _DEVICE) if (found := what.search(text)) is not None}


def _threads_now() -> int:
    return len(os.listdir("/proc/self/task"))


def _threads_after_a_fork() -> int:
    """Count threads once those are ended whose library minds forks."""
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    return _threads_now()
