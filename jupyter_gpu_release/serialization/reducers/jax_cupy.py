"""JAX and CuPy arrays as numpy arrays on the way. Loaded only where one of them is."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from ... import streams


def jax_reducer_for(kind: type) -> Any:
    """The reducer for a JAX array, None for JAX's own way (keys, tracers, the rest)."""
    return reduce_jax if kind.__name__ == "ArrayImpl" else None


def reduce_jax(_pickler: Any, array: Any) -> Any:
    """A whole JAX array; it goes to the receiver's default device, which is the GPU where there is one."""
    import jax

    if not array.is_fully_addressable or jax.dtypes.issubdtype(array.dtype, jax.dtypes.extended):
        return NotImplemented
    return make_jax, (np.asarray(array),)


@streams.named
def make_jax(array: Any) -> Any:
    """A JAX array on the default device."""
    import jax

    if jax.dtypes.canonicalize_dtype(array.dtype) == array.dtype:
        return jax.device_put(array)
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        return jax.device_put(array)  # whatever is set here: it came from where such arrays are made


def cupy_reducer_for(kind: type) -> Any:
    """The reducer for a CuPy array."""
    return reduce_cupy if kind.__name__ == "ndarray" else None


def reduce_cupy(pickler: Any, array: Any) -> Any:
    """A CuPy array comes home as a numpy array that knows it."""
    from .. import device_marks

    host = np.asarray(array.get(), order="C")
    pickler.keep.append(host)
    mark = f"cupy:{array.device.id}"
    return device_marks.place_array, (mark, host.dtype, host.shape, pickle.PickleBuffer(host.reshape(-1).view("u1")))
