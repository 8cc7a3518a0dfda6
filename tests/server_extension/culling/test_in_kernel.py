"""What is asked of a kernel's libraries, with the real torch (CPU build: what counts as a GPU is played)."""

from __future__ import annotations

import json
import time

import pytest
import torch

from jupyter_gpu_release.server_extension.culling import in_kernel


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take all tensors for tensors on a GPU."""
    monkeypatch.setattr(in_kernel, "_on_device", lambda tensor: True)


def _names() -> dict[str, object]:
    model = torch.nn.Linear(3, 1)
    model(torch.ones(2, 3)).sum().backward()
    leaf = torch.ones(4, requires_grad=True)
    (leaf * 2).sum().backward()
    return {"model": model, "leaf": leaf, "batch": torch.zeros(5), "_hidden": torch.zeros(1), "text": "x"}


@pytest.mark.usefixtures("on_device")
def test_only_what_is_named_moves_and_stays_the_same_object() -> None:
    names = _names()
    model, leaf = names["model"], names["leaf"]
    assert isinstance(model, torch.nn.Linear)
    assert isinstance(leaf, torch.Tensor)
    weight, gradient = model.weight, model.weight.grad
    assert gradient is not None
    answer = json.loads(in_kernel.let_go(names, ["model", "leaf", "_*", "text"]))
    assert answer["moved"] == ["leaf", "model"]
    assert answer["notes"] == []
    assert names["model"] is model
    assert model.weight is weight  # an optimiser still refers to it
    assert torch.equal(gradient, weight.grad)  # type: ignore[arg-type]
    assert leaf.is_leaf
    assert torch.equal(leaf.grad, torch.full((4,), 2.0))  # type: ignore[arg-type]


def test_nothing_moves_that_is_on_the_host_or_not_named() -> None:
    assert json.loads(in_kernel.let_go(_names(), ["*"]))["moved"] == []


@pytest.mark.usefixtures("on_device")
def test_nothing_moves_unless_the_user_allowed_it() -> None:
    answer = json.loads(in_kernel.let_go(_names(), []))
    assert answer["moved"] == []
    assert "torch" in answer["libraries"]  # its cache is let go of all the same


def test_a_request_that_comes_too_late_does_nothing() -> None:
    done: list[str] = []

    def deed(name: str) -> str:
        done.append(name)
        return "{}"

    assert json.loads(in_kernel.in_time(deed, time.monotonic() - 1, "a")) == {"late": True}
    assert done == []
    assert in_kernel.in_time(deed, time.monotonic() + 60, "b") == "{}"
    assert done == ["b"]
