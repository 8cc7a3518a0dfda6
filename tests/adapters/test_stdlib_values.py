"""Bound methods of what has no name."""

from __future__ import annotations

import functools
import operator
import types

from jupyter_gpu_release.serialization import codec
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo
from jupyter_gpu_release.unpickling import Trust


def test_a_partial_that_was_bound_as_a_method_travels() -> None:
    """As ``model.forward = MethodType(partial(…), model)`` makes it."""
    bound = types.MethodType(functools.partial(operator.mul, 3), 7)
    dump = codec.dump({"value": bound}, NamespaceInfo({}, at_home=True))
    assert not dump.failed
    there = NamespaceInfo({}, at_home=False)
    assert codec.load(dump.stream, dump.buffers, there, trust=Trust.OWN).values["value"]() == 21
