"""Places in memory that several arrays and tensors look at."""

from __future__ import annotations

import ctypes
import math
from typing import Any, NamedTuple

from .. import streams


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


#: larger arrays and shared tensors are exchanged instead, so that what came back stays mapped from its file
LARGEST_COPIED_BYTES = 256 << 20


# ------------------------------------------------------------------------------------------ Python's own buffers
#: the class of all objects of ctypes
CData: Any = ctypes.Structure.__base__
#: under which an object of ctypes keeps what it looks at (``from_buffer``)
_SOURCE = "ffffffff"


class Placed(bytearray):
    """Memory that came here as that of one array or tensor; nobody knows it as a buffer."""


def placed(data: Any) -> Any:
    """Bytes as memory that a new array may have; others' memory (a mapped file) as it is."""
    return Placed(data) if type(owner_of(data)) in (bytes, bytearray) else data


def owner_of(thing: Any) -> Any:
    """The object whose memory a buffer shows: itself, or what it looks at."""
    while (further := looked_at(thing)) is not None:
        thing = further
    return thing


def looked_at(thing: Any) -> Any:
    """The object at whose memory a memoryview or an object of ctypes looks; None: it has its own."""
    if type(thing) is memoryview:
        return thing.obj
    if not isinstance(thing, CData):
        return None
    if thing._b_base_ is not None:
        return thing._b_base_
    kept = thing._objects
    return kept.get(_SOURCE) if isinstance(kept, dict) else None
