"""Context variables, whose value is in the context of the cell.

One of the notebook or of a module beside it carries an id, so that it stays itself; one that a library has is found
there.
"""

from __future__ import annotations

import contextvars
import importlib
import sys
import types
import uuid
from typing import Any

from ... import streams
from ..users_code import is_file_of_the_user

#: variables of the notebook live as long as the process, as Python asks for
_BY_ID: dict[str, contextvars.ContextVar[Any]] = {}
_IDS: dict[contextvars.ContextVar[Any], str] = {}
#: variable → module and name there
_PLACES: dict[contextvars.ContextVar[Any], tuple[str, str]] = {}
_Values = tuple[Any, ...]


def reduce_variable(pickler: Any, variable: contextvars.ContextVar[Any]) -> Any:
    """The variable, its default and its value in this context."""
    place = _place_of(variable)
    value = contextvars.copy_context().get(variable, contextvars.Token.MISSING)
    state = () if value is contextvars.Token.MISSING else (value,)
    if place is not None:
        pickler.modules.add(place[0])
        return make_variable, ("", *place, ()), state or None, None, None, set_variable
    ident = _IDS.get(variable)
    if ident is None:
        ident = _note(uuid.uuid4().hex, variable)
    return make_variable, (ident, "", variable.name, _default_of(variable)), state or None, None, None, set_variable


def _note(ident: str, variable: contextvars.ContextVar[Any]) -> str:
    _IDS[variable], _BY_ID[ident] = ident, variable
    return ident


def _default_of(variable: contextvars.ContextVar[Any]) -> _Values:
    """Empty: it has none."""
    try:
        return (contextvars.Context().run(variable.get),)
    except LookupError:
        return ()


def _place_of(variable: contextvars.ContextVar[Any]) -> tuple[str, str] | None:
    """The library's module that has it, and its name there."""
    if variable in _PLACES or variable in _IDS:
        return _PLACES.get(variable)
    for module_name, module in list(sys.modules.items()):
        if type(module) is not types.ModuleType or getattr(module, "__spec__", None) is None:  # %reset takes it away
            continue
        if is_file_of_the_user(getattr(module, "__file__", None) or "<frozen"):
            continue
        for name, value in list(vars(module).items()):
            if value is variable:
                return _PLACES.setdefault(variable, (module_name, name))
    return None


@streams.named
def make_variable(ident: str, module: str, name: str, default: _Values) -> contextvars.ContextVar[Any]:
    """The variable that a module has or that has this id here, or a new one."""
    if module:
        found: contextvars.ContextVar[Any] = getattr(importlib.import_module(module), name)
        return found
    if ident not in _BY_ID:
        made = contextvars.ContextVar[Any](name, default=default[0]) if default else contextvars.ContextVar[Any](name)
        _note(ident, made)
    return _BY_ID[ident]


@streams.named
def set_variable(variable: contextvars.ContextVar[Any], state: _Values) -> None:
    """Set its value in this context."""
    variable.set(state[0])
