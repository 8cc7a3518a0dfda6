"""numpy arrays: views of one another stay views; the bytes go out of band (numpy's own protocol 5)."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from . import devices, mapped_files

#: a view of at most this much less than its base takes the base along
_SMALL_BASE_BYTES = 1 << 16


def lookup(kind: type) -> Any:
    """The reducer for a type of numpy, None for numpy's own way."""
    return {np.ndarray: reduce_array, np.memmap: mapped_files.reduce_mapped}.get(kind)


def reduce_array(pickler: Any, array: Any) -> Any:
    """An array that stands for one on a device, a view on another array, or a plain one."""
    reduced = _reduce_plain(pickler, array)
    return _reduce_times(array) if reduced is NotImplemented and array.dtype.kind in "mM" else reduced


def _reduce_plain(pickler: Any, array: Any) -> Any:
    mark = devices.mark_of(array)
    if mark is not None:
        flat = np.ascontiguousarray(array)
        return devices.place_array, (mark, array.dtype, array.shape, pickle.PickleBuffer(flat.reshape(-1).view("u1")))
    if array.dtype.hasobject:
        return NotImplemented
    if array.base is None:
        pickler.memory_travels(id(array))
        return NotImplemented
    mapped = mapped_files.reduce_mapped(pickler, array)
    if mapped is not NotImplemented:
        return mapped
    referred = pickler.refer(array)
    if referred is not None:
        return referred
    root = memory_root(array)
    if root is None:
        return NotImplemented
    pickler.keep.append(root)
    covers = array.nbytes * 2 >= root.nbytes or root.nbytes <= _SMALL_BASE_BYTES
    if not covers and not pickler.does_memory_travel(id(root)):
        return NotImplemented
    pickler.memory_travels(id(root))
    offset = array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    return rebuild_view, (root, array.dtype, array.shape, array.strides, offset, array.flags.writeable)


def _reduce_times(array: Any) -> Any:
    """Dates and durations, which numpy copies into the stream (Python's buffers have no type for them): as numbers."""
    flags = array.flags
    if not (flags.c_contiguous or flags.f_contiguous):
        return NotImplemented
    flat = (array if flags.c_contiguous else array.T).reshape(-1).view("i8")
    order = "C" if flags.c_contiguous else "F"
    return rebuild_times, (pickle.PickleBuffer(flat), array.dtype, array.shape, order, flags.writeable)


def rebuild_times(numbers: Any, dtype: Any, shape: Any, order: str, writeable: bool) -> Any:
    """Dates or durations over the memory of their numbers."""
    memory = bytearray(numbers) if writeable and memoryview(numbers).readonly else numbers
    times: Any = np.ndarray(shape, dtype, buffer=memory, order="C" if order == "C" else "F")
    times.flags.writeable = writeable
    return times


def memory_root(array: Any) -> Any:
    """The array that owns a view's memory (or sees all of a foreign buffer), if it is a plain contiguous one."""
    base = array.base
    if type(base) is not np.ndarray:
        return None
    while type(base.base) is np.ndarray:
        base = base.base
    flags = base.flags
    if not (flags.c_contiguous or flags.f_contiguous) or base.dtype.hasobject:
        return None
    return base


def rebuild_view(root: Any, dtype: Any, shape: Any, strides: Any, offset: int, writeable: bool) -> Any:
    """A view on ``root``'s memory."""
    if root.nbytes == 0:
        return np.empty(shape, dtype)
    memory = (root if root.flags.c_contiguous else root.T).reshape(-1).view("u1")
    view: Any = np.ndarray(shape, dtype, buffer=memory, offset=offset, strides=strides)
    if not writeable:
        view.flags.writeable = False
    return view
