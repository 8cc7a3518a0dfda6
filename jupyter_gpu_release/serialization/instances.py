"""Objects of the notebook's classes whose own methods would run before the object is whole.

Pickle puts an object into a set before its attributes are there (``__hash__``), asks it for ``__setstate__`` (by its
``__getattr__``), and gives its ``__new__`` and ``__init__`` what only the base class expects.
"""

from __future__ import annotations

import abc
import array
import contextlib
import copyreg
import datetime
import dis
import enum
import functools
import inspect
import itertools
import types
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from cloudpickle import cloudpickle

from .. import streams
from ..adapters.adapter import Reducer, receiving
from ..adapters.users_code import is_class_of_the_user, is_of_the_user
from .load_order import function_of
from .sharing.in_place import dict_of

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


def reducer_for(kind: type, of_library: Reducer | None) -> Reducer | None:
    """The reducer for objects of a class; None: pickle's way is right. ``of_library``: of an adapter."""
    found = of_library or _reducer_of_notebook(kind)
    if _is_made_from_what_says_itself(kind):
        return _reducer_with_own_attributes(kind, found, is_adapters=of_library is not None)
    return found or _reducer_with_attributes(kind)


def _reducer_of_notebook(kind: type) -> Reducer | None:
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


# -------------------------------------------------- attributes that a call to the class would not bring back
_REDUCERS = ("__reduce_ex__", "__reduce__")
_SAYS = {*_REDUCERS, "__getstate__"}
_ENDS = ("__del__", "__exit__", "close")
#: of classes whose slots are the user's
_METACLASSES = (type, abc.ABCMeta)


def _reducer_with_attributes(kind: type) -> Reducer | None:
    """A reducer for objects that are made by a call that somebody wrote, and may have more than it gives them."""
    way = cloudpickle.Pickler.dispatch_table.get(kind)
    says = way or any(inspect.getattr_static(kind, each) is not vars(object)[each] for each in _REDUCERS)
    if not says or issubclass(kind, enum.Enum | types.ModuleType):
        return None
    if not (kind.__dictoffset__ or copyreg._slotnames(kind)):  # type: ignore[attr-defined]
        return None
    if any(map(is_of_the_user, (way, *(getattr(kind, each) for each in _REDUCERS)))):
        return functools.partial(_reduce_with_attributes, _handles(kind))
    return functools.partial(_reduce_with_users_attributes, _names_in_library(kind))


def _reduce_with_attributes(handles: frozenset[str], pickler: Any, thing: Any) -> Any:
    """As its class of the user's says, and with its attributes, but for those that cannot travel."""
    reduced = _reduced(pickler, thing)
    if not _is_without_state(reduced):
        return reduced
    attributes, slots = _state_of(object.__getstate__(thing))
    left = [name for name, part in (attributes | slots).items() if _stays(pickler, part, is_handle=name in handles)]
    own, own_slots = _without(attributes, left), _without(slots, left)
    return _with_own(pickler, thing, reduced, own, own_slots, left, list(attributes | slots), is_all=True)


def _reduce_with_users_attributes(known: frozenset[str], pickler: Any, thing: Any) -> Any:
    """As its library says. What the library left out, it makes again; attributes that it does not know go along."""
    reduced = _reduced(pickler, thing)
    attributes = dict_of(thing)
    if not (attributes and _is_without_state(reduced)):
        return reduced
    own = {name: part for name, part in attributes.items() if not (name.startswith("_") or name in known)}
    left = [name for name, part in own.items() if _stays(pickler, part, is_handle=False)]
    return _with_own(pickler, thing, reduced, _without(own, left), {}, left, list(attributes)) if own else reduced


def _reduced(pickler: Any, thing: Any) -> Any:
    way = pickler.dispatch_table.get(type(thing))
    return thing.__reduce_ex__(5) if way is None else way(thing)


def _is_without_state(reduced: Any) -> bool:
    return isinstance(reduced, tuple) and (len(reduced) < 3 or reduced[2] is None)


def _with_own(
    pickler: Any,
    thing: Any,
    reduced: tuple[Any, ...],
    attributes: dict[str, Any],
    slots: dict[str, Any],
    left: list[str],
    order: list[str],
    *,
    is_all: bool = False,
) -> tuple[Any, ...]:
    """As ``reduced`` says, and then its own attributes; ``is_all``: it has no others than those in ``order``."""
    maker, arguments, given, *items, setter = (*reduced, None, None, None, None)[:6]
    which, lacks = pickler.realm.left_out.get(id(thing), (type(None), ()))
    left = [*left, *(name for name in lacks if which() is thing and name not in order)]
    own = _class_name(thing), attributes, slots, left, order, is_all
    return maker, arguments, (given, setter, own), *items, set_own


def _class_name(thing: Any) -> tuple[str, str]:
    """By its text: who is made by a call needs no module of his class."""
    return type(thing).__module__, type(thing).__qualname__


def _stays(pickler: Any, part: Any, *, is_handle: bool) -> bool:
    """Tell if the receiver's own constructor makes it."""
    return (is_handle and type(part) is int) or not (_is_plain(part) or pickler.can_write_by_itself(part))


def _without(values: dict[str, Any], left: list[str]) -> dict[str, Any]:
    return {name: part for name, part in values.items() if name not in left}


def _handles(kind: type) -> frozenset[str]:
    """Attributes that are handles of the process if they are numbers: a call gave them to a class that ends things."""
    if not any(hasattr(kind, name) for name in _ENDS):
        return frozenset()
    return frozenset(name for function in _functions(kind) for name in _set_by_calls(function.__code__))


def _set_by_calls(code: types.CodeType) -> Iterator[str]:
    """Names of ``self.name = call()``."""
    steps = list(dis.get_instructions(code))
    for before, step in zip(steps, steps[2:], strict=False):
        if step.opname == "STORE_ATTR" and before.opname.startswith("CALL"):
            yield step.argval


def _names_in_library(kind: type) -> frozenset[str]:
    """Names in the code that a library's class has."""
    codes = [function.__code__ for function in _functions(kind) if not is_of_the_user(function)]
    found: set[str] = set()
    for code in codes:
        found.update(code.co_names, (text for text in code.co_consts if type(text) is str))
        codes += [part for part in code.co_consts if isinstance(part, types.CodeType)]
    return frozenset(found)


def _functions(kind: type) -> Iterator[types.FunctionType]:
    for base in kind.__mro__:
        yield from _functions_of(base)


def _functions_of(kind: type) -> Iterator[types.FunctionType]:
    functions = map(function_of, vars(kind).values())
    return (function for function in functions if type(function) is types.FunctionType)


# ------------------------------------------- attributes of the notebook's classes that are made from a library's
def _is_made_from_what_says_itself(kind: type) -> bool:
    """Tell if a library says what travels of its objects: of attributes that a class of the notebook adds, it knows
    nothing.
    """
    if issubclass(kind, enum.Enum | types.ModuleType) or kind in cloudpickle.Pickler.dispatch_table:
        return False
    says = [base for base in kind.__mro__[:-1] if vars(base).keys() & _SAYS]
    return is_class_of_the_user(kind) and bool(says) and not any(map(is_class_of_the_user, says))


def _reducer_with_own_attributes(kind: type, found: Reducer | None, *, is_adapters: bool) -> Reducer:
    users = [base for base in kind.__mro__ if is_class_of_the_user(base)]
    librarys = [base for base in kind.__mro__ if base not in users]
    members = (member for base in users if type(base) in _METACLASSES for member in vars(base).items())
    slots = [name for name, member in members if inspect.ismemberdescriptor(member)]

    @functools.cache
    def is_set_in_library(name: str) -> bool:
        return _is_set(name, librarys)

    @functools.cache
    def is_set_by_user(name: str) -> bool:
        return _is_set(name, users)

    def reduce(pickler: Any, thing: Any) -> Any:
        reduced = NotImplemented if found is None else found(pickler, thing)
        if reduced is NotImplemented:
            reduced = _reduced(pickler, thing)
        elif is_adapters and _is_without_state(reduced):  # it makes the object in its own way
            return reduced
        had = dict_of(thing) or {}
        filled = {name: getattr(thing, name) for name in slots if hasattr(thing, name)}
        if not isinstance(reduced, tuple) or not (had or filled):
            return reduced
        arguments, state = (*reduced, None)[1:3]
        sent = _names_in(arguments) | _names_in(state if isinstance(state, tuple) else (state,))
        beside, left = {}, []
        for name, value in had.items():
            if name in sent:
                continue
            if is_set_in_library(name) or _is_librarys(kind, name, value):
                left.append(name)
            elif is_set_by_user(name) or not _stays(pickler, value, is_handle=False):
                beside[name] = value
            else:
                left.append(name)
                pickler.remarks_on_parts.append((thing, f"without its `{name}`"))
        return _with_own(pickler, thing, reduced, beside, filled, left, list(had))

    return reduce


def _names_in(parts: tuple[Any, ...]) -> set[str]:
    return {name for part in parts if type(part) is dict for name in part}


def _is_librarys(kind: type, name: str, value: Any) -> bool:
    """Tell if a library keeps what a property gave, or has replaced a method."""
    return hasattr(inspect.getattr_static(kind, name, None), "__get__") and not is_of_the_user(function_of(value))


def _is_set(name: str, classes: Iterable[type]) -> bool:
    """Tell if methods of classes set an attribute on their objects, or (a hidden one, in a library) name it."""
    for function in (each for kind in classes for each in _functions_of(kind)):
        names_it = name.startswith("_") and not is_of_the_user(function)
        codes = [function.__code__]
        for code in codes:
            codes += [part for part in code.co_consts if isinstance(part, types.CodeType)]
            if (names_it and name in code.co_consts) or _sets(name, function.__code__.co_varnames[:1], code):
                return True
    return False


def _sets(name: str, this: tuple[str, ...], code: types.CodeType) -> bool:
    """Tell if there is a ``self.name = …``."""
    steps = list(dis.get_instructions(code)) if name in code.co_names else []
    return any(
        step.opname == "STORE_ATTR"
        and step.argval == name
        and (before.argval[-1:] if isinstance(before.argval, tuple) else (before.argval,)) == this
        for before, step in itertools.pairwise(steps)
    )


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


@streams.named
@receiving
def set_own(reader: Any, thing: Any, state: tuple[Any, ...]) -> None:
    """Set the state that its class gave, and attributes beside it."""
    given, setter, (name, attributes, slots, left, order, is_all) = state
    if given is not None:
        (setter or _set_state)(thing, given)
    if _class_name(thing) != name:  # its class makes something else of it
        return
    reader.left.append((thing, left))
    own = dict_of(thing)
    if own is not None:
        had = own | attributes
        own.clear()
        own.update({name: had[name] for name in order if name in had} | ({} if is_all else had))
        lacks = [name for name in left if name not in own]
        if lacks and not reader.realm.at_home:
            with contextlib.suppress(TypeError):  # made from a tuple, it cannot be referred to weakly
                reader.realm.left_out[id(thing)] = weakref.ref(thing), lacks
    for name in copyreg._slotnames(type(thing)) if is_all else slots:  # type: ignore[attr-defined]
        if name in slots:
            object.__setattr__(thing, name, slots[name])
        elif name not in left and hasattr(thing, name):
            object.__delattr__(thing, name)


def _set_state(thing: Any, state: Any) -> None:
    """As pickle does."""
    if hasattr(thing, "__setstate__"):
        thing.__setstate__(state)
        return
    attributes, slots = _state_of(state)
    vars(thing).update(attributes)
    for name, value in slots.items():
        setattr(thing, name, value)
