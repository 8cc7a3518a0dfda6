"""A line below a cell that lacks our magic: it asked this kernel for a GPU, or is one of a sweep."""

from __future__ import annotations

import re
import sys
from typing import Any

from ..analysis.cell_facts import EXIT_CODE

_OURS = re.compile(r"\s*%%gpu_")
#: exit status of a shell
_NOT_FOUND = 127
_TOOL = re.compile(r"^\s*!\s*nvidia-smi\b", re.MULTILINE)
_OF_CELL = "This kernel has no GPU: with `%%gpu_train` as its first line the cell runs on one of the cluster's."
_OF_SEARCH = "`name = search(…)` is for cells that begin with `%%gpu_sweep`."
_OF_TOOL = "This kernel has no GPU: `%gpu_status` shows those of the cluster, and who holds them."


class NoGpuHere:
    """Looks at each cell that ended; costs nothing unless it failed or called ``nvidia-smi``."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        shell.events.register("post_run_cell", self._after)

    def end(self) -> None:
        """Take part no more."""
        self._shell.events.unregister("post_run_cell", self._after)

    def _after(self, result: Any) -> None:
        cell = getattr(getattr(result, "info", None), "raw_cell", None) or ""
        if "search(" in cell and _is_search(result.error_in_exec):
            sys.stderr.write(f"{_OF_SEARCH}\n")
        if _OURS.match(cell):
            return
        if _TOOL.search(cell) and self._shell.user_ns.get(EXIT_CODE) == _NOT_FOUND:
            sys.stderr.write(f"{_OF_TOOL}\n")
        elif result.error_in_exec is not None and _says_so(result.error_in_exec):
            sys.stderr.write(f"{_OF_CELL}\n")


def _is_search(error: BaseException | None) -> bool:
    return isinstance(error, NameError) and error.args[:1] == ("name 'search' is not defined",)


def _says_so(error: BaseException) -> bool:
    """Tell if the error is a library's, for want of a GPU; nothing is imported before a cell fails."""
    from ..adapters.registry import loaded_adapters

    text = error.args[0] if error.args and type(error.args[0]) is str else ""  # its `__str__` may be the user's
    return any(adapter.lacks_gpu(text) for adapter in loaded_adapters() if adapter.can_use_gpu)
