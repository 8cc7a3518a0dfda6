"""Modules beside the notebook that only cells on the cluster have imported, with what those cells set in them.

What was set goes along with further cells, and comes into the module when this process imports it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from ..serialization.process_state.import_watch import ImportWatch
from ..serialization.process_state.local_modules import place_of


class AwayModules:
    """``version``: what files a top-level module consists of now. One that was edited is as its file says."""

    def __init__(self, version: Callable[[str], object]) -> None:
        self._version = version
        #: in the order of their imports
        self._versions: dict[str, object] = {}
        self._state: dict[str, Any] = {}
        self._deleted: set[str] = set()
        self._watch = ImportWatch(self._versions.__contains__, self._come_home)

    def note_modules(self, imported: Iterable[str], state: Mapping[str, Any], deleted: Iterable[str]) -> None:
        """A cell has imported these, and set that in them or in earlier ones."""
        self._state |= state
        self._deleted |= set(deleted)
        self._deleted -= state.keys()
        for name in self._deleted:
            self._state.pop(name, None)
        if not (self._state or self._deleted):
            self._watch.end()
            self._versions.clear()
            return
        version = self._looked_up()
        for module in imported:
            if module not in sys.modules:
                self._versions[module] = version(module)
        self._watch.begin()

    def among(self, tops: Collection[str]) -> tuple[list[str], dict[str, Any], list[str]]:
        """Modules of these packages to import there first, what was set in them, and what was deleted there."""
        self._forget()
        modules = [module for module in self._versions if _top(module) in tops]
        state = {name: value for name, value in self._state.items() if place_of(name)[0] in modules}
        return modules, state, sorted(name for name in self._deleted if place_of(name)[0] in modules)

    def _looked_up(self) -> Callable[[str], object]:
        """The version of a module now; the files of each package are looked at once."""
        of_top = functools.cache(self._version)
        return lambda module: of_top(_top(module))

    def _forget(self) -> None:
        """Forget what has been imported here meanwhile, or was edited."""
        now = self._looked_up()
        gone = [module for module, version in self._versions.items() if module in sys.modules or version != now(module)]
        for module in gone:
            del self._versions[module]
        self._state = {name: value for name, value in self._state.items() if place_of(name)[0] in self._versions}
        self._deleted = {name for name in self._deleted if place_of(name)[0] in self._versions}

    def _come_home(self, imported: list[str]) -> None:
        """Import all of them, since importing one may change another, then set what the cells have set."""
        self._watch.end()
        now = self._looked_up()
        known = {module: version for module, version in self._versions.items() if version == now(module)}
        state, deleted = self._state, self._deleted
        self._state, self._deleted = {}, set()
        self._versions.clear()
        for module in known.keys() - set(imported):
            with contextlib.suppress(Exception):  # the user's own code; whoever needs it sees the error
                importlib.import_module(module)
        for name, value in state.items():
            module, attribute = place_of(name)
            if module in known and module in sys.modules:
                setattr(sys.modules[module], attribute, value)
        for module, attribute in map(place_of, deleted):
            if module in known and module in sys.modules:
                vars(sys.modules[module]).pop(attribute, None)


def _top(module: str) -> str:
    return module.partition(".")[0]
