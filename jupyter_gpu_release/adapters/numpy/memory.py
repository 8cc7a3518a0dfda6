"""The memory of arrays: where it lies, views of it, what stands in its place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..memory import Layout, NotThereError, Place
from ..registry import adapters_of, first_answer
from . import arrays


def layout_of(array: Any) -> Layout | None:
    """The layout of an array without objects in it."""
    if array.dtype.hasobject:
        return None
    address = array.__array_interface__["data"][0]
    return Layout("cpu", address, array.shape, array.strides, array.itemsize)


def bytes_of(array: Any, *, to_write: bool) -> tuple[int, Any]:
    """Address and bytes of the memory that an array looks at; ``to_write``: of its owner, if only it is read-only."""
    root = array
    if array.base is not None and (not array.flags.forc or (to_write and not array.flags.writeable)):
        root = arrays.memory_root(array)
    if root is None or not root.flags.forc:
        raise NotThereError
    root = np.ndarray.view(root, np.ndarray)
    memory: Any = (root if root.flags.c_contiguous else root.T).reshape(-1).view("u1")
    return root.__array_interface__["data"][0], memory


def view_at(live: Any, place: Place, address: int, strides: tuple[int, ...]) -> Any:
    """An array over the memory of ``live``, which may be of another library."""
    found = first_answer(each.bytes_of(live, to_write=place.flag) for each in adapters_of(type(live)))
    if found is None:
        raise NotThereError
    start, memory = found
    view: Any = np.ndarray(place.shape, place.dtype, buffer=memory, offset=address - start, strides=strides)
    if not place.flag:
        view.flags.writeable = False
    return view


def replaced_memory(old: Any, new: Any) -> dict[Any, Any]:
    """Id of the array that owns the memory of ``old`` → the one in its place, if what looked at it can look at that."""
    old_root, new_root = (each if each.base is None else arrays.memory_root(each) for each in (old, new))
    if new_root is None:  # it looks at a foreign buffer itself
        new_root = new
    if old_root is None:
        return {}
    same = old_root.nbytes == new_root.nbytes and not old.dtype.hasobject and old.dtype == new.dtype
    is_alike = same and old_root.flags.c_contiguous == new_root.flags.c_contiguous and new_root.flags.forc
    return {id(old_root): new_root} if is_alike else {}


def over_new_memory(array: Any, memory: Mapping[Any, Any]) -> Any:
    """The array, or the record of one, over the memory that stands in the place of its own."""
    if isinstance(array, np.void):
        view = arrays.as_view(array)
        made = None if view is None else over_new_memory(view, memory)
        return array if made is None or made is view else made[()]
    foreign = arrays.foreign_owner(array)
    for adapter in adapters_of(type(foreign)):
        if (made := adapter.array_over_new_memory(array, foreign, memory)) is not None:
            return made
    root = array if array.base is None else arrays.memory_root(array)
    new = memory.get(id(root)) if root is not None else None
    if new is None or array.dtype.hasobject or (type(array) is not np.ndarray and not arrays.is_view_of_class(array)):
        return array
    offset = array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    made = arrays.rebuild_view(new, array.dtype, array.shape, array.strides, offset, array.flags.writeable)
    if type(array) is np.ndarray:
        return made
    made = arrays.view_as(made, type(array), array.dtype)
    getattr(made, "__dict__", {}).update(getattr(array, "__dict__", {}))
    return made


def fill_view(old: Any, new: Any) -> bool:
    """Copy ``new`` into ``old`` if that is a view of a larger memory."""
    size = getattr(old.base, "nbytes", 0)
    if old.shape != new.shape or old.dtype != new.dtype or size <= old.nbytes or not old.flags.writeable:
        return False
    if getattr(new.base, "nbytes", 0) == size:
        return False
    old[...] = new
    return True


def is_partial_view(array: Any) -> bool:
    """Tell if it looks at a part of a larger memory."""
    return array.base is not None and getattr(array.base, "nbytes", 0) > array.nbytes
