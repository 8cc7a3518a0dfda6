"""Functions and classes of the notebook as what they do: no ids, file names or line numbers."""

from __future__ import annotations

import enum
import struct
import sys
import types
from typing import Any

from cloudpickle import cloudpickle

from ..identity import member_attributes

#: what Python, the import system and cloudpickle keep in a class, which says nothing of what the class does
_PYTHONS_OWN = frozenset(
    {
        "__dict__",
        "__weakref__",
        "__abstractmethods__",
        "__annotations_cache__",
        "__annotate_func__",
        "__slotnames__",
        "__protocol_attrs__",
        "__non_callable_proto_members__",
        "__callable_proto_members_only__",
        "__firstlineno__",
        "__static_attributes__",
        "_value2member_map_",
        "_member_map_",
        "_hashable_values_",
        "_unhashable_values_",
        "_unhashable_values_map_",
    }
)


def is_of_python(cls: type) -> bool:
    """Types of the interpreter that only the module ``types`` names."""
    return cls in cloudpickle._BUILTIN_TYPE_NAMES


def module_of(thing: Any) -> str | None:
    """The module that a thing says it is of; None where it does not say (no search: its result would vary)."""
    module = getattr(thing, "__module__", None)
    if isinstance(module, str):
        return module
    owner = getattr(thing, "__self__", None)
    if isinstance(owner, types.ModuleType):
        return owner.__name__
    return None


def code_parts(code: types.CodeType) -> tuple[bytes, list[Any], list[types.CodeType]]:
    """Plain facts, constants and names, and the code of functions inside."""
    facts = struct.pack(
        "<5q", code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags, code.co_nlocals
    )
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    constants = [constant for constant in code.co_consts if not isinstance(constant, types.CodeType)]
    names = [code.co_name, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars]
    # where a nested function stands among the constants is said by the instructions
    raw = [code.co_code, getattr(code, "co_exceptiontable", b""), sys.version_info[:3]]
    return facts, [*raw, *names, *constants], inner


def class_parts(cls: type) -> list[Any]:
    """Everything that a class of the notebook is made of, in a stable order."""
    if issubclass(cls, enum.Enum):
        members = {member.name: member.value for member in cls}
        attributes = cloudpickle._enum_getstate(cls)[0]
        members |= member_attributes(cls)
    else:
        members = {}
        attributes = cloudpickle._class_getstate(cls)[0]
    registered = attributes.pop("_abc_impl", [])
    kept = {name: value for name, value in attributes.items() if name not in _PYTHONS_OWN}
    order = [name for name in vars(cls) if name in kept]  # a class body has an order: fields of a dataclass
    return [
        type(cls),
        list(cls.__bases__),
        members,
        {name: kept[name] for name in order},
        sorted(registered, key=lambda other: other.__qualname__),
    ]
