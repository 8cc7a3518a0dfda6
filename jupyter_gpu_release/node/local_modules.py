"""State of the notebook's own modules in a rank: set before the cell, looked at after it."""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections.abc import Mapping
from typing import Any

from ..storage.module_state import MOST_BYTES, place_of, put, state_of
from ..storage.pickler import digest
from ..storage.rebuild import Realm


class ModulesOfNotebook:
    """Those of them that lie beside the notebook, or on folders that it added."""

    def __init__(self) -> None:
        self._modules: list[str] = []

    def begin(self, names: list[str], state: Mapping[str, Any], others: Mapping[str, Any], realm: Realm) -> list[str]:
        """Import ``names``, which gives the state to compare with, and set what the notebook set; returns notes.

        ``others``: what the cell's names hold.
        """
        notes = []
        for name in names:
            try:
                importlib.import_module(name)
            except Exception as error:  # noqa: BLE001 - the user's own code
                notes.append(f"module {name} could not be imported on the node: {type(error).__name__}: {error}")
        self._modules = [name for name in names if name in sys.modules]
        for name in {place_of(name)[0] for name in state} - set(names):  # libraries in which the notebook set something
            with contextlib.suppress(ImportError):  # the cell says so, if it needs it
                importlib.import_module(name)
        here = {name: value for name, value in state.items() if place_of(name)[0] in sys.modules}
        put(here, known=map(id, others.values()), is_same=functools.partial(_is_same, realm))
        return notes

    def state(self) -> dict[str, Any]:
        """What is in them now, by the names under which it travels."""
        return state_of([name for name in self._modules if name in sys.modules])

    @staticmethod
    def is_small(value: Any) -> bool:
        """Whether changes in it are looked for."""
        is_array = type(value).__module__.partition(".")[0] in ("numpy", "torch")
        return not is_array or getattr(value, "nbytes", 0) <= MOST_BYTES


def _is_same(realm: Realm, old: Any, new: Any) -> bool:
    """Whether what the module's import made is what the notebook has: a sentinel always is, it cannot be set."""
    if old is new or type(old) is type(new) is object:
        return True
    if type(old) is not type(new):
        return False
    looks = digest(old, realm)
    return looks is not None and looks == digest(new, realm)
