"""What belongs to a process group (here of one process) and is sent away from it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

from jupyter_gpu_release.serialization import codec
from jupyter_gpu_release.serialization.diagnosis import find_trouble
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo
from jupyter_gpu_release.unpickling import Trust

#: FSDP warns that one process shards nothing
ONE_PROCESS = pytest.mark.filterwarnings("ignore:.*NO_SHARD:UserWarning")
REMARK = "came back without DistributedDataParallel around its module (wrap it again in the next gang)"


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def home(dump: codec.Dump) -> dict[str, Any]:
    assert not dump.failed
    return codec.load(
        dump.stream, [bytes(buffer) for buffer in dump.buffers], NamespaceInfo({}, at_home=True), trust=Trust.OWN
    ).values


class Backbone(torch.nn.Module):
    """Knows who wraps it, as trainers do it."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Linear(3, 3)
        self.wrapper: list[Any] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)  # type: ignore[no-any-return]


class MyReplica(DistributedDataParallel):
    """A user's own."""


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("is_first", [True, False])
def test_a_replica_and_its_module_are_one_object_in_any_order(is_first: bool) -> None:
    net = Backbone()
    replica = MyReplica(net, gradient_as_bucket_view=True)
    net.wrapper.append(replica)
    replica(torch.ones(2, 3)).sum().backward()
    dist.destroy_process_group()
    names = {"model": replica, "net": net} if is_first else {"net": net, "model": replica}
    dump = codec.dump({**names, "both": [replica, net]}, NamespaceInfo({}, at_home=False))
    back = home(dump)
    assert type(back["model"]) is Backbone
    assert back["model"] is back["net"] is back["net"].wrapper[0] is back["both"][0] is back["both"][1]
    assert torch.equal(back["net"].body.weight.grad, net.body.weight.grad)
    assert dump.notes("came back") == [f"`{next(iter(names))}` {REMARK}"]


def flat(*, names_kept: bool = True) -> tuple[Any, Any]:
    net = Backbone()
    return net, FullyShardedDataParallel(net, use_orig_params=names_kept, device_id=torch.device("cpu"))


def sharded() -> tuple[Any, Any]:
    net = Backbone()
    return net, fully_shard(net, mesh=init_device_mesh("cpu", (1,)))


@pytest.mark.usefixtures("group")
@ONE_PROCESS
def test_the_reason_is_not_looked_for_inside_of_fsdps_own_parameters() -> None:
    net, _model = flat(names_kept=False)
    trouble = find_trouble("net", net, NamespaceInfo({}, at_home=False))
    assert str(trouble).startswith("`net._parameters['_flat_param']`: it is one rank's part of FSDP's parameters")


@pytest.mark.usefixtures("group")
@ONE_PROCESS
@pytest.mark.parametrize(("make", "whole"), [(flat, "get_model_state_dict(model"), (sharded, ".full_tensor()")])
def test_what_is_spread_over_the_ranks_is_refused_with_the_way_to_make_it_whole(make: Any, whole: str) -> None:
    net, model = make()
    opt = torch.optim.Adam(model.parameters())
    realm = NamespaceInfo({}, at_home=False)
    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    assert set(home(codec.dump({"state": state}, realm))["state"]) == {"body.weight", "body.bias"}
    names = {"other": 5, "model": model, "layer": net.body, "deep": {"it": [model]}, "opt": opt}
    dump = codec.dump(names, realm)
    assert set(dump.failed) == {"model", "layer", "deep", "opt"}
    assert home(codec.dump({"other": 5}, realm)) == {"other": 5}
    said = {name: str(find_trouble(name, names[name], realm)) for name in dump.failed}
    assert said["model"].startswith(
        "`model`: FSDP keeps a part of its parameters on each rank; whole is, in all ranks,"
    )
    assert said["model"].endswith("get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))")
    assert said["deep"].startswith("`deep['it'][0]`: FSDP keeps")
    for name in ("layer", "opt"):
        assert "it is one rank's part of" in said[name]
        assert whole in said[name]


def test_a_tensor_whose_memory_was_let_go_is_refused_alone() -> None:
    """FSDP frees what its module wraps; such a tensor could not be read at home, nor anything sent with it."""
    tensor = torch.ones(3)
    tensor.untyped_storage().resize_(0)
    dump = codec.dump({"tensor": tensor, "empty": torch.empty(0, 3)}, NamespaceInfo({}, at_home=False))
    assert "its memory was let go" in str(dump.failed.pop("tensor"))
    assert home(dump)["empty"].shape == (0, 3)


def test_nothing_of_torch_is_imported_to_ask() -> None:
    """Kernels and nodes load these modules whether there is a torch or not."""
    ask = (
        "import sys\nfrom jupyter_gpu_release.serialization import codec; "
        "from jupyter_gpu_release.adapters.torch.adapter import ADAPTER\n"
        "codec.dump({'x': {'y': object()}}, codec.NamespaceInfo({}, at_home=True))\n"
        "assert ADAPTER.unwrapped(5) == 5\n"
        "print([name for name in sys.modules if name.split('.')[0] == 'torch'])"
    )
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
