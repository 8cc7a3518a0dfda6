"""Python's own buffers (``bytearray``, ``array.array``, objects of ctypes), and what looks at their memory."""

from __future__ import annotations

import array
import ctypes
import sys
from collections.abc import Iterator
from typing import Any

from ... import streams
from ...store.mapped.memory import address_of
from ..memory import CData, Layout, Placed, looked_at, owner_of
from ..registry import adapters_of, first_answer

_BUFFERS = (bytearray, array.array, CData)
#: under which a pickler knows the buffers that names hold
_NAMED = (None, "buffers")
#: views of at most this much less than the buffer take all of it along
_SMALL_BYTES = 1 << 16


def place_of(pickler: Any, shown: Any, address: int, length: int) -> tuple[Any, int] | None:
    """The owner of the memory that ``shown`` gives to look at, and the offset of an address in it.

    None: it cannot be told, nobody can write there, or the bytes alone are to travel.
    """
    owner = owner_of(shown)
    if isinstance(owner, CData) and not _owns(owner, address):  # found by a pointer
        owner = owner_at(pickler, address, length)
    elif not _is_known(shown, owner):
        return None
    if not isinstance(owner, _BUFFERS) or (isinstance(owner, CData) and not pickler.can_write(owner)):
        return None
    start, size = _span(owner)
    covers = length * 2 >= size or size <= _SMALL_BYTES
    if not start <= address <= address + length <= start + size:
        return None
    return (owner, address - start) if covers or pickler.is_memory_sent(("buffer", id(owner))) else None


def _is_known(shown: Any, owner: Any) -> bool:
    """Tell if somebody may look at the memory another way: pickle gives each array a buffer of which nobody knows."""
    return type(owner) is not Placed and (type(shown) is not memoryview or _references(shown) > _ALONE)


def _owns(thing: Any, address: int) -> bool:
    return bool(thing._b_needsfree_ and 0 <= address - ctypes.addressof(thing) < ctypes.sizeof(thing))


def _references(shown: memoryview) -> int:
    return sys.getrefcount(shown.obj)


#: references to an object that only one memoryview holds
_ALONE = _references(memoryview(bytearray(1)))


def owner_at(pickler: Any, address: int, length: int) -> Any:
    """The object that owns these bytes and that a name of the notebook holds; None: no name does."""
    named = pickler.holders.get(_NAMED)
    if named is None:
        named = pickler.holders[_NAMED] = list(_named_buffers(pickler.realm.namespace))
    return next((each for start, size, each in named if start <= address and address + length <= start + size), None)


def _named_buffers(namespace: dict[str, Any]) -> Iterator[tuple[int, int, Any]]:
    for value in list(namespace.values()):
        if issubclass(type(value), _BUFFERS):
            if not issubclass(type(value), CData) or value._b_needsfree_:
                yield (*_span(value), value)
        elif type(value).__name__ == "ndarray":
            while type(value.base) is type(value):  # what came home in a file is a view of all that is in there
                value = value.base
            layout = _layout_of(value)
            if layout is not None and layout.is_dense and _layout_of(value.base) is None:
                yield layout.extent[0], value.nbytes, value


def _layout_of(thing: Any) -> Layout | None:
    return first_answer(adapter.layout_of(thing) for adapter in adapters_of(type(thing)))


def _span(buffer: Any) -> tuple[int, int]:
    """Its address and size in bytes."""
    view = memoryview(buffer)
    return address_of(view), view.nbytes


# ------------------------------------------------------------------------------------------ numpy's arrays
def reduce_array_over(pickler: Any, array: Any, shown: Any) -> Any:
    """An array over the memory of a buffer; None: as any other array."""
    flags = array.flags
    if not array.nbytes or not flags.forc:
        return None
    found = place_of(pickler, shown, array.__array_interface__["data"][0], array.nbytes)
    if found is None:
        return None
    return array_over_buffer, (*found, array.dtype, array.shape, array.strides, flags.writeable)


@streams.named
def array_over_buffer(owner: Any, offset: int, dtype: Any, shape: Any, strides: Any, writeable: bool) -> Any:
    """A numpy array over ``owner``'s memory."""
    import numpy as np

    made: Any = np.ndarray(shape, dtype, buffer=owner, offset=offset, strides=strides)
    if not writeable:
        made.flags.writeable = False
    return made


# ------------------------------------------------------------------------------------------ objects of ctypes
def reduce_ctypes(pickler: Any, thing: Any) -> Any:
    """A part of another one, or what looks at a buffer; others by their bytes (pickle's own way)."""
    if thing._b_needsfree_ and looked_at(thing) is None:
        return NotImplemented
    found = place_of(pickler, thing, ctypes.addressof(thing), ctypes.sizeof(thing))
    return NotImplemented if found is None else (ctypes_over_buffer, (type(thing), *found))


@streams.named
def ctypes_over_buffer(kind: Any, owner: Any, offset: int) -> Any:
    """An object of ctypes over ``owner``'s memory."""
    return kind.from_buffer(owner, offset)


# ------------------------------------------------------------------------------------------ brought up to date
def update(old: Any, new: Any) -> bool | None:
    """The bytes of an object of ctypes, or of what a memoryview looks at; None: neither."""
    if isinstance(old, CData):
        ctypes.memmove(ctypes.addressof(old), ctypes.addressof(new), ctypes.sizeof(old))
        vars(old).clear()
        vars(old).update(vars(new))
        return True
    return _update_view(old, new) if type(old) is memoryview else None


def _update_view(old: memoryview, new: memoryview) -> bool:
    try:
        is_alike = (old.format, old.shape, old.c_contiguous) == (new.format, new.shape, True)
    except ValueError:  # somebody has released it
        return False
    if not is_alike or memoryview(owner_of(old)).readonly:
        return False
    ctypes.memmove(address_of(old), new.tobytes(), old.nbytes)
    return True
