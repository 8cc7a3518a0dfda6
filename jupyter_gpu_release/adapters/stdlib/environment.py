"""Environment of a process: its variables at the start and since, its working folder, its handlers of signals."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...host.environment import SET_BY_IMPORTS, OwnVariables, may_travel, own_variables, stays_here
from ...streams import named
from ..adapter import Staying

_VARIABLE = "variable "


def _at_start() -> dict[str, str]:
    try:
        entries = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:  # not on Linux
        return dict(os.environ)
    pairs = [os.fsdecode(entry).partition("=") for entry in entries if b"=" in entry]
    return {name: value for name, _, value in pairs}


_INITIAL = _at_start()


def set_since_start(*, but: Collection[str] = frozenset()) -> OwnVariables:
    """Variables that this process has set itself, except those in ``but``."""
    return own_variables(os.environ, _INITIAL, but=but)


def is_set_since_start(name: str) -> bool:
    """Tell if this process has set, changed or deleted a variable."""
    return os.environ.get(name) != _INITIAL.get(name)


def initial(_module: Any) -> dict[str, Any]:
    """The variables that it began with and that may travel, as :func:`read` has them."""
    return {f"{_VARIABLE}{name}": value for name, value in _INITIAL.items() if may_travel(name)}


def read(_module: Any) -> dict[str, Any]:
    """The variables as they are now."""
    return {
        f"{_VARIABLE}{name}": Staying(value) if stays_here(name, value) else value
        for name, value in os.environ.items()
        if may_travel(name)
    }


def write(_module: Any, name: str, value: str | None) -> None:
    """Set one of them; None deletes it."""
    variable = name.removeprefix(_VARIABLE)
    if value is None:
        os.environ.pop(variable, None)
    elif may_travel(variable):
        os.environ[variable] = value


def may_change_results(name: str) -> bool:
    """Tell if a variable can change what a cell computes."""
    return name.removeprefix(_VARIABLE) not in SET_BY_IMPORTS


@named
@dataclass(frozen=True)
class WorkingFolder:
    """A folder of a process, which the notebook's kernel follows where a cell changes it.

    ``inode`` tells whether another machine sees the same one there, or just one of the same path."""

    path: str
    inode: int

    @classmethod
    def current(cls) -> WorkingFolder:
        """The folder of this process; without a path if it was deleted."""
        try:
            return cls(os.getcwd(), os.stat(".").st_ino)
        except OSError:
            return cls("", 0)

    def change_to(self) -> bool:
        """Make it this process' folder; False: it is not to be had here."""
        try:
            if os.stat(self.path).st_ino != self.inode:
                return False
            os.chdir(self.path)
        except OSError:
            return False
        return True

    def is_in(self, folder: str) -> bool:
        """Tell if it is ``folder`` or below it."""
        return bool(folder) and f"{self.path}/".startswith(f"{os.path.realpath(folder)}/")

    def say_not_followed(self, why: str) -> str:
        """A sentence for the receipt."""
        return f"the notebook stays in its folder, the cell went to `{self.path}`: {why}"


@named
@dataclass(frozen=True)
class PathPlace:
    """Place of an entry of ``sys.path``. All are equal: an entry is not another one because a new one is beside it."""

    before: str | None = field(compare=False)
    is_last: bool = field(compare=False)


# handlers of signals, which code sets in its own process and in no other
#: a kernel sets the handler of interrupts anew for each cell
_SIGNALS = {*signal.Signals} - {signal.SIGINT}
Handler = tuple[signal.Signals, Any]


class SignalHandlers:
    """Each handler that the notebook's code has set is said once."""

    def __init__(self) -> None:
        self._known: list[Handler] = []

    @contextlib.contextmanager
    def everywhere(self) -> Iterator[None]:
        """Never say what is set meanwhile: all processes set it."""
        before = _handlers()
        yield
        self._known += [each for each in _handlers() if each not in before]

    def notes(self, where: str) -> list[str]:
        """Sentences for the receipt on new ones, which say ``where`` they are not."""
        new = [each for each in _handlers() if each not in self._known]
        self._known += new
        return [f"handler of {', '.join(sorted(number.name for number, _ in new))}: {where}"] if new else []


def _handlers() -> list[Handler]:
    handlers = [(number, signal.getsignal(number)) for number in _SIGNALS]
    return [each for each in handlers if getattr(each[1], "__module__", "") == "__main__"]
