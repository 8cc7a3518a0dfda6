"""Identities on both sides: notebook functions and classes carry an id, so that they come back as themselves.

Classes use cloudpickle's own tracker (its internals; the version is pinned and tests hold it), functions one of
the same kind here. :class:`Origins` remembers what a class or function looked like when it arrived, so that only
what the cell changed of it travels back.
"""

from __future__ import annotations

import enum
import itertools
import sys
import types
import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    types.CodeType,
    types.GenericAlias,
    types.UnionType,
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


class _Look:
    """Comparable record of what can be changed inside a value: of functions what they remember, of classes their
    attributes.
    """

    def __init__(self, value: Any, digest: Digest) -> None:
        self._digest = digest
        self._seen: set[int] = set()
        #: what nobody can change, in order of appearance, and digests and types of what can be
        self._atoms: list[Any] = []
        self._others: list[Any] = []
        self._add(value)
        del self._digest, self._seen

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Look) and self._others == other._others and self._has_atoms_of(other)

    __hash__ = None  # type: ignore[assignment]

    def _has_atoms_of(self, other: _Look) -> bool:
        pairs = itertools.zip_longest(self._atoms, other._atoms, fillvalue=_Look)
        return all(one is two or (type(one) is type(two) and one == two) for one, two in pairs)

    def _add(self, value: Any) -> None:
        parts = parts_of_definition(value)
        if parts is not None:
            if id(value) not in self._seen:
                self._seen.add(id(value))
                self._others.append(type(value))
                self._add_all(parts)
        elif type(value) is tuple:
            self._add_all(value)
        elif type(value) is dict and id(value) not in self._seen:
            self._seen.add(id(value))
            self._add_all([*itertools.chain.from_iterable(value.items())])
        elif isinstance(value, _ATOMS) or _is_of_library(value):
            self._atoms.append(value)
        else:
            self._others += [type(value), self._digest(value)]

    def _add_all(self, parts: Sequence[Any]) -> None:
        self._others.append(len(parts))
        for part in parts:
            self._add(part)


def parts_of_definition(value: Any) -> list[Any] | None:
    """Parts of a function, a method as a class has it, or a class of the notebook; None: it is none of them."""
    if isinstance(value, staticmethod | classmethod):
        return [value.__func__]
    if isinstance(value, property):
        return [value.fget, value.fset, value.fdel]
    if isinstance(value, types.FunctionType) and not is_by_reference(value):
        is_apart = value.__globals__.get("__name__") != "__main__" and module_with_globals(value) is None
        remembered = own_globals(value).values() if is_apart else ()
        return [*function_attributes(value).values(), *map(contents_of, value.__closure__ or ()), *remembered]
    if isinstance(value, type) and travels_by_value(value):
        return [*itertools.chain.from_iterable(class_attributes(value).items())]
    return None


def _is_of_library(value: Any) -> bool:
    """Tell if it is a class or function that travels by its name, or a function in C that has no object of its own."""
    if isinstance(value, types.BuiltinFunctionType):
        return isinstance(value.__self__, types.ModuleType | type | None)
    if isinstance(value, type):
        return not travels_by_value(value)
    return isinstance(value, types.FunctionType) and is_by_reference(value)


def is_by_reference(thing: Any) -> bool:
    """Tell if a function, class or module travels by its name."""
    found: bool = cloudpickle._should_pickle_by_reference(thing)
    return found


#: stands for what a cell of a closure holds before its variable is bound
EMPTY = object()


def contents_of(cell: types.CellType) -> Any:
    """The value of a closure's variable, or :data:`EMPTY`."""
    try:
        return cell.cell_contents
    except ValueError:
        return EMPTY


class _AttributeState:
    """A mapping of attributes as it was: the values themselves, and how those looked that can be changed in place."""

    def __init__(self, number: int, attributes: Mapping[str, Any]) -> None:
        self.number = number
        self._values = dict(attributes)
        self._looks: dict[str, _Look] = {}

    def look(self, digest: Digest) -> None:
        self._looks = {name: _Look(value, digest) for name, value in self._values.items() if not _is_atom(value)}

    def changed(self, now: Mapping[str, Any], digest: Digest) -> list[str]:
        return [name for name, value in now.items() if self._is_changed(name, value, digest)]

    def removed(self, now: Mapping[str, Any]) -> list[str]:
        return [name for name in self._values if name not in now]

    def _is_changed(self, name: str, value: Any, digest: Digest) -> bool:
        if name not in self._values or self._values[name] is not value:
            return True
        return name in self._looks and self._looks[name] != _Look(value, digest)


def _is_atom(value: Any) -> bool:
    return isinstance(value, _ATOMS) or _is_of_library(value) or (type(value) is tuple and all(map(_is_atom, value)))


class Origins:
    """Record of the things that arrived here by value, and of how they looked then."""

    def __init__(self) -> None:
        self._looks: weakref.WeakKeyDictionary[Any, _AttributeState] = weakref.WeakKeyDictionary()
        self._count = itertools.count()

    def remember_arrivals(self, made: Iterable[tuple[Any, Mapping[str, Any]]], digest: Digest) -> None:
        """These classes and functions have just been rebuilt, with these attributes."""
        looks = {thing: _AttributeState(next(self._count), attributes) for thing, attributes in made}
        self._looks.update(looks)  # so that digests know all of them
        for look in looks.values():
            look.look(digest)

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


_OF_FUNCTIONS = (
    "__code__",
    "__defaults__",
    "__doc__",
    "__kwdefaults__",
    "__name__",
    "__qualname__",
    "__module__",
    "__annotations__",
)


#: begins the names of what a function has in globals that are neither the notebook's nor a module's
OF_GLOBALS = "global "


def function_attributes(function: types.FunctionType, namespace: dict[str, Any] | None = None) -> dict[str, Any]:
    """Attributes of a function that a cell can have changed; ``namespace``: with globals that are not these names."""
    look = {name: getattr(function, name) for name in _OF_FUNCTIONS}
    found = {**look, **{f".{name}": value for name, value in vars(function).items()}}
    if namespace is None or function.__globals__ is namespace or module_with_globals(function) is not None:
        return found
    return found | {OF_GLOBALS + name: value for name, value in own_globals(function).items()}


def module_with_globals(function: types.FunctionType) -> types.ModuleType | None:
    """The module whose globals a function has, if it can be imported."""
    module = sys.modules.get(function.__globals__.get("__name__", ""))
    is_it = module is not None and getattr(module, "__dict__", None) is function.__globals__
    return module if is_it and module.__name__ != "__main__" and module.__spec__ else None  # type: ignore[union-attr]


def own_globals(function: types.FunctionType) -> dict[str, Any]:
    """Globals that a function's code refers to, as far as they are bound."""
    space = function.__globals__
    return {name: space[name] for name in cloudpickle._extract_code_globals(function.__code__) if name in space}
