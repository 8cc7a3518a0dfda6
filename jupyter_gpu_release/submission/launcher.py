"""Launcher: the program that runs a notebook where no Jupyter server does (papermill, nbclient, a terminal)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

#: words in the launcher's command line, and what a run of its is said to be of
_PROGRAMS = {
    "papermill": "papermill",
    "ploomber": "ploomber",
    "nbconvert": "nbconvert",
    "jupyter-nbconvert": "nbconvert",
    "jupyter-execute": "nbclient",
    "nbclient": "nbclient",
    "nbmake": "nbmake",
    "nbval": "nbval",
    "jupyter-console": "terminal",
    "qtconsole": "qtconsole",
    "spyder": "Spyder",
}

#: programs of these at which somebody types
CONSOLES = ("terminal", "qtconsole", "Spyder")


@dataclass(frozen=True)
class Launcher:
    """``program``: as people call it; ``notebook``: the file that its command line names, if any."""

    program: str = ""
    notebook: str = ""


def find_launcher(parent: int | None = None) -> Launcher:
    """The program that started this kernel, by its command line; nbclient where that says nothing (a script's own)."""
    process = Path("/proc", str(os.getppid() if parent is None else parent))
    try:
        words = [os.fsdecode(word) for word in (process / "cmdline").read_bytes().split(b"\0")]
        folder = os.readlink(process / "cwd")
    except OSError:  # it has ended, or is another user's
        return Launcher("nbclient")
    return launcher_of(words, folder)


def launcher_of(words: Sequence[str], folder: str) -> Launcher:
    """The same from a command line and the folder in which it was typed."""
    notebook = next((os.path.join(folder, word) for word in words if word.endswith(".ipynb")), "")
    for word in words:
        name = os.path.basename(word)
        if name in ("execute", "console") and any(os.path.basename(each) == "jupyter" for each in words):
            return Launcher("nbclient" if name == "execute" else "terminal", notebook)
        found = next((known for part, known in _PROGRAMS.items() if name == part or name.startswith(f"{part}.")), "")
        if found:
            return Launcher(found, notebook)
    return Launcher("nbclient", notebook)
