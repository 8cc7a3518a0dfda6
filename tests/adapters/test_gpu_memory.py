"""The memory of a part of a GPU, as libraries are told of it."""

from __future__ import annotations

import os

import pytest

from jupyter_gpu_release.adapters.gpu_memory import limit_gpu_memory

_GIB = 1 << 30


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
