"""The location of a cell: its notebook, its number, its line in what the user typed, its folder, its front end."""

from __future__ import annotations

import functools
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from ..host.environment import FRONT_END
from ..protocol.cell import FrontEnd
from .launcher import CONSOLES, Launcher, find_launcher


@dataclass(frozen=True)
class CellLocation:
    """Facts about the cell that is being run. ``line_offset``: lines of the cell above the body."""

    notebook: str = ""
    cell: str = ""
    kernel: str = ""
    count: int = 0
    line_offset: int = 1
    #: id of the message that runs the cell
    request: str = ""
    #: the program that runs the cell where no front end does: papermill, nbclient, script, terminal …
    program: str = ""


@dataclass(frozen=True)
class Workdir:
    """The folder in which the cell shall run, and what the kernel sees there (for nodes to compare)."""

    path: str = ""
    stamp: tuple[int, int] = (0, 0)
    asked: bool = False
    #: the kernel's own folder was deleted: relative paths mean nothing here
    deleted: bool = False


def locate(shell: Any, body: str, *, is_cell: bool) -> CellLocation:
    """Find out where the code being run comes from; works in kernels and in a plain IPython."""
    parent = _parent(shell)
    raw = _raw_input(shell)
    notebook, program = find_notebook(shell.user_ns), ""
    if not notebook:
        launcher = _launcher() if getattr(shell, "kernel", None) is not None else Launcher("terminal")
        notebook, program = launcher.notebook, launcher.program
    return CellLocation(
        notebook=notebook,
        program=program,
        cell=str(parent.get("metadata", {}).get("cellId") or ""),
        kernel=find_kernel(getattr(getattr(shell, "kernel", None), "config", {})),
        count=_number(shell),
        line_offset=_lines_above(raw, body, is_cell=is_cell),
        request=str(parent.get("header", {}).get("msg_id") or ""),
    )


@functools.cache
def _launcher() -> Launcher:
    """A kernel's launcher does not change."""
    return find_launcher()


def find_notebook(names: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> str:
    """The notebook's path as the client tells it (Jupyter server, VS Code), or ``""``."""
    code_editor = names.get("__vsc_ipynb_file__")
    if isinstance(code_editor, str) and code_editor:
        return code_editor
    return (os.environ if environment is None else environment).get("JPY_SESSION_NAME", "")


def shows_late_output(shell: Any) -> bool:
    """Tell if what a cell says after it has returned is shown in it.

    Jupyter's servers keep it, whatever page is open. VS Code and programs that execute notebooks drop it.
    """
    if getattr(shell, "kernel", None) is None:
        return True
    return "__vsc_ipynb_file__" not in shell.user_ns and bool(find_notebook(shell.user_ns) or _is_console())


def _is_console() -> bool:
    return _launcher().program in CONSOLES


def find_kernel(config: Mapping[str, Any], environment: Mapping[str, str] | None = None) -> str:
    """Jupyter's id of this kernel, or ``""``: told by the server extension, else from its connection file."""
    told = (os.environ if environment is None else environment).get("JUPYTER_GPU_KERNEL", "")
    if told:
        return told
    name = Path(str(config.get("IPKernelApp", {}).get("connection_file") or "")).stem
    return name.removeprefix("kernel-") if name.startswith("kernel-") else ""


def find_workdir(asked: str | None) -> Workdir:
    """The kernel's own folder (``%cd`` counts), or the one that ``--workdir`` names."""
    path = Path(asked or ".").expanduser()
    try:
        path = path if path.is_absolute() else Path.cwd() / path
    except FileNotFoundError:
        return Workdir(deleted=True)
    try:
        found = path.stat()
    except OSError:
        return Workdir(str(path) if asked else "", asked=asked is not None)
    return Workdir(str(path), (found.st_ino, found.st_mtime_ns), asked is not None)


def _parent(shell: Any) -> dict[str, Any]:
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return {}
    parent: dict[str, Any] = kernel.get_parent() or {}
    return parent


def _number(shell: Any) -> int:
    """The number of the cell being run, as its tracebacks give it (``execution_count`` may be the next one's)."""
    known: Mapping[str, int] = getattr(shell.compile, "_filename_map", {})
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename in known:
            return known[frame.f_code.co_filename]
        frame = frame.f_back
    return int(shell.execution_count)


def _raw_input(shell: Any) -> str:
    sent = _parent(shell).get("content", {}).get("code")
    inputs = getattr(getattr(shell, "history_manager", None), "input_hist_raw", None) or [""]
    return str(sent or inputs[-1])


def transformed_by_user(shell: Any, body: str, place: CellLocation) -> str:
    """A cell's body as the user's ``input_transformers_post`` make it.

    They had the line in which IPython gives the body to its magic: what they changed in it is so already.
    """
    own = getattr(shell, "input_transformers_post", None)
    if not own or _raw_input(shell).split("\n", place.line_offset)[-1].strip() != body.strip():
        return body
    lines = body.splitlines(keepends=True)
    for transform in own:
        lines = transform(lines)
    return "".join(lines)


def _lines_above(raw: str, body: str, *, is_cell: bool) -> int:
    """A cell's body begins below our magic's line, which other magics or blank lines may precede."""
    if is_cell:
        for number, line in enumerate(raw.split("\n"), start=1):
            if line.lstrip().startswith("%%gpu_"):
                return number
        return 1
    first = body.split("\n", 1)[0]
    for number, line in enumerate(raw.split("\n")):
        if first and first in line:
            return number
    return 0


def find_front_end(request: str = "") -> FrontEnd:
    """``request``: id of the message that runs the cell, where there is one."""
    environment = {name: os.environ[name] for name in FRONT_END if name in os.environ}
    size = shutil.get_terminal_size((0, 0))
    if size.columns and size.lines:  # of a terminal that the other process does not have
        environment |= {"COLUMNS": str(size.columns), "LINES": str(size.lines)}
    return FrontEnd(request, _is_terminal(), environment, list(FRONT_END))


def _is_terminal() -> bool:
    try:
        return bool(sys.stdout.isatty())
    except (AttributeError, ValueError, OSError):  # none, closed, or the user's own
        return False
