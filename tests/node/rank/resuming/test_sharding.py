"""Gangs whose names are spread over the ranks (FSDP, DTensor): they go on at the same size, as if nobody had asked."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from node_bed import Node, said
from optional_libraries import torch
from resuming_bed import Attempts, names_of, save_of, saves_of

from jupyter_gpu_release.protocol.cell import Graph
from jupyter_gpu_release.protocol.node import GangOrder
from jupyter_gpu_release.serialization import codec
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo

pytestmark = pytest.mark.thorough

Until = Callable[..., Any]

TWO: dict[str, Any] = {"ranks": 2, "gpu_ids": ["0", "1"]}

_BEGIN = """
import random
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(7)

class Block(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = torch.nn.Linear(size, size)
        self.drop = torch.nn.Dropout(0.2)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen += 1
        return x + self.drop(torch.relu(self.linear(x)))
"""

#: two blocks that are sharded by themselves, and the rest; odd sizes, so that one rank's parts are padded
_TRAINING = (
    _BEGIN
    + """
mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("data",))
model = torch.nn.Sequential(torch.nn.Linear(8, 33), Block(33), Block(33), torch.nn.Linear(33, 3))
for block in model[1:3]:
    fully_shard(block, mesh=mesh, reshard_after_forward=True)
fully_shard(model, mesh=mesh)
model[1].set_modules_to_forward_prefetch([model[2]])
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3)
pair = dist.new_group([0, 1])
table = distribute_tensor(torch.arange(10.0).reshape(5, 2), mesh, [Shard(0)])
torch.manual_seed(rank); random.seed(rank)
x, y = torch.randn(32, 8), torch.randint(0, 3, (32,))
history = []

for step in gpu_release.resumable(range(3000), every={every}):
    if 5 <= step < 2997:  # eight rounds of work, in between rounds without any until the gang has been saved
        if {every} and not list(gpu_release.run_dir.parent.glob("save-*-1.graph")):
            time.sleep(0.05)
        continue
    epoch = step % 2992
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    with torch.no_grad():
        table += 1
        guess = model(x).argmax(1)  # leaves the outermost parameters whole
    right = (guess == y).sum()
    dist.all_reduce(right, group=pair)
    history.append((epoch, loss.item(), right.item(), random.random(), os.getpid()))
    print(epoch)
    del loss
    pause(f"{{rank}}-{{epoch}}")

def local(tensors):
    found = [t.to_local() if isinstance(t, DTensor) else t for t in tensors]
    return torch.cat([t.detach().flatten() for t in found]).numpy().copy()

model.reshard()
first = next(model.parameters())
is_whole = (type(model).__name__, type(first).__name__, optimizer.param_groups[0]["params"][0] is first,
            model[0].weight is first, first.device_mesh is mesh, mesh.get_group() is dist.group.WORLD,
            model[1].linear.weight.grad.device_mesh is mesh, dist.get_process_group_ranks(pair))
weights, moments = local(model.parameters()), local(each for s in optimizer.state.values() for each in s.values())
whole = table.full_tensor().numpy().copy()
seen = model[1].seen.item()
del model, optimizer, schedule, table, mesh, first, pair, block
"""
)
_KEPT = ["weights", "moments", "whole", "seen", "history", "is_whole"]


def same(one: Attempts, other: Attempts) -> None:
    ours, theirs = other.names(), one.names()
    for rank in (0, 1):
        for name in ("weights", "moments", "whole"):
            assert ours[name][rank].tobytes() == theirs[name][rank].tobytes(), name
        assert [each[:4] for each in ours["history"][rank]] == [each[:4] for each in theirs["history"][rank]]
        whole = ("FSDPSequential", "DTensor", True, True, True, True, True, [0, 1])
        assert ours["is_whole"][rank] == theirs["is_whole"][rank] == whole
        assert ours["seen"] == theirs["seen"]


def test_sharded_training_that_steps_aside_at_random_rounds_is_bit_identical_to_one_that_does_not(
    node: Node, until: Until
) -> None:
    rounds = sorted(random.Random(3).sample(range(7), 2))
    stops = [f"{which}-{number}" for which, number in zip((0, 1), rounds, strict=True)]
    options, source = {**TWO, "gather": _KEPT}, _TRAINING.format(every=0)
    one, other = Attempts(node, source, [], **options), Attempts(node, source, stops, **options)
    assert one.to_end(until).status == "ok", one.run.outcome.error
    assert other.to_end(until).status == "ok", other.run.outcome
    assert len(other.runs) == 3
    same(one, other)
    for rank in (0, 1):
        assert len({pid for *_, pid in other.names()["history"][rank]}) == 3
        assert "".join(said(run).get(rank, "") for run in other.runs) == "".join(f"{n}\n" for n in range(8))
    outcome = other.runs[0].outcome  # whoever cancels the run then has what is no part of anything
    home = names_of(outcome, other.folder)
    assert "history" in home
    assert not {"model", "optimizer", "table", "mesh"} & {*home, *(result.name for result in outcome.results)}
    assert "`model`: each rank of the gang has a part of it (not returned)" in outcome.notes


def test_sharded_training_that_is_killed_goes_on_from_its_last_save(node: Node, until: Until) -> None:
    options = {**TWO, "gather": _KEPT}
    one = Attempts(node, _TRAINING.format(every=0), [], **options)
    other = Attempts(node, _TRAINING.format(every=0.05), ["1-6"], **options)
    until(lambda: other.stops_left() == 0 or other.refusals, "a rank is at its last rounds")
    assert not other.refusals, other.refusals
    until(lambda: saves_of(other), "the gang was saved")
    other.run.signal("kill", "lost")
    assert other.run.wait().status == "lost"
    last = saves_of(other)[-1]
    assert [part.values is not None for part in last.parts] == [True]
    other.begin(last)
    assert other.run.wait().status == "ok", other.run.outcome
    assert one.to_end(until).status == "ok", one.run.outcome
    same(one, other)


_SENT = """
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
torch.set_num_threads(1)
dist.init_process_group("gloo")
fully_shard(net[0]); fully_shard(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
torch.manual_seed(dist.get_rank())
losses = []
for n in gpu_release.resumable(range(4)):
    loss = net(torch.randn(4, 6)).square().sum()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    losses.append(loss.item())
    del loss
    pause(f"{dist.get_rank()}-{n}")
is_one = parts[0] is net[0] and net[0].weight is optimizer.param_groups[0]["params"][0]
print(is_one, losses)
del optimizer
"""


def test_a_module_of_the_notebook_that_the_cell_has_sharded_stays_one_object(node: Node, until: Until) -> None:
    torch.manual_seed(3)
    net = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Linear(5, 1))
    dump = codec.dump({"net": net, "parts": list(net)}, NamespaceInfo({}, at_home=True))
    inputs = Graph(stream=dump.stream, buffers=[bytes(buffer) for buffer in dump.buffers])
    one, other = (Attempts(node, _SENT, stops, inputs=inputs, **TWO) for stops in ([], ["0-1"]))
    assert one.to_end(until).status == "ok", one.run.outcome.error
    assert other.to_end(until).status == "ok", other.run.outcome.error
    assert len(other.runs) == 2
    for rank in (0, 1):
        assert said(other.run)[rank] == said(one.run)[rank]
        assert said(one.run)[rank].startswith("True")


_FIRST = """
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(3)
options = dict(use_orig_params=True, device_id=torch.device("cpu"))
inner = FullyShardedDataParallel(torch.nn.Linear(9, 9), **options)
model = FullyShardedDataParallel(torch.nn.Sequential(torch.nn.Linear(6, 9), inner, torch.nn.Linear(9, 1)), **options)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
torch.manual_seed(rank)
losses = []
for n in gpu_release.resumable(range(5)):
    loss = model(torch.randn(4, 6)).square().sum()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    with torch.no_grad():
        losses.append((loss.item(), model(torch.ones(4, 6)).sum().item()))  # leaves the outermost parameters whole
    del loss
    pause(f"{rank}-{n}")
print(losses)
del model, inner, optimizer
"""


def test_the_first_version_of_fsdp_goes_on_bit_for_bit(node: Node, until: Until) -> None:
    one, other = (Attempts(node, _FIRST, stops, **TWO) for stops in ([], ["1-2"]))
    assert one.to_end(until).status == "ok", one.run.outcome.error
    assert other.to_end(until).status == "ok", other.run.outcome.error
    assert len(other.runs) == 2
    assert {rank: said(other.run)[rank] for rank in (0, 1)} == {rank: said(one.run)[rank] for rank in (0, 1)}


_ELASTIC = """
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
dist.init_process_group("gloo")
model = torch.nn.Linear(6, 3)
fully_shard(model)
for n in gpu_release.resumable(range(4)):
    dist.barrier()
    pause(f"{dist.get_rank()}-{n}")
"""


def test_an_elastic_gang_says_that_what_is_sharded_keeps_its_size(node: Node, until: Until) -> None:
    why = "`model` is sharded over 2 ranks: it goes on with 2 only"
    attempts = Attempts(node, _ELASTIC, ["1-1"], gang=GangOrder(is_gang=True, is_elastic=True), **TWO)
    until(lambda: attempts.stops_left() == 0, "a rank pauses")
    attempts.ask()
    assert attempts.run.wait().status == "preempted", attempts.run.outcome
    assert [(told.reason, told.of_size) for told in attempts.refusals] == [(why, True)]
    order = msgspec.structs.replace(attempts.run.order, ranks=3, gpu_ids=["0", "1", "2"])
    attempts.begin(save_of(attempts.run.outcome), order)
    error = attempts.run.wait().error
    assert error is not None
    assert "`model` cannot be rebuilt on the node: it is sharded over 2 ranks: it goes on with 2 only" in error.evalue
    assert [event.data["text"] for event in attempts.events if event.kind == "note"] == [why]
