"""Rebuilding on a device. ``meta`` stands for the GPU: a second device that every torch has; values are not checked."""

from __future__ import annotations

import io
import pickle
from typing import Any

import pytest

pytest.importorskip("torch")
import torch

from jupyter_gpu_release.adapters.torch import device_marks
from jupyter_gpu_release.adapters.torch.adapter import ADAPTER
from jupyter_gpu_release.adapters.torch.tensors import tensor_sums
from jupyter_gpu_release.serialization import codec
from jupyter_gpu_release.serialization.pickler import GraphPickler
from jupyter_gpu_release.serialization.process_state import random_states
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo
from jupyter_gpu_release.unpickling import Trust


def trip(values: dict[str, Any], *, has_gpu: bool, at_home: bool = False) -> dict[str, Any]:
    dump = codec.dump(values, NamespaceInfo({}, at_home=True))
    assert not dump.failed
    buffers = [bytes(buffer) for buffer in dump.buffers]
    return codec.load(dump.stream, buffers, NamespaceInfo({}, at_home=at_home, has_gpu=has_gpu), trust=Trust.OWN).values


def marked_model() -> dict[str, Any]:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    optimiser = torch.optim.Adam(model.parameters())
    model(torch.randn(8, 4)).sum().backward()
    optimiser.step()
    for tensor in [*model.parameters(), *model.buffers(), *(p.grad for p in model.parameters())]:
        device_marks.mark_tensor(tensor, "meta")
    for state in optimiser.state.values():
        device_marks.mark_tensor(state["exp_avg"], "meta")
    return {"model": model, "optimiser": optimiser, "plain": torch.ones(2)}


def test_marked_tensors_go_to_their_device_with_gradients_and_optimiser_state() -> None:
    back = trip(marked_model(), has_gpu=True)
    model, optimiser = back["model"], back["optimiser"]
    assert {tensor.device.type for tensor in [*model.parameters(), *model.buffers()]} == {"meta"}
    assert {parameter.grad.device.type for parameter in model.parameters()} == {"meta"}
    first = next(model.parameters())
    assert optimiser.param_groups[0]["params"][0] is first
    assert optimiser.state[first]["exp_avg"].device.type == "meta"
    assert optimiser.state[first]["step"].device.type == "cpu"
    assert back["plain"].device.type == "cpu"


@pytest.mark.parametrize(("has_gpu", "at_home"), [(False, False), (True, True)])
def test_without_a_gpu_the_marks_stay(has_gpu: bool, at_home: bool) -> None:
    back = trip(marked_model(), has_gpu=has_gpu, at_home=at_home)
    assert {tensor.device.type for tensor in back["model"].parameters()} == {"cpu"}
    assert {device_marks.tensor_mark(tensor) for tensor in back["model"].parameters()} == {"meta"}
    assert device_marks.tensor_mark(back["plain"]) == ""


def test_views_share_one_storage_on_the_device() -> None:
    base = torch.arange(8.0)
    device_marks.mark_tensor(base, "meta")
    back = trip({"a": base, "b": base[2:4]}, has_gpu=True)
    assert back["b"].device.type == "meta"
    assert back["b"].untyped_storage()._cdata == back["a"].untyped_storage()._cdata
    assert back["b"].storage_offset() == 2


@pytest.mark.parametrize("order", [("tensor", "array"), ("array", "tensor")])
def test_an_array_over_a_tensor_that_goes_to_a_device_stays_an_array(order: tuple[str, str]) -> None:
    tensor = torch.arange(6.0)
    device_marks.mark_tensor(tensor, "meta")
    both = {"tensor": tensor, "array": tensor.numpy()}
    back = trip({name: both[name] for name in order}, has_gpu=True)
    assert back["tensor"].device.type == "meta"
    assert back["array"].tolist() == [0, 1, 2, 3, 4, 5]
    home = trip({name: both[name] for name in order}, has_gpu=True, at_home=True)
    assert device_marks.tensor_mark(home["tensor"]) == "meta"
    assert home["tensor"].tolist() == home["array"].tolist()


def test_a_mark_is_no_attribute_of_the_users() -> None:
    tensor = torch.ones(1)
    tensor.mine = 1
    device_marks.mark_tensor(tensor, "cuda:0")
    back = trip({"t": tensor}, has_gpu=False)["t"]
    assert back.mine == 1
    device_marks.unmark_tensor(back)
    assert vars(back) == {"mine": 1}
    assert device_marks.tensor_mark(back) == ""


def test_a_device_index_that_is_not_here_becomes_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [device_marks.local_device(name) for name in ("cuda", "cuda:1", "cuda:5")] == ["cuda", "cuda:1", "cuda:0"]


def test_devices_at_home_in_a_rank_and_back() -> None:
    stream = codec.dump(
        {"d": torch.device("cuda:0"), "c": torch.device("cpu")}, NamespaceInfo({}, at_home=False)
    ).stream
    home = codec.load(stream, [], NamespaceInfo({}, at_home=True), trust=Trust.OWN).values
    assert home["d"].type == "cpu"
    assert device_marks.torch_device_mark(home["d"]) == "cuda:0"
    assert device_marks.torch_device_mark(home["c"]) == ""
    again = codec.dump(home, NamespaceInfo({}, at_home=True)).stream
    there = codec.load(again, [], NamespaceInfo({}, at_home=False), trust=Trust.OWN).values
    assert (there["d"].type, device_marks.torch_device_mark(there["d"])) == ("cpu", "cuda:0")


def test_large_tensors_are_out_of_band_without_a_copy() -> None:
    tensor = torch.zeros(100_000)
    dump = codec.dump(
        {"t": tensor, "again": [tensor], "param": torch.nn.Parameter(tensor)}, NamespaceInfo({}, at_home=True)
    )
    assert [buffer.nbytes for buffer in dump.buffers] == [400_000]
    assert len(dump.stream) < 2000
    tensor[3] = 7
    assert memoryview(dump.buffers[0]).cast("f")[3] == 7


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.int8, torch.bool, torch.bfloat16, torch.complex64]
)
def test_sums_notice_any_change(dtype: torch.dtype) -> None:
    tensor = torch.zeros(1003, dtype=dtype)
    before = tensor_sums(tensor)
    assert tensor_sums(tensor.clone()) == before
    for at in (0, 500, 1002):
        changed = tensor.clone()
        changed[at] = 1
        assert tensor_sums(changed) != before
    swapped = torch.zeros(1003, dtype=dtype)
    swapped[3] = 1
    other = torch.zeros(1003, dtype=dtype)
    other[4] = 1
    assert tensor_sums(swapped) != tensor_sums(other)


def test_sums_of_large_tensors_are_taken_in_pieces() -> None:
    assert len(tensor_sums(torch.zeros((64 << 20) + 5, dtype=torch.uint8))) == 4
    assert tensor_sums(torch.zeros(0)) == []


def test_a_fingerprint_of_a_device_tensor_moves_no_data() -> None:
    buffers: list[Any] = []
    pickler = GraphPickler(io.BytesIO(), NamespaceInfo({}, at_home=False), buffers, compact=True)
    pickler.dump(torch.zeros(100_000))
    assert len(buffers) == 1


def test_detaching_is_remarked() -> None:
    weight = torch.ones(2, requires_grad=True)
    dump = codec.dump(
        {"w": weight, "loss": weight.sum(), "deep": {"l": [weight * 2]}}, NamespaceInfo({}, at_home=False)
    )
    assert dump.notes("came back") == [
        f"`{name}` came back detached from its computation graph" for name in ("loss", "deep")
    ]


def test_cuda_seed_follows_manual_seed_and_else_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        seeds.clear()
        ADAPTER.seed_devices()
        torch.rand(1)
        ADAPTER.seed_devices()
        ADAPTER.seed_devices()
        torch.rand(1)
        ADAPTER.seed_devices()
    assert seeds[0] == 11
    assert seeds[1] == seeds[2] != 11
    assert seeds[3] not in seeds[:3]


def test_a_cell_that_used_the_gpu_moves_the_seed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.random.fork_rng(devices=[]):
        before = torch.get_rng_state()
        random_states.step_after_devices()
        assert torch.equal(torch.get_rng_state(), before)
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        random_states.step_after_devices()
        assert not torch.equal(torch.get_rng_state(), before)


def test_plain_pickle_refuses_a_graph() -> None:
    stream = codec.dump({"t": torch.ones(1)}, NamespaceInfo({}, at_home=True)).stream
    unpickler = pickle.Unpickler(io.BytesIO(stream))
    unpickler.load()
    with pytest.raises(TypeError, match="codec"):
        unpickler.load()
