"""The same on a real GPU (skipped without one)."""

from __future__ import annotations

from typing import Any

import pytest
from optional_libraries import torch

from jupyter_gpu_release.adapters.torch import device_marks
from jupyter_gpu_release.serialization import codec
from jupyter_gpu_release.serialization.hashing.fingerprints import FingerprintReader
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo
from jupyter_gpu_release.unpickling import Trust

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]


def carry(values: dict[str, Any], sender: NamespaceInfo, receiver: NamespaceInfo) -> dict[str, Any]:
    dump = codec.dump(values, sender)
    assert not dump.failed
    return codec.load(dump.stream, [bytes(buffer) for buffer in dump.buffers], receiver, trust=Trust.OWN).values


def rank() -> NamespaceInfo:
    return NamespaceInfo({}, at_home=False, has_gpu=True)


def test_home_as_cpu_objects_and_back_on_the_device() -> None:
    model = torch.nn.Linear(4, 4).cuda()
    optimiser = torch.optim.Adam(model.parameters())
    model(torch.randn(8, 4, device="cuda")).sum().backward()
    optimiser.step()
    there = {
        "model": model,
        "optimiser": optimiser,
        "device": torch.device("cuda"),
        "sparse": torch.eye(3).to_sparse().cuda(),
    }
    home = carry(there, rank(), NamespaceInfo({}, at_home=True))
    assert {parameter.device.type for parameter in home["model"].parameters()} == {"cpu"}
    assert torch.equal(home["model"].weight, model.weight.cpu())
    assert torch.equal(home["model"].weight.grad, model.weight.grad.cpu())
    assert home["device"].type == home["sparse"].device.type == "cpu"
    assert {device_marks.tensor_mark(parameter) for parameter in home["model"].parameters()} == {"cuda:0"}
    back = carry(home, NamespaceInfo({}, at_home=True), rank())
    first = back["model"].weight
    assert first.device.type == first.grad.device.type == back["device"].type == "cuda"
    assert back["optimiser"].param_groups[0]["params"][0] is first
    assert back["optimiser"].state[first]["exp_avg"].device.type == "cuda"
    assert torch.equal(first, model.weight)


def test_changes_are_found_on_the_device() -> None:
    realm = rank()
    values = {"changed": torch.zeros(1_000_003, device="cuda"), "same": torch.nn.Linear(100, 100).cuda()}
    reader = FingerprintReader(realm, [])
    before = {name: reader.read_fingerprint(value) for name, value in values.items()}
    values["changed"].data[1_000_002] = 1
    reader = FingerprintReader(realm, [])
    assert [name for name, value in values.items() if not reader.is_same(before[name], value)] == ["changed"]


def test_views_share_memory_on_the_device() -> None:
    base = torch.arange(8.0, device="cuda")
    home = carry({"a": base, "b": base[2:4]}, rank(), NamespaceInfo({}, at_home=True))
    home["a"][2] = 100
    assert home["b"][0] == 100
    back = carry(home, NamespaceInfo({}, at_home=True), rank())
    back["a"][3] = -1
    assert back["b"].tolist() == [100, -1]
