"""Brings an object of the notebook to what came back for it, so that whoever holds it sees what the run did to it."""

from __future__ import annotations

import array
import collections
import contextlib
import functools
import random
import types
import weakref
from collections.abc import Collection, Iterator
from typing import Any

from ...adapters.registry import adapters_of, first_answer
from ...adapters.stdlib import cached_functions
from ...adapters.stdlib.values import is_watched, stop_watching
from ...adapters.users_code import is_of_the_user
from .. import set_order

_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_REDUCERS = ("__reduce__", "__reduce_ex__")
_CONTAINERS = (list, dict, set, bytearray, collections.deque)
_PLAIN_BASES = (object, *_CONTAINERS, collections.defaultdict, collections.OrderedDict, types.SimpleNamespace)


def update_in_place(old: Any, new: Any, stale: set[str], left: Collection[str] | None = None) -> bool:
    """Make ``old`` what ``new`` is. False: it cannot be made so, and nothing has happened to it.

    ``stale`` gets the attributes (``Class.name``) that a class of the user's leaves out of what travels: they stay.
    ``left``: attributes that ``new`` has from its own constructor; None: its class says what travels.
    """
    kind = type(old)
    if not is_alike(old, new) or isinstance(old, type | types.FunctionType):
        return False
    if kind is types.ModuleType:  # of the notebook's own
        return _update_attributes(old, new, stale)
    adapters = adapters_of(kind)
    if any(adapter.holds_itself(kind) for adapter in adapters):
        return False
    answer = first_answer(adapter.update_in_place(old, new) for adapter in adapters)
    if answer is not None:
        return answer
    if isinstance(old, array.array):
        return old.typecode == new.typecode and _update_slice(old, new) and _update_attributes(old, new, stale)
    if isinstance(old, random.Random) and kind.setstate is random.Random.setstate:
        old.setstate(new.getstate())
        return _update_attributes(old, new, stale)
    if kind is functools._lru_cache_wrapper:
        return cached_functions.update(old, new)
    if not is_open(kind):
        return False
    if kind is not type(new):
        old.__class__ = type(new)
    return _update_object(old, new, stale, left)


def stands_alone(thing: Any) -> bool:
    """Tell if what holds it can go home without it, since the notebook's own is put there."""
    return all(adapter.stands_alone(thing) for adapter in adapters_of(type(thing)))


def is_alike(old: Any, new: Any) -> bool:
    """Tell if they are of one class, or count as such."""
    return type(old) is type(new) or _class_of(old) is _class_of(new)


def _class_of(thing: Any) -> type:
    kind = type(thing)
    return first_answer(adapter.class_of(thing) for adapter in adapters_of(kind)) or kind


def module_of(kind: type) -> str:
    """The name of a class's module; a class may have taken it away."""
    return str(getattr(kind, "__module__", ""))


def is_open(kind: type) -> bool:
    """Tell if all that its objects are is in attributes, slots and items.

    What ends with its object (``__del__`` frees a handle of a C library) cannot be handed to another one, unless the
    class is the user's: then :func:`end_quietly` keeps the other one from ending it.
    """
    if hasattr(kind, "__del__") and not is_of_the_user(kind.__del__):
        return False
    base: Any = kind
    while base.__flags__ & _HEAP_TYPE:
        if base.__basicsize__ != _size_in_python(base):
            return False
        base = base.__base__
    return base in _PLAIN_BASES and kind is not object


class _Quiet:
    """Made from this and its own class is what handed over all that it was, if it has slots, or is a list or dict."""

    __slots__ = ()

    def __init_subclass__(cls) -> None:
        """No class of the user's has another child."""

    def __del__(self) -> None:
        """Let nothing go."""


class _Husk:
    """The rest of another object that handed over all that it was."""


def end_quietly(thing: Any) -> None:
    """Keep the ``__del__`` of an object from running, and what watches it: another one has what it would let go."""
    stop_watching(thing)
    kind: Any = type(thing)
    if not is_of_the_user(getattr(kind, "__del__", None)):
        return
    try:
        object.__setattr__(thing, "__class__", _Husk)
    except TypeError:
        end_without_del(thing)


def end_without_del(thing: Any) -> bool:
    """Keep the ``__del__`` of an object, which has run elsewhere, from running; the object may live on.

    False: its layout does not allow that.
    """
    kind: Any = type(thing)
    for make in (_child_unknown_to, _child_beside) if is_of_the_user(getattr(kind, "__del__", None)) else ():
        with contextlib.suppress(TypeError):
            object.__setattr__(thing, "__class__", make(kind))
            return True
    return False


def _child_unknown_to(kind: Any) -> Any:
    """A child of which its class is not told, for objects with attributes."""
    child: Any = type.__new__(type(kind), kind.__name__, (_Husk,), {"__slots__": (), "__del__": _Quiet.__del__})
    child.__bases__ = (kind,)
    return child


def _child_beside(kind: Any) -> Any:
    """The same for others."""
    return type.__new__(type(kind), kind.__name__, (_Quiet, kind), {"__slots__": ()})


def outlive(thing: Any, other: Any) -> bool:
    """Keep an object alive as long as another one, if something of the user's runs when it ends: then True."""
    if not (is_of_the_user(getattr(type(thing), "__del__", None)) or is_watched(thing)):
        return False
    try:
        weakref.finalize(other, _let_go, thing).atexit = False
    except TypeError:  # the other one takes no weak reference
        return False
    return True


def _let_go(_thing: Any) -> None:
    """Called when the other one has gone; holds an object until then."""


def _size_in_python(kind: Any) -> int:
    """Size of its objects if it is a class written in Python, which adds nothing but slots and two pointers."""
    slots = vars(kind).values() if "__slots__" in vars(kind) else ()
    pointers = sum(isinstance(each, types.MemberDescriptorType) for each in slots)
    pointers += kind.__weakrefoffset__ > 0 and not kind.__base__.__weakrefoffset__
    pointers += kind.__dictoffset__ > 0 and not kind.__base__.__dictoffset__
    size: int = kind.__base__.__basicsize__ + 8 * pointers
    return size


# --------------------------------------------------------------------------------------------- objects
def _update_object(old: Any, new: Any, stale: set[str], left: Collection[str] | None) -> bool:
    is_done = not isinstance(old, _CONTAINERS) or _update_items(old, new)
    return is_done and _update_attributes(old, new, stale, left)


def _update_attributes(old: Any, new: Any, stale: set[str], left: Collection[str] | None = None) -> bool:
    attributes, theirs = dict_of(old), dict_of(new)
    is_users = any(is_of_the_user(getattr(type(old), way)) for way in (*_REDUCERS, "__getstate__"))
    sent = _names_sent(old, is_users=is_users) if left is None else None
    left_out = set(left or ())
    if attributes is not None and theirs is not None and attributes is not theirs:
        stayed = {name: value for name, value in attributes.items() if sent is not None and name not in sent}
        own = {name: attributes[name] for name in left or () if name in attributes}
        left_out |= stayed.keys() - theirs.keys()
        attributes.clear()
        attributes.update(stayed | theirs | own)
    for member in _members(type(old)):
        if left is not None and member.__name__ in left:
            continue
        try:
            value = member.__get__(new, type(new))
        except AttributeError:  # empty
            with contextlib.suppress(AttributeError):
                if is_users and sent is not None and member.__name__ not in sent:
                    member.__get__(old, type(old))
                    left_out.add(member.__name__)
                else:
                    member.__delete__(old)
        else:
            member.__set__(old, value)
    if is_users:  # libraries know what they leave out
        stale.update(f"{type(old).__name__}.{name}" for name in left_out)
    return True


def _names_sent(old: Any, *, is_users: bool) -> Collection[str] | None:
    """Attributes that its class lets travel (a cache and a lock may stay); None: all of them."""
    if not is_users and getattr(type(old).__getstate__, "__objclass__", None) is object:
        return None
    is_reduced = any(is_of_the_user(getattr(type(old), way)) for way in _REDUCERS)
    try:
        parts = _reduced(old) if is_reduced else _parts(old.__getstate__())
    except Exception:  # noqa: BLE001 - the user's code; other names are still to be bound
        return ()
    found = [part for part in parts if type(part) is dict]
    return {name for part in found for name in part} if found or is_users else None


def _reduced(old: Any) -> tuple[Any, ...]:
    """Arguments and parts of the state that its class gives pickle: each may be a dict of attributes."""
    reduced = old.__reduce_ex__(5)
    if not isinstance(reduced, tuple):
        return ()
    _maker, arguments, state, *_ = (*reduced, None)
    return *arguments, *_parts(state)


def _parts(state: Any) -> tuple[Any, ...]:
    """Parts of an object's state: its attributes, and its slots where it has any."""
    return state if isinstance(state, tuple) else (state,)


def _update_items(old: Any, new: Any) -> bool:
    if isinstance(old, dict):
        fill_mapping(old, new)
        if isinstance(old, collections.defaultdict):
            old.default_factory = new.default_factory
    elif isinstance(old, set):
        set_order.copy_content(old, new)
    elif isinstance(old, collections.deque):
        if old.maxlen != new.maxlen:
            return False
        collections.deque.clear(old)
        collections.deque.extend(old, new)
    else:
        return _update_slice(old, new)
    return True


def fill_mapping(old: Any, new: dict[Any, Any]) -> None:
    """Give a dict the items of another one, in their order."""
    # an OrderedDict keeps an order of its own, which dict's methods do not know
    base = next(kind for kind in (collections.OrderedDict, dict, type(old)) if issubclass(type(old), kind))
    base.clear(old)
    for key, value in (base if isinstance(new, base) else dict).items(new):
        base.__setitem__(old, key, value)


def _update_slice(old: Any, new: Any) -> bool:
    kind: Any = next(each for each in (list, bytearray, array.array) if isinstance(old, each))
    try:
        kind.__setitem__(old, slice(None), new)
    except BufferError:  # others look at its memory, and it has another length now
        return False
    return True


def dict_of(thing: Any) -> dict[str, Any] | None:
    """The attributes of an object, past whatever its class says."""
    try:
        found = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return None
    return found if type(found) is dict else None


def _members(kind: type) -> Iterator[Any]:
    for cls in kind.__mro__:
        if "__slots__" in vars(cls):
            yield from (each for each in vars(cls).values() if isinstance(each, types.MemberDescriptorType))
