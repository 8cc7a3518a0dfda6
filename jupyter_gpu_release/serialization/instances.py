"""Objects of the notebook's classes whose own methods would run before the object is whole.

Pickle puts an object into a set before its attributes are there (``__hash__``), asks it for ``__setstate__`` (by its
``__getattr__``), and gives its ``__new__`` and ``__init__`` what only the base class expects.
"""

from __future__ import annotations

import array
import copyreg
import datetime
import inspect
import types
from collections.abc import Iterable
from typing import Any

from .. import streams
from ..adapters.adapter import Reducer

#: a class with one of these says itself how it is pickled
_OWN_WAYS = ("__reduce__", "__reduce_ex__", "__getnewargs__", "__getnewargs_ex__", "__setstate__", "__getstate__")
_EARLY = ("__hash__", "__eq__", "__getattr__", "__getattribute__", "__setattr__", "__new__")
#: ways of classes of Python that give what only their own ``__new__`` understands
_AS_THE_BASE = (
    datetime.datetime.__reduce_ex__,
    datetime.time.__reduce_ex__,
    bytearray.__reduce_ex__,
    array.array.__reduce_ex__,
)
_PLAIN = (str, int, float, complex, bool, bytes, type(None))

#: attributes and slots
_State = tuple[dict[str, Any], dict[str, Any]]


def reducer_for(kind: type) -> Reducer | None:
    """The reducer for objects of a class of the notebook; None: pickle's way is right."""
    own = _of_notebook(kind)
    if not own or _has([base for base in own if not _is_named_tuple(base)], _OWN_WAYS):
        return None
    says = inspect.getattr_static(kind, "__reduce_ex__")
    if says is not vars(object)["__reduce_ex__"] and says not in _AS_THE_BASE:  # an enum's
        return None
    is_plain = inspect.getattr_static(kind, "__reduce__") is vars(object)["__reduce__"]
    if is_plain and _made_by(kind) is object:
        return _reduce_attributes if _has(own, _EARLY) else None
    return _reduce_of_base if _has(own, ("__new__",) if is_plain else ("__new__", "__init__")) else None


def _is_named_tuple(base: type) -> bool:
    return base.__bases__ == (tuple,) and "_fields" in vars(base)


def _of_notebook(kind: type) -> list[type]:
    return [base for base in kind.__mro__ if base.__module__ == "__main__"]


def _has(own: Iterable[type], names: Iterable[str]) -> bool:
    return any(type(vars(base).get(name)) in (types.FunctionType, staticmethod) for base in own for name in names)


def _made_by(kind: type) -> Any:
    """The class whose ``__new__`` an object is made with in the end (that of a named tuple passes on)."""
    own = _of_notebook(kind)
    python = (types.FunctionType, staticmethod)
    return next(base for base in kind.__mro__ if base not in own and type(vars(base).get("__new__")) not in python)


def _taught_by(kind: type) -> Any:
    """The library's class, written in Python, whose ``__reduce__`` gives arguments for its own ``__new__`` or
    ``__init__`` (``Fraction``).
    """
    own = _of_notebook(kind)
    definer = next(base for base in kind.__mro__ if base not in own and "__reduce__" in vars(base))
    return next(base for base in kind.__mro__ if base not in own and issubclass(base, definer))


def _state_of(state: Any) -> _State:
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    return attributes or {}, slots or {}


def _reduce_attributes(_pickler: Any, thing: Any) -> Any:
    """Attributes that are plain values are there before anybody can ask for a hash."""
    attributes, slots = _state_of(object.__getstate__(thing))
    early, late = _split(attributes)
    early_slots, late_slots = _split(slots)
    order = list(attributes) if early and late else []
    arguments = type(thing), object, (), False, early, early_slots
    return make_instance, arguments, (late, late_slots, order), None, None, set_instance


def _split(values: dict[str, Any]) -> _State:
    early = {name: value for name, value in values.items() if _is_plain(value)}
    return early, {name: value for name, value in values.items() if name not in early}


def _is_plain(value: Any) -> bool:
    return type(value) in _PLAIN or (type(value) in (tuple, frozenset) and all(map(_is_plain, value)))


def _reduce_of_base(_pickler: Any, thing: Any) -> Any:
    """As the base class says, but made by its ``__new__`` and ``__init__`` instead of the notebook's."""
    kind, base = type(thing), _made_by(type(thing))
    reduced = thing.__reduce_ex__(5)
    if not isinstance(reduced, tuple):
        return NotImplemented
    maker, arguments, state, *rest = (*reduced, None, None, None)[:5]
    if maker is copyreg.__newobj__:  # type: ignore[attr-defined]
        given, begins = (tuple(thing),) if issubclass(base, tuple) else arguments[1:], False
    elif maker is kind:
        base = _taught_by(kind) if base.__new__ is object.__new__ else base
        given, begins = arguments, base.__init__ is not object.__init__
    else:
        return reduced
    if state is None:  # a defaultdict says nothing of them
        state = getattr(thing, "__dict__", None) or None
    return make_instance, (kind, base, given, begins, {}, {}), state, *rest


@streams.named
def make_instance(
    kind: type, base: Any, arguments: tuple[Any, ...], begins: bool, early: dict[str, Any], slots: dict[str, Any]
) -> Any:
    """An object of which its own class knows nothing yet."""
    made = base.__new__(kind, *arguments)
    if begins:
        base.__init__(made, *arguments)
    set_instance(made, (early, slots, []))
    return made


@streams.named
def set_instance(thing: Any, state: tuple[dict[str, Any], dict[str, Any], list[str]]) -> None:
    """Set attributes and slots, whatever the class does when one is set; ``order``: of all attributes."""
    attributes, slots, order = state
    if attributes:
        own = object.__getattribute__(thing, "__dict__")
        own.update(attributes)
        values = {name: own[name] for name in order if name in own}
        if values:
            own.clear()
            own.update(values)
    for name, value in slots.items():
        object.__setattr__(thing, name, value)
