"""Identities on both sides: notebook functions and classes carry an id, so that they come back as themselves.

Classes use cloudpickle's own tracker (its internals; the version is pinned and tests hold it), functions one of
the same kind here. :class:`Origins` remembers what a class or function looked like when it arrived, so that only
what the cell changed of it travels back.
"""

from __future__ import annotations

import enum
import itertools
import types
import uuid
import weakref
from collections.abc import Callable, Mapping
from typing import Any

from cloudpickle import cloudpickle

from .abstract_classes import registrations

_FUNCTIONS_BY_ID: weakref.WeakValueDictionary[str, types.FunctionType] = weakref.WeakValueDictionary()
_IDS_BY_FUNCTION: weakref.WeakKeyDictionary[types.FunctionType, str] = weakref.WeakKeyDictionary()

#: values that nobody can change in place
_ATOMS = (
    str,
    bytes,
    int,
    float,
    complex,
    bool,
    type(None),
    type(...),
    types.FunctionType,
    types.BuiltinFunctionType,
    type,
    types.ModuleType,
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
)

Digest = Callable[[Any], bytes | None]


def class_id(cls: type) -> str:
    """The id of a class that travels by value."""
    found: str = cloudpickle._get_or_create_tracker_id(cls)
    return found


def class_with_id(ident: str) -> type | None:
    """The class that has this id here."""
    with cloudpickle._DYNAMIC_CLASS_TRACKER_LOCK:
        found: type | None = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(ident)
    return found


def register_class(ident: str, cls: type) -> type:
    """From now on ``cls`` is what this id means here (unless there is one already)."""
    found: type = cloudpickle._lookup_class_or_track(ident, cls)
    return found


def travels_by_value(cls: type) -> bool:
    """Tell if a class was sent, or came, by value (the notebook's own)."""
    return cls in cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS


def function_id(function: types.FunctionType) -> str:
    """The id of a notebook function; a closure has none (each trip makes it anew)."""
    if function.__closure__ is not None:
        return ""
    ident = _IDS_BY_FUNCTION.get(function)
    if ident is None:
        ident = uuid.uuid4().hex
        register_function(ident, function)
    return ident


def register_function(ident: str, function: types.FunctionType) -> None:
    """From now on ``function`` is what this id means here."""
    _IDS_BY_FUNCTION[function] = ident
    _FUNCTIONS_BY_ID[ident] = function


def function_with_id(ident: str) -> types.FunctionType | None:
    """The function that has this id here."""
    return _FUNCTIONS_BY_ID.get(ident) if ident else None


class _AttributeState:
    """A mapping of attributes as it was: the values themselves, and digests of those that can be changed in place."""

    def __init__(self, number: int, attributes: Mapping[str, Any], digest: Digest) -> None:
        self.number = number
        self._values = dict(attributes)
        self._digests = {name: digest(value) for name, value in attributes.items() if not _is_atom(value)}

    def changed(self, now: Mapping[str, Any], digest: Digest) -> list[str]:
        return [name for name, value in now.items() if self._is_changed(name, value, digest)]

    def removed(self, now: Mapping[str, Any]) -> list[str]:
        return [name for name in self._values if name not in now]

    def _is_changed(self, name: str, value: Any, digest: Digest) -> bool:
        if name not in self._values or self._values[name] is not value:
            return True
        return name in self._digests and self._digests[name] != digest(value)


def _is_atom(value: Any) -> bool:
    if isinstance(value, staticmethod | classmethod):
        return _is_atom(value.__func__)
    if isinstance(value, property):  # a cached function in it remembers
        return all(map(_is_atom, (value.fget, value.fset, value.fdel)))
    return isinstance(value, _ATOMS) or (type(value) is tuple and all(map(_is_atom, value)))


class Origins:
    """Record of the things that arrived here by value, and of how they looked then."""

    def __init__(self) -> None:
        self._looks: weakref.WeakKeyDictionary[Any, _AttributeState] = weakref.WeakKeyDictionary()
        self._count = itertools.count()

    def remember_arrival(self, thing: Any, attributes: Mapping[str, Any], digest: Digest) -> None:
        """``thing`` (class or function) has just been rebuilt with these attributes."""
        self._looks[thing] = _AttributeState(next(self._count), attributes, digest)

    def __contains__(self, thing: Any) -> bool:
        return thing in self._looks

    def number_of(self, thing: Any) -> int:
        """Its number among all that has arrived here, which no other gets."""
        return self._looks[thing].number

    def changes(self, thing: Any, now: Mapping[str, Any], digest: Digest) -> tuple[list[str], list[str]] | None:
        """Names changed and removed since it arrived; None when it was made here."""
        look = self._looks.get(thing)
        return None if look is None else (look.changed(now, digest), look.removed(now))


def class_attributes(cls: type) -> dict[str, Any]:
    """Attributes of a class that a cell can have changed (without those that Python itself keeps there), and what is
    registered with it.
    """
    return own_attributes(cls) | registrations(cls) | member_attributes(cls)


def own_attributes(cls: type) -> dict[str, Any]:
    """Attributes of a class without those that Python itself keeps there."""
    return {name: value for name, value in vars(cls).items() if name not in _PYTHONS_OWN}


#: begins the names, which no class has, of attributes of an enum's members
_OF_MEMBER = "of member "


def member_attributes(cls: type) -> dict[str, Any]:
    """Attributes that the members of an enum have, but for those that each has."""
    if not issubclass(cls, enum.Enum):
        return {}
    members: dict[str, Any] = cls._member_map_
    return {
        f"{_OF_MEMBER}{member}.{name}": value
        for member, thing in members.items()
        if thing._name_ == member
        for name, value in getattr(thing, "__dict__", {}).items()
        if not (name.startswith("_") and name.endswith("_"))
    }


def take_member_attributes(attributes: dict[str, Any]) -> dict[str, Any]:
    """Those among the attributes of a class, taken out."""
    return {name: attributes.pop(name) for name in list(attributes) if name.startswith(_OF_MEMBER)}


def set_attribute(cls: Any, name: str, value: Any) -> None:
    """Set an attribute of a class or of a member of it."""
    owner, own = _owner(cls, name)
    if owner is not None:
        setattr(owner, own, value)


def drop_attribute(cls: Any, name: str) -> None:
    """Delete it, if there is one."""
    owner, own = _owner(cls, name)
    if owner is not None and own in vars(owner):
        delattr(owner, own)


def _owner(cls: Any, name: str) -> tuple[Any, str]:
    if not name.startswith(_OF_MEMBER):
        return cls, name
    member, _, own = name.removeprefix(_OF_MEMBER).partition(".")
    return cls._member_map_.get(member), own


#: caches that Python, copyreg, abc, enum and typing keep in classes
_PYTHONS_OWN = frozenset(
    {
        "__dict__",
        "__weakref__",
        "_abc_impl",
        "__abstractmethods__",
        "__annotations_cache__",
        "__annotate_func__",
        "__slotnames__",
        "__protocol_attrs__",
        "__non_callable_proto_members__",
        "__callable_proto_members_only__",
        "_value2member_map_",
        "_member_map_",
        "_hashable_values_",
        "_unhashable_values_",
        "_unhashable_values_map_",
    }
)


def function_attributes(function: types.FunctionType) -> dict[str, Any]:
    """Attributes of a function that a cell can have changed."""
    look = {name: getattr(function, name) for name in ("__code__", "__defaults__", "__doc__", "__kwdefaults__")}
    return {**look, **{f".{name}": value for name, value in vars(function).items()}}
