"""The memory of a part of a GPU, as libraries are told of it."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest

from jupyter_gpu_release.adapters import tensorflow
from jupyter_gpu_release.adapters.gpu_memory import GpuMemoryLimit

_GIB = 1 << 30


def limit_gpu_memory(part: float, part_bytes: int) -> list[str]:
    """The notes on it."""
    notes: list[str] = []
    GpuMemoryLimit(part, part_bytes, notes).set_loaded()
    return notes


def test_libraries_get_the_part_without_what_cuda_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", "")
    queued, told = [], []
    monkeypatch.setattr(torch.cuda, "_lazy_call", queued.append)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", told.append)
    limit_gpu_memory(0.5, 10 * _GIB)
    assert os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.4750"
    assert told == []  # the GPU is not opened for it
    for call in queued:
        call()
    assert told == [0.475]
    limit_gpu_memory(0.5, _GIB // 2)  # of a small one CUDA leaves half
    assert os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.2500"


def test_where_the_memory_is_not_known_it_is_the_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", "")
    limit_gpu_memory(0.25, 0)
    assert os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.2500"


def test_a_users_own_smaller_limit_stays_and_jax_gets_no_second_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XLA_PYTHON_CLIENT_MEM_FRACTION", raising=False)
    monkeypatch.setenv("XLA_CLIENT_MEM_FRACTION", "0.1")
    limit_gpu_memory(0.25, 0)
    assert os.environ["XLA_CLIENT_MEM_FRACTION"] == "0.1000"
    assert "XLA_PYTHON_CLIENT_MEM_FRACTION" not in os.environ


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """TensorFlow is loaded, as far as limits go; it itself is too large for the tests' environment."""
    made = SimpleNamespace(_context_handle=None, _config=None)
    config = SimpleNamespace(
        GPUOptions=lambda **given: given["per_process_gpu_memory_fraction"], ConfigProto=lambda gpu_options: gpu_options
    )
    modules = {
        "tensorflow": SimpleNamespace(),
        "tensorflow.core": SimpleNamespace(),
        "tensorflow.core.protobuf": SimpleNamespace(config_pb2=config),
        "tensorflow.python.eager.context": SimpleNamespace(context=lambda: made),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return made


def test_tensorflow_gets_a_share_and_no_virtual_devices_which_would_forbid_memory_growth(
    context: SimpleNamespace,
) -> None:
    tensorflow.ADAPTER.limit_gpu_memory(0.25)
    assert context._config == 0.25


def test_a_library_that_cannot_be_limited_any_more_is_named_with_the_reason(
    context: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", "")
    context._context_handle = object()
    (note,) = [note for note in limit_gpu_memory(0.25, 0) if "tensorflow" in note]
    assert note.endswith("does not limit its memory to the part of the GPU: it has opened its devices already")
