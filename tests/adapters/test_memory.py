"""Places of arrays in memory, and which memory stands in the place of another's."""

from __future__ import annotations

import math

import numpy as np
import pytest

from jupyter_gpu_release.adapters.memory import Layout
from jupyter_gpu_release.adapters.numpy.memory import replaced_memory

_WHOLE = np.zeros((4, 6, 5), dtype=np.int16)
_VIEWS = {
    "whole": _WHOLE,
    "backwards": _WHOLE[::-1],
    "steps back and forth": _WHOLE[::2, ::-3, 1:4],
    "turned": _WHOLE.T[1:, ::-1],
    "a row": _WHOLE[2, 3],
}


def _layout(array: np.ndarray) -> Layout:
    return Layout("", array.__array_interface__["data"][0], array.shape, array.strides, array.itemsize)


@pytest.mark.parametrize("view", _VIEWS.values(), ids=_VIEWS)
def test_a_layout_ends_where_numpy_says(view: np.ndarray) -> None:
    layout = _layout(view)
    assert layout.extent == np.lib.array_utils.byte_bounds(view)
    low, high = layout.extent
    assert layout.is_dense == (high - low == view.nbytes)


def test_steps_lead_to_an_offset() -> None:
    layout = _layout(_WHOLE)
    for offset in (0, 2, 10, 60, -62, 238):
        steps = layout.digits(offset)
        assert steps is not None
        assert sum(map(math.prod, zip(steps, layout.strides, strict=True))) == offset
    assert layout.digits(1) is None


def test_memory_is_replaced_by_that_of_the_same_form() -> None:
    old, new = np.arange(4.0), np.arange(4.0)
    foreign = np.frombuffer(bytearray(32))
    assert replaced_memory(old, new) == {id(old): new}
    assert replaced_memory(old[1:3], new[1:3]) == {id(old): new}
    assert replaced_memory(old, foreign) == {id(old): foreign}
    assert replaced_memory(foreign, new) == {}
    for other in (np.arange(5.0), np.arange(4), np.array([None] * 4)):
        assert replaced_memory(old, other) == {}
