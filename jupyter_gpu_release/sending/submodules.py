"""Submodules that are used through their package (``concurrent.futures`` after ``import concurrent``)."""

from __future__ import annotations

import dis
import sys
import types
from collections.abc import Iterable

_IMPORT_NAME = dis.opmap["IMPORT_NAME"]
_EXTENDED_ARG = dis.EXTENDED_ARG


def loaded_submodules(modules: dict[str, str], chains: Iterable[str], codes: Iterable[types.CodeType]) -> list[str]:
    """Submodules, loaded here, that the cell's attribute chains or its functions may mean.

    ``modules``: name in the notebook → name of the module it holds.
    """
    if not modules:
        return []
    found: dict[str, None] = {}
    for chain in chains:
        root, _, rest = chain.partition(".")
        if root in modules:
            _descend(modules[root], rest.split("."), found)
    tokens = {token for code in codes for token in _names_in(code)}
    for module in set(modules.values()) if tokens else ():
        _among(module, tokens, found)
    return list(found)


def _descend(module: str, parts: list[str], found: dict[str, None]) -> None:
    for part in parts:
        module = f"{module}.{part}"
        if not isinstance(sys.modules.get(module), types.ModuleType):
            return
        found[module] = None


def _among(module: str, tokens: set[str], found: dict[str, None]) -> None:
    for token in tokens:
        name = f"{module}.{token}"
        if name not in found and isinstance(sys.modules.get(name), types.ModuleType):
            found[name] = None
            _among(name, tokens, found)


def _names_in(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names_in(constant)
    return names


def imported_in(codes: Iterable[types.CodeType]) -> set[str]:
    """Modules that these functions import when they run."""
    found: set[str] = set()
    for code in codes:
        raw, extended = code.co_code, 0
        for at in range(0, len(raw), 2):
            argument = raw[at + 1] | extended << 8
            extended = argument if raw[at] == _EXTENDED_ARG else 0
            if raw[at] == _IMPORT_NAME:
                found.add(code.co_names[argument])
        found |= imported_in(constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return found
