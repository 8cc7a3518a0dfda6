"""The memory that arrays and views look at."""

from __future__ import annotations

import bisect
import itertools
import math
import sys
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ... import streams
from ...adapters.torch import device_marks


def memory_of(pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """Key of replaced memory (root array's id, or storage's address) → the new root array, or storage."""
    found: dict[Any, Any] = {}
    for old, new in pairs:
        kind = type(old)
        if kind.__module__ == "numpy" and kind.__name__ == "ndarray" and type(new) is kind:
            _note_array(found, old, new)
        key = storage_key(old)
        if key and type(new) is kind and old.dtype == new.dtype:
            storage = new.untyped_storage()
            if storage.nbytes() == old.untyped_storage().nbytes() and old.storage_offset() == new.storage_offset():
                found[key] = storage
    return found


def _note_array(found: dict[Any, Any], old: Any, new: Any) -> None:
    from ...adapters.numpy import arrays

    old_root, new_root = (each if each.base is None else arrays.memory_root(each) for each in (old, new))
    if new_root is None:  # it looks at a foreign buffer itself
        new_root = new
    if old_root is None:
        return
    same = old_root.nbytes == new_root.nbytes and not old.dtype.hasobject and old.dtype == new.dtype
    if same and old_root.flags.c_contiguous == new_root.flags.c_contiguous and new_root.flags.forc:
        found[id(old_root)] = new_root


def storage_key(value: Any) -> Any:
    """The place of a CPU tensor's memory; None for anything else."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return None
    if value.device.type != "cpu" or not value.untyped_storage().nbytes():
        return None
    return "storage", value.untyped_storage().data_ptr()


def copy_into_view(old: Any, new: Any) -> bool:
    """Tell if ``old`` is a view whose memory was not sent, and got the values of ``new``: the memory sees them, too."""
    kind = type(old)
    if type(new) is not kind or kind.__name__ not in ("ndarray", "Tensor"):
        return False
    if kind.__module__ == "numpy":
        root = getattr(old.base, "nbytes", 0)
        if old.shape != new.shape or old.dtype != new.dtype or root <= old.nbytes or not old.flags.writeable:
            return False
        if getattr(new.base, "nbytes", 0) == root:
            return False
        old[...] = new
        return True
    if storage_key(old) is None or old.shape != new.shape or old.dtype != new.dtype or old.requires_grad:
        return False
    if old.untyped_storage().nbytes() <= max(old.nbytes, new.untyped_storage().nbytes()):
        return False
    old.data.copy_(new.data)
    return True


# ------------------------------------------------------------------- views of memory that is in another process, too
@streams.named
class Layout(NamedTuple):
    """The place of an array's or a tensor's elements; strides in bytes."""

    device: str
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int

    @property
    def extent(self) -> tuple[int, int]:
        """First byte, and the one behind the last."""
        reach = [stride * (length - 1) for stride, length in zip(self.strides, self.shape, strict=True)]
        low, high = sum(min(0, each) for each in reach), sum(max(0, each) for each in reach)
        return self.address + low, self.address + high + self.itemsize

    @property
    def is_dense(self) -> bool:
        """Tell if all memory from the first to the last byte is its own."""
        low, high = self.extent
        return 0 < high - low == math.prod(self.shape) * self.itemsize

    def digits(self, offset: int) -> list[int] | None:
        """Steps along each axis that lead ``offset`` bytes on of a dense layout without negative strides."""
        steps, left = [0] * len(self.shape), abs(offset)
        for axis in sorted(range(len(self.shape)), key=lambda each: -self.strides[each]):
            if self.shape[axis] > 1:
                count, left = divmod(left, self.strides[axis])
                steps[axis] = count if offset >= 0 else -count
        return None if left else steps


@streams.named
class Place(NamedTuple):
    """A view as a place in the memory of an object that is known by ``key``; ``base``: that object's layout there."""

    key: Any
    base: Layout
    #: bytes from the object's first element to the view's
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any
    #: None for an array, else the tensor's class
    kind: Any
    #: an array's ``writeable``, a tensor's ``requires_grad``
    flag: bool

    def within(self, now: Layout) -> tuple[int, tuple[int, ...]]:
        """Offset and strides where the object is laid out as ``now``; raises :class:`NotThereError`."""
        if (now.shape, now.itemsize) != (self.base.shape, self.base.itemsize):
            raise NotThereError
        axes = [axis for axis, length in enumerate(now.shape) if length > 1]
        if all(now.strides[axis] == self.base.strides[axis] for axis in axes):
            return self.offset, self.strides
        if self.dtype.itemsize != now.itemsize or min(self.base.strides, default=0) < 0:
            raise NotThereError
        start, steps = self.base.digits(self.offset), [self.base.digits(stride) for stride in self.strides]
        if start is None or None in steps:
            raise NotThereError
        for axis in axes:  # a view that leaves a row at its end is a copy in the notebook, too
            ends = [step[axis] * (length - 1) for step, length in zip(steps, self.shape, strict=True) if step]
            low, high = (start[axis] + sum(bound(0, end) for end in ends) for bound in (min, max))
            if low < 0 or high >= now.shape[axis]:
                raise NotThereError
        strides = tuple(sum(map(math.prod, zip(step or (), now.strides, strict=True))) for step in steps)
        return sum(map(math.prod, zip(start, now.strides, strict=True))), strides


class NotThereError(Exception):
    """The notebook's object has no such place (any more)."""


class KnownMemory:
    """Memory of arrays and tensors: (key, object) of each."""

    def __init__(self, objects: Iterable[tuple[Any, Any]]) -> None:
        self._objects: Iterable[tuple[Any, Any]] | None = objects
        #: by device, in order: first bytes, and (behind the last, key, layout); none lies within another
        self._spans: dict[str, tuple[list[int], list[tuple[int, Any, Layout]]]] = {}

    def place_of(self, view: Any) -> Place | None:
        """The place that ``view`` looks at; None: it looks at no memory that is known."""
        if self._objects is not None:
            self._take(self._objects)
            self._objects = None
        layout = layout_of(view)
        starts, spans = self._spans.get(layout.device if layout is not None else "", ((), ()))
        if layout is None or not starts or 0 in layout.shape:
            return None
        low, high = layout.extent
        at = bisect.bisect_right(starts, low) - 1
        if at < 0 or high > spans[at][0]:
            return None
        _, key, base = spans[at]
        is_array = isinstance(view, sys.modules["numpy"].ndarray) if "numpy" in sys.modules else False
        return Place(
            key,
            base,
            layout.address - base.address,
            layout.shape,
            layout.strides,
            view.dtype,
            None if is_array else type(view),
            bool(view.flags.writeable if is_array else view.requires_grad),
        )

    def _take(self, objects: Iterable[tuple[Any, Any]]) -> None:
        found: dict[str, list[tuple[int, int, Any, Layout]]] = {}
        for key, thing in objects:
            layout = layout_of(thing)
            if layout is not None and layout.is_dense:
                low, high = layout.extent
                found.setdefault(layout.device, []).append((low, -high, key, layout))
        for device, each in found.items():
            each.sort(key=lambda span: span[:2])
            reach = [0, *itertools.accumulate((-high for _, high, *_ in each), max)]
            widest = [span for span, before in zip(each, reach, strict=False) if -span[1] > before]
            self._spans[device] = [low for low, *_ in widest], [(-high, key, layout) for _, high, key, layout in widest]


def layout_of(thing: Any) -> Layout | None:
    """The layout of an array (without objects in it) or of a strided tensor; None for anything else."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and isinstance(thing, numpy.ndarray):
        if thing.dtype.hasobject:
            return None
        address = thing.__array_interface__["data"][0]
        return Layout("cpu", address, thing.shape, thing.strides, thing.itemsize)
    if torch is None or not isinstance(thing, torch.Tensor):
        return None
    if thing.layout is not torch.strided or thing.device.type == "meta" or thing.is_conj() or thing.is_neg():
        return None
    try:
        address, size = thing.data_ptr(), thing.element_size()
    except RuntimeError:  # a tensor without memory of its own (a subclass, a transform's)
        return None
    return Layout(str(thing.device), address, tuple(thing.shape), tuple(size * each for each in thing.stride()), size)


def place_in(live: Any, place: Place) -> Any:
    """The view at this place of the notebook's object; raises :class:`NotThereError`."""
    now = layout_of(live)
    if now is None:
        raise NotThereError
    offset, strides = place.within(now)
    try:
        if place.kind is None:
            return _array_at(live, now, offset, strides, place)
        return _tensor_at(live, now, offset, strides, place)
    except (ValueError, TypeError, RuntimeError) as error:
        raise NotThereError from error


def _array_at(live: Any, now: Layout, offset: int, strides: tuple[int, ...], place: Place) -> Any:
    import numpy

    start, memory = _bytes_of(live, to_write=place.flag)
    view: Any = numpy.ndarray(
        place.shape, place.dtype, buffer=memory, offset=now.address + offset - start, strides=strides
    )
    if not place.flag:
        view.flags.writeable = False
    return view


def _tensor_at(live: Any, now: Layout, offset: int, strides: tuple[int, ...], place: Place) -> Any:
    import torch

    from ...adapters.torch.tensors import rebuild_tensor

    if isinstance(live, torch.Tensor):
        storage, mark = live.untyped_storage(), device_marks.tensor_mark(live)
    else:
        with warnings.catch_warnings():  # an array that cannot be written to
            warnings.simplefilter("ignore")
            storage, mark = torch.from_numpy(_bytes_of(live)[1]).untyped_storage(), ""
    size, at = place.dtype.itemsize, now.address + offset - storage.data_ptr()
    low, high = Layout("", at, place.shape, strides, size).extent
    if low < 0 or high > storage.nbytes() or at % size or any(stride % size for stride in strides):
        raise NotThereError
    steps = tuple(stride // size for stride in strides)
    tensor = rebuild_tensor(place.kind, storage, place.dtype, at // size, place.shape, steps, place.flag)
    if mark:
        setattr(tensor, device_marks.ATTRIBUTE, mark)
    return tensor


def _bytes_of(live: Any, *, to_write: bool = False) -> tuple[int, Any]:
    """Address and bytes (as an array) of the memory that an array or tensor looks at.

    ``to_write``: through its owner, if only the view is read-only.
    """
    import numpy

    from ...adapters.numpy import arrays

    root = live
    if not isinstance(live, numpy.ndarray):
        torch = sys.modules["torch"]
        root = torch.empty(0, dtype=torch.uint8).set_(live.untyped_storage()).numpy()
    elif live.base is not None and (not live.flags.forc or (to_write and not live.flags.writeable)):
        root = arrays.memory_root(live)
    if root is None or not root.flags.forc:
        raise NotThereError
    root = numpy.ndarray.view(root, numpy.ndarray)
    memory: Any = (root if root.flags.c_contiguous else root.T).reshape(-1).view("u1")
    return root.__array_interface__["data"][0], memory


def in_writing_order(values: Mapping[str, Any]) -> dict[str, Any]:
    """Sort values: what a view looks at is written before the view, so that it is not copied."""
    return dict(sorted(values.items(), key=lambda item: _rank(item[1])))


def _rank(value: Any) -> int:
    """Arrays before all that may look at their memory; parts of a larger memory last."""
    return 2 if _is_partial_view(value) else int(type(value).__module__ != "numpy")


def _is_partial_view(value: Any) -> bool:
    kind = type(value)
    if kind.__module__ == "numpy" and kind.__name__ == "ndarray":
        base = value.base
        return base is not None and getattr(base, "nbytes", 0) > value.nbytes
    if kind.__module__ == "torch" and kind.__name__ == "Tensor":
        try:
            partial: bool = value.untyped_storage().nbytes() > value.nbytes
        except RuntimeError:  # a layout without a storage
            return False
        return partial
    return False
