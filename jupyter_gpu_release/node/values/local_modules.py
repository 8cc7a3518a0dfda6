"""State of the notebook's own modules in a rank: set before the cell, looked at after it."""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
import types
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ...adapters.registry import size_of
from ...adapters.stdlib import cached_functions
from ...serialization.pickler import value_digest
from ...serialization.process_state.local_modules import (
    MOST_BYTES,
    ImportWatch,
    delete_attribute,
    extensions_of_libraries,
    is_attribute_name,
    is_deleted,
    set_attribute,
    set_attributes_of,
    split_attribute_name,
    state_of,
    words_for,
)
from ...serialization.rebuild import NamespaceInfo
from .changes import NameSnapshot

_RELOADED = "loaded again in this cell only: if the notebook needs it, reload it in a plain cell, too"


class ModulesOfNotebook:
    """Modules that lie beside the notebook, or on folders that it added."""

    def __init__(self) -> None:
        self._modules: list[str] = []
        #: names of what was in them
        self._seen: dict[str, None] = {}
        self._tops: frozenset[str] = frozenset()
        self._edited: frozenset[str] = frozenset()
        #: module that the cell itself has imported → what was in it right after that
        self._imported: dict[str, dict[str, _ModuleState]] = {}
        self._extensions: dict[str, Any] = {}
        #: modules of the notebook's that the cell has loaded again
        self._reloaded: dict[str, None] = {}
        self._watch = ImportWatch(self._is_imported_by_cell, self._look, reloads=self._note_reload)

    def set_state(
        self, facts: Mapping[str, Any], state: Mapping[str, Any], others: Mapping[str, Any], realm: NamespaceInfo
    ) -> list[str]:
        """Import ``local`` of the facts, which gives the state to compare with, delete ``without``, and set what the
        notebook set; returns notes. Modules below ``tops`` are looked at when the cell imports them, but for ``edited``
        ones.

        ``others``: what the cell's names hold.
        """
        notes, names = [], facts.get("local", [])
        self._realm = realm
        self._tops, self._edited = frozenset(facts.get("tops", ())), frozenset(facts.get("edited", ()))
        for name in names:
            try:
                importlib.import_module(name)
            except Exception as error:  # noqa: BLE001 - the user's own code
                notes.append(f"module {name} could not be imported on the node: {type(error).__name__}: {error}")
        self._modules = [name for name in names if name in sys.modules]
        # libraries in which the notebook set something
        for name in {split_attribute_name(name)[0] for name in state} - set(names):
            with contextlib.suppress(ImportError):  # the cell says so, if it needs it
                importlib.import_module(name)
        for name in facts.get("without", ()):
            delete_attribute(name)
        here = {name: value for name, value in state.items() if split_attribute_name(name)[0] in sys.modules}
        known = [*others.values(), *_remembered(here.values())]
        failed = set_attributes_of(here, known=map(id, known), is_same=functools.partial(_is_same, realm))
        notes += [
            f"`{words_for(name)}` was set in the notebook and is not so in the cell: {type(error).__name__}: {error}"
            for name, error in failed.items()
        ]
        self._extensions = self._look_at_extensions()
        if self._tops:
            self._watch.start_watching()
        return notes

    def set_saved(self, namespace: dict[str, Any], state: Mapping[str, Any], deleted: Iterable[str]) -> None:
        """Set what an earlier attempt of the cell had set in modules; ``namespace`` has the objects to set."""
        for name in state:
            importlib.import_module(split_attribute_name(name)[0])
            set_attribute(name, namespace.pop(name, state[name]))
        for name in filter(is_attribute_name, deleted):
            delete_attribute(name)

    def end(self) -> list[str]:
        """The cell is over; returns notes."""
        self._watch.stop_watching()
        reloaded, self._reloaded = ", ".join(f"`{name}`" for name in self._reloaded), {}
        return [f"{reloaded}: {_RELOADED}"] if reloaded else []

    def _note_reload(self, name: str) -> None:
        if name.partition(".")[0] in self._tops:
            self._reloaded[name] = None

    @property
    def imported(self) -> list[str]:
        """Modules that the cell itself has imported."""
        return list(self._imported)

    def set_by_cell(self) -> tuple[dict[str, Any], list[str]]:
        """Attributes that the cell has set in those modules, and names of the ones that it has deleted.

        With what it has put into classes of libraries by a call.
        """
        before = {name: look for looks in self._imported.values() for name, look in looks.items()}
        now = state_of([name for name in self._imported if name in sys.modules], before)
        changed = {name: value for name, value in now.items() if not _looks_like(before.get(name), value, self._realm)}
        for name, (value, digest) in self._look_at_extensions().items():
            was, before_digest = self._extensions.get(name, (None, None))
            if was != value or digest != before_digest:
                changed[name] = value
        return changed, list(filter(is_deleted, before))

    def _look_at_extensions(self) -> dict[str, tuple[Any, bytes | None]]:
        """With a digest of what a function remembers, by its defaults and the variables around it."""
        return {
            name: (value, value_digest(value, self._realm) if isinstance(value, types.FunctionType) else None)
            for name, value in extensions_of_libraries().items()
        }

    def _is_imported_by_cell(self, name: str) -> bool:
        return name.partition(".")[0] in self._tops and name not in self._edited and name not in self._modules

    def _look(self, names: list[str]) -> None:
        for name in names:
            if type(sys.modules.get(name)) is types.ModuleType:
                self._imported[name] = {
                    place: _look_at(value, self._realm) for place, value in state_of([name]).items()
                }

    def state(self) -> dict[str, Any]:
        """Contents of the modules now, by the names under which they travel."""
        found = state_of([name for name in self._modules if name in sys.modules], self._seen)
        self._seen |= dict.fromkeys(found)
        return found

    @staticmethod
    def is_small(value: Any) -> bool:
        """Tell if changes in it are looked for."""
        return (size_of(value) or 0) <= MOST_BYTES


def _is_same(realm: NamespaceInfo, old: Any, new: Any) -> bool:
    """Tell if what the module's import made is what the notebook has: a sentinel always is, it cannot be set."""
    if old is new or type(old) is type(new) is object:
        return True
    if type(old) is not type(new):
        return False
    looks = value_digest(old, realm)
    return looks is not None and looks == value_digest(new, realm)


def _remembered(values: Iterable[Any]) -> list[Any]:
    """Arguments that cached functions among them know, by which they would not know copies."""
    cached = [value for value in values if type(value) is functools._lru_cache_wrapper and value.cache_info().currsize]
    return [part for each in cached for entry in cached_functions.entries_of(each) or () for part in entry.args]


class _ModuleState(NamedTuple):
    """Record of what an attribute held, and what that looked like."""

    held: NameSnapshot
    digest: bytes | None


def _look_at(value: Any, realm: NamespaceInfo) -> _ModuleState:
    return _ModuleState(NameSnapshot(value), _digest(value, realm))


def _digest(value: Any, realm: NamespaceInfo) -> bytes | None:
    is_definition = isinstance(value, type | types.FunctionType | types.BuiltinFunctionType)
    return None if is_definition else value_digest(value, realm, most_bytes=MOST_BYTES)


def _looks_like(before: _ModuleState | None, value: Any, realm: NamespaceInfo) -> bool:
    """Tell if a value is what it was; of one that cannot be pickled, or is large, whether it is the same object."""
    if before is None:
        return False
    now = _digest(value, realm)
    return now == before.digest if now and before.digest else before.held.holds(value)
