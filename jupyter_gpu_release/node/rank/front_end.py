"""Answers for libraries that ask where their output is shown: the notebook's front end, not this process.

pandas, rich, tqdm, jax, transformers and ipywidgets look at the shell's class, its ``kernel``, its configuration, the
environment and ``sys.stdout.isatty()``; some of them once, while they are imported.
"""

from __future__ import annotations

import contextlib
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from traitlets.config import Config

from ...protocol.cell import CellPayload, FrontEnd

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

_MODULE = "ipykernel.zmqshell"
_APPLICATION = "IPKernelApp"


class RankKernel:
    """Stands where a notebook's shell has its kernel."""

    def __init__(self, shell: InteractiveShell) -> None:
        self.shell = shell
        #: id of the notebook's request that runs the cell: output widgets collect what belongs to it
        self.request = ""

    def get_parent(self, channel: str | None = None) -> dict[str, Any]:
        """The request that the notebook's kernel carries out now."""
        header = {"msg_id": self.request, "msg_type": "execute_request"}
        return {"header": header, "msg_id": self.request} if self.request else {}

    @property
    def comm_manager(self) -> Any:
        """Keeps the widgets of this process."""
        import comm

        return comm.get_comm_manager()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"get_ipython().kernel.{name} is not there in a GPU cell: the notebook's kernel is another process"
        )


def look_like_a_notebook(shell: InteractiveShell) -> None:
    """Pretend to be a notebook, before any library is imported: most cells come from one."""
    cls = type(shell)
    cls.__name__ = cls.__qualname__ = "ZMQInteractiveShell"
    cls.__module__ = _MODULE
    module = ModuleType(_MODULE)
    vars(module)["ZMQInteractiveShell"] = cls
    sys.modules.setdefault(_MODULE, module)
    shell.config[_APPLICATION] = Config()
    shell.kernel = RankKernel(shell)


def _look_like_a_terminal(shell: InteractiveShell) -> None:
    cls = type(shell)
    cls.__name__ = cls.__qualname__ = "TerminalInteractiveShell"
    cls.__module__ = "IPython.terminal.interactiveshell"
    sys.modules.pop(_MODULE, None)
    shell.config.pop(_APPLICATION, None)
    shell.__dict__.pop("kernel", None)
    if "pandas" in sys.modules:  # it asked while it was imported
        with contextlib.suppress(Exception):  # another version's options
            sys.modules["pandas"].set_option("display.max_columns", 0)


def take_front_end(shell: InteractiveShell, payload: CellPayload) -> None:
    """Show what the cell's own front end shows; before the cell's ``--env``."""
    front = payload.front_end
    if payload.terminal:
        _look_like_a_terminal(shell)
    elif (kernel := getattr(shell, "kernel", None)) is not None:
        kernel.request = front.request
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):  # none of ours
            stream.is_terminal = front.is_terminal  # type: ignore[union-attr]
    _take_environment(front)


def _take_environment(front: FrontEnd) -> None:
    for name in front.asked:
        if name not in front.environment:
            os.environ.pop(name, None)
    os.environ.update(front.environment)
