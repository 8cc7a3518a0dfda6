"""CuPy: arrays, which are numpy arrays that know where they lived, wherever there is no GPU."""

from __future__ import annotations

import contextlib
import importlib
import pickle
import sys
import weakref
from typing import Any

from .. import streams
from .adapter import Adapter, Reader, Reducer, receiving
from .memory import placed

#: id → (weak reference, mark) of numpy arrays, which take no attributes
_ARRAYS: dict[int, tuple[weakref.ref[Any], str]] = {}


def mark_array(array: Any, mark: str) -> None:
    """``array`` stands for one on a device: ``cupy:0``."""
    ident = id(array)
    _ARRAYS[ident] = (weakref.ref(array, lambda _: _ARRAYS.pop(ident, None)), mark)


def array_mark(array: Any) -> str | None:
    """The mark of an array, None for an ordinary one."""
    found = _ARRAYS.get(id(array))
    return found[1] if found is not None and found[0]() is array else None


def reduce_array(pickler: Any, array: Any) -> Any:
    """One on a device."""
    import numpy as np

    host = np.asarray(array.get(), order="C")
    pickler.keep.append(host)
    return reduce_host(host, f"cupy:{array.device.id}")


def reduce_host(host: Any, mark: str) -> Any:
    """A contiguous array in host memory that stands for one on a device."""
    return place_array, (mark, host.dtype, host.shape, pickle.PickleBuffer(host.reshape(-1).view("u1")))


@streams.named
@receiving
def place_array(reader: Reader, mark: str, dtype: Any, shape: Any, data: Any) -> Any:
    """An array on its device, or a host array that stands for it."""
    import numpy as np

    array = np.frombuffer(placed(data), dtype="u1").view(dtype).reshape(shape)
    if reader.realm.has_gpu and not reader.realm.at_home:
        return importlib.import_module("cupy").asarray(array)
    mark_array(array, mark)
    return array


class CupyAdapter(Adapter):
    """Arrays."""

    name = "cupy"
    can_use_gpu = True

    def reducer_for(self, kind: type) -> Reducer | None:
        return reduce_array if kind.__name__ == "ndarray" else None

    def lacks_gpu(self, error: str) -> bool:
        return "cudaErrorNoDevice" in error or "cudaErrorInsufficientDriver" in error

    def has_touched_gpu(self) -> bool:
        with contextlib.suppress(Exception):  # without a driver it cannot be asked
            return bool(sys.modules["cupy"].get_default_memory_pool().total_bytes())
        return False


ADAPTER = CupyAdapter()
