"""Arrays and views: those that look at one memory still do so where they arrive."""

from __future__ import annotations

import gc
import pickle
from typing import Any

import numpy as np

from ... import streams
from .. import cupy
from ..adapter import Reducer
from ..memory import placed
from ..registry import adapters_of
from . import mapped_files

#: a view of at most this much less than its base takes the base along
_SMALL_BASE_BYTES = 1 << 16
#: a larger array that is read looks at the memory of what was read
_MOST_COPIED_BYTES = 1 << 16


def reducer_for(kind: type) -> Reducer | None:
    """The reducer for a class, None for numpy's own way."""
    if kind in _KINDS:
        return _KINDS[kind]
    if issubclass(kind, np.dtype):
        return reduce_type
    is_array = issubclass(kind, np.ndarray) and not issubclass(kind, np.memmap)
    if not is_array:
        return None
    return reduce_subclass if _is_memory_and_attributes(kind) else remark_on_copy


def _is_memory_and_attributes(kind: Any) -> bool:
    """Tell if that is all that an array of this class is; else it says itself how it is pickled."""
    if kind in (np.ma.MaskedArray, np.recarray, np.matrix):
        return True
    usual = all(
        getattr(kind, name) is getattr(np.ndarray, name) for name in ("__reduce__", "__reduce_ex__", "__setstate__")
    )
    return usual and not any("__slots__" in vars(base) for base in kind.__mro__ if issubclass(base, np.ndarray))


def is_view_of_class(array: Any) -> bool:
    """Tell if an array of a class of its own can be made over other memory."""
    return array.base is not None and reducer_for(type(array)) is reduce_subclass


def reduce_subclass(pickler: Any, array: Any) -> Any:
    """A masked array, a matrix, …: a view of a plain array, and attributes."""
    if array.dtype.hasobject:
        return NotImplemented
    plain = _plain(pickler, array) if array.base is None else np.ndarray.view(array, np.ndarray)
    pickler.keep.append(plain)
    attributes = getattr(array, "__dict__", None)
    return (view_as, (plain, type(array), array.dtype), attributes or None, None, None, set_attributes)


def remark_on_copy(pickler: Any, array: Any) -> Any:
    """An array that pickles itself in a way of its own, with its bytes."""
    if array.base is not None and pickler.references is not None and pickler.references.has_memory_of(array):
        pickler.remarks.append(f"as a copy: {type(array).__name__} pickles itself in a way of its own, with its values")
    return NotImplemented


@streams.named
def view_as(plain: Any, kind: Any, dtype: Any) -> Any:
    """The array as one of a class of its own."""
    made = np.ndarray.view(plain, kind)
    if made.dtype != dtype or type(made.dtype) is not type(dtype):
        made.dtype = dtype
    return made


@streams.named
def set_attributes(array: Any, attributes: dict[str, Any]) -> None:
    """Set once the array is known to the stream."""
    array.__dict__.update(attributes)


def _plain(pickler: Any, owner: Any) -> Any:
    """An array of a class of its own that owns its memory, as a plain one: always the same."""
    if type(owner) is np.ndarray:
        return owner
    known = pickler.holders.get((id(owner), "plain"))
    if known is None:
        known = pickler.holders[id(owner), "plain"] = np.ndarray.view(owner, np.ndarray)
    return known


def reduce_array(pickler: Any, array: Any) -> Any:
    """An array that stands for one on a device, a view on another array, or a plain one."""
    reduced = _reduce_plain(pickler, array)
    if reduced is not NotImplemented:
        return reduced
    if array.dtype.kind in "mM":
        return _reduce_times(array)
    flags = array.flags
    if flags.writeable or flags.c_contiguous or flags.f_contiguous or array.dtype.hasobject:
        return NotImplemented
    copy = np.array(array)  # numpy would forget that it is read-only
    copy.flags.writeable = False
    pickler.keep.append(copy)
    return copy.__reduce_ex__(5)


def _reduce_plain(pickler: Any, array: Any) -> Any:
    mark = cupy.array_mark(array)
    if mark is not None:
        return cupy.reduce_host(np.ascontiguousarray(array).reshape(array.shape), mark)
    if array.dtype.hasobject:
        return NotImplemented
    if array.base is None or pickler.holders.get((id(array.base), "plain")) is array:
        pickler.note_memory_sent(id(array if array.base is None else array.base))
        return _note_whole(pickler, array)
    mapped = mapped_files.reduce_mapped(pickler, array)
    if mapped is not NotImplemented:
        return mapped
    referred = pickler.reference_for(array)
    if referred is not None:
        return referred
    foreign = foreign_owner(array)
    for adapter in adapters_of(type(foreign)):
        if (reduced := adapter.reduce_array_over(pickler, array, foreign)) is not None:
            return reduced
    owner = memory_root(array)
    if owner is None:
        return _note_whole(pickler, array)
    root = _plain(pickler, owner)
    pickler.keep.append(root)
    covers = array.nbytes * 2 >= root.nbytes or root.nbytes <= _SMALL_BASE_BYTES
    if not covers and not pickler.is_memory_sent(id(owner)):
        return NotImplemented
    pickler.note_memory_sent(id(owner))
    offset = array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    return rebuild_view, (root, array.dtype, array.shape, array.strides, offset, array.flags.writeable)


def _note_whole(pickler: Any, array: Any) -> Any:
    """Its memory travels as numpy writes it: a tensor may look at the same."""
    address = array.__array_interface__["data"][0]
    pickler.note_memory_sent((address, "cpu"))  # as torch knows it
    pickler.arrays[address] = array
    return NotImplemented


@streams.named
def rebuild_view(root: Any, dtype: Any, shape: Any, strides: Any, offset: int, writeable: bool) -> Any:
    """A view on ``root``'s memory."""
    if root.nbytes == 0:
        return np.empty(shape, dtype)
    root = np.ndarray.view(root, np.ndarray)
    memory = (root if root.flags.c_contiguous else root.T).reshape(-1).view("u1")
    view: Any = np.ndarray(shape, dtype, buffer=memory, offset=offset, strides=strides)
    if not writeable:
        view.flags.writeable = False
    return view


def place_array(make: Any, data: Any, *look: Any) -> Any:
    """An array that is read, by numpy's function, over memory that nobody else knows; bytes are of a read-only one."""
    return _owning_memory(make(data if type(data) is bytes else placed(data), *look))


def _owning_memory(array: Any) -> Any:
    """A copy of a small array, which then is the base of its views, as the array was that was sent."""
    if array.nbytes > _MOST_COPIED_BYTES:
        return array
    own = array.copy("K")
    own.flags.writeable = array.flags.writeable
    return own


def _reduce_times(array: Any) -> Any:
    """Dates and durations, which numpy copies into the stream (Python's buffers have no type for them): as numbers."""
    flags = array.flags
    if not (flags.c_contiguous or flags.f_contiguous):
        return NotImplemented
    flat = (array if flags.c_contiguous else array.T).reshape(-1).view("i8")
    order = "C" if flags.c_contiguous else "F"
    return rebuild_times, (pickle.PickleBuffer(flat), array.dtype, array.shape, order, flags.writeable)


@streams.named
def rebuild_times(numbers: Any, dtype: Any, shape: Any, order: str, writeable: bool) -> Any:
    """Dates or durations over the memory of their numbers."""
    memory = placed(numbers) if writeable else numbers
    times: Any = np.ndarray(shape, dtype, buffer=memory, order="C" if order == "C" else "F")
    times.flags.writeable = writeable
    return _owning_memory(times)


def memory_root(array: Any) -> Any:
    """The array that owns a view's memory (or sees all of a foreign buffer), if it is a plain contiguous one."""
    base = _base_of(array)
    if not isinstance(base, np.ndarray):
        return None
    while isinstance(further := _base_of(base), np.ndarray):
        base = further
    flags = base.flags
    if not (flags.c_contiguous or flags.f_contiguous) or base.dtype.hasobject:
        return None
    (low, high), (first, last) = map(_extent, (array, base))
    return base if first <= low and high <= last else None


def _extent(array: Any) -> tuple[int, int]:
    """Addresses of the first and the last byte that may be looked at, the latter exclusive."""
    low = high = array.__array_interface__["data"][0]
    for size, stride in zip(array.shape, array.strides, strict=True):
        low += min(0, (size - 1) * stride)
        high += max(0, (size - 1) * stride)
    return low, high + array.itemsize


def _base_of(array: Any) -> Any:
    """Also of a sliding window, or of a part of a record: an object of numpy's own is between these and their array."""
    base = array.base
    while isinstance(base, np.void) or type(base).__name__ == "DummyArray":
        base = base.base
    return base


def foreign_owner(array: Any) -> Any:
    """The object of another library at whose memory an array looks (``t.numpy()``); None: at none."""
    base = array.base
    while type(base) is np.ndarray:
        base = base.base
    return base


# ------------------------------------------------------------------------------------- records of an array
def as_view(record: Any) -> Any:
    """An array that looks at a record where it lies in the array that it was taken from; None: it lies alone."""
    owner = _base_of(record)
    if not isinstance(owner, np.ndarray) or owner.dtype.hasobject:
        return None
    offset = record.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
    plain: Any = np.ndarray.view(owner, np.ndarray)
    if not 0 <= offset <= plain.nbytes - record.nbytes or not plain.flags.c_contiguous:
        return np.asarray(record)
    return rebuild_view(plain, record.dtype, (), (), offset, record.flags.writeable)


def reduce_record(pickler: Any, record: Any) -> Any:
    """As the element of a view: what is set in it is set in the array."""
    view = as_view(record)
    if view is None:
        return NotImplemented
    pickler.keep.append(view)
    return record_at, (view,)


@streams.named
def record_at(view: Any) -> Any:
    """The record at which a view of one element looks."""
    return view[()]


def reduce_type(_pickler: Any, dtype: Any) -> Any:
    """A type of elements of which numpy has one only, so that it stays that one."""
    is_only = dtype.isbuiltin == 1 and np.dtype(dtype.str) is dtype
    return (np.dtype, (dtype.str,)) if is_only else NotImplemented


def reduce_limits(_pickler: Any, limits: Any) -> Any:
    """``np.finfo(…)``, of which numpy has one for each type: numpy's own way cannot be read."""
    return np.finfo, (limits.dtype,)


def reduce_ufunc(_pickler: Any, ufunc: Any) -> Any:
    """A universal function of ``np.frompyfunc`` by the function in it; others by name."""
    parts = gc.get_referents(ufunc)
    if not ufunc.__name__.endswith(" (vectorized)") or not parts or not callable(parts[0]):
        return NotImplemented
    return make_ufunc, (parts[0], ufunc.nin, ufunc.nout, ufunc.identity)


@streams.named
def make_ufunc(function: Any, count_in: int, count_out: int, identity: Any) -> Any:
    """A universal function that calls ``function`` for each element."""
    return np.frompyfunc(function, count_in, count_out, identity=identity)


_KINDS: dict[type, Reducer] = {
    np.ufunc: reduce_ufunc,
    np.ndarray: reduce_array,
    np.memmap: mapped_files.reduce_mapped,
    np.finfo: reduce_limits,
    np.void: reduce_record,
    np.record: reduce_record,
}
