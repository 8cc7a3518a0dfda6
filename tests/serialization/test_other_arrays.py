# ruff: noqa: E501
"""CuPy arrays by way of a stand-in for the library (it needs a GPU to be imported), JAX where it is installed."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import pytest

from jupyter_gpu_release.adapters import cupy as marks
from jupyter_gpu_release.adapters.cupy import array_mark, mark_array
from jupyter_gpu_release.serialization import codec
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo
from jupyter_gpu_release.unpickling import Trust


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the codec uses of CuPy: ``ndarray.get()``, ``ndarray.device.id``, ``asarray``."""
    module = types.ModuleType("cupy")
    source = (
        "import numpy, types\nclass ndarray:\n    def __init__(self, host): self.host, self.device = host, types.SimpleNamespace(id=1)\n"
        "    def get(self): return self.host.copy()\ndef asarray(host): return ndarray(numpy.array(host))"
    )
    exec(source, vars(module))
    vars(module)["ndarray"].__module__ = "cupy"
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


def carry(values: dict[str, Any], sender: NamespaceInfo, receiver: NamespaceInfo) -> dict[str, Any]:
    dump = codec.dump(values, sender)
    assert not dump.failed
    return codec.load(dump.stream, [bytes(buffer) for buffer in dump.buffers], receiver, trust=Trust.OWN).values


@pytest.mark.parametrize("shape", [(1000,), (3, 4), (), (2, 0)])
def test_cupy_arrays_come_home_as_numpy_and_go_back(cupy: Any, shape: tuple[int, ...]) -> None:
    data = np.arange(float(np.prod(shape))).reshape(shape) if shape else np.array(3.0)
    array = cupy.asarray(data)
    home = carry(
        {"a": array, "b": [array]}, NamespaceInfo({}, at_home=False, has_gpu=True), NamespaceInfo({}, at_home=True)
    )
    assert type(home["a"]) is np.ndarray
    assert home["a"] is home["b"][0]
    assert np.array_equal(home["a"], data)
    assert array_mark(home["a"]) == "cupy:1"
    home["a"][...] = 7
    back = carry(home, NamespaceInfo({}, at_home=True), NamespaceInfo({}, at_home=False, has_gpu=True))
    assert type(back["a"]) is cupy.ndarray
    assert back["a"] is back["b"][0]
    assert np.array_equal(back["a"].host, np.full(shape, 7.0))


def test_without_a_gpu_they_stay_numpy_and_keep_their_mark(cupy: Any) -> None:
    home = carry(
        {"a": cupy.asarray(np.ones(3))}, NamespaceInfo({}, at_home=False, has_gpu=True), NamespaceInfo({}, at_home=True)
    )
    there = carry(home, NamespaceInfo({}, at_home=True), NamespaceInfo({}, at_home=False))
    assert type(there["a"]) is np.ndarray
    assert array_mark(there["a"]) == "cupy:1"


def test_a_mark_goes_with_its_array() -> None:
    array = np.ones(3)
    mark_array(array, "cupy:0")
    ident = id(array)
    assert array_mark(array) == "cupy:0"
    assert array_mark(array[:]) is None
    del array
    assert ident not in marks._ARRAYS


def test_jax_arrays() -> None:
    jax = pytest.importorskip("jax")
    values = {"a": jax.numpy.arange(2000.0), "k": jax.random.key(3)}
    back = carry(values, NamespaceInfo({}, at_home=True), NamespaceInfo({}, at_home=False))
    assert isinstance(back["a"], jax.Array)
    assert jax.numpy.array_equal(back["a"], values["a"])
    assert jax.random.bits(back["k"]) == jax.random.bits(values["k"])


def test_weak_types_of_jax() -> None:
    jnp = pytest.importorskip("jax").numpy
    values = {"weak": jnp.asarray(2.0), "row": jnp.asarray(2.0) + jnp.asarray(3), "not": jnp.ones(2)}
    back = carry(values, NamespaceInfo({}, at_home=True), NamespaceInfo({}, at_home=False))
    assert {name: each.weak_type for name, each in back.items()} == {"weak": True, "row": True, "not": False}
    assert (back["weak"] * jnp.ones(2, jnp.bfloat16)).dtype == jnp.bfloat16
