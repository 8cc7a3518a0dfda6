"""Gangs that are preempted together, and resumed in other processes: as if nobody had asked."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
from node_bed import Node, said
from resuming_bed import Attempts, save_of, saves_of

from jupyter_gpu_release.protocol.node import GangOrder

Until = Callable[..., Any]

TWO: dict[str, Any] = {"ranks": 2, "gpu_ids": ["0", "1"]}

#: replicas that train on their own halves, with random numbers of their own
_TRAINING = """
import random
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(7)
model = torch.nn.Sequential(torch.nn.Linear(8, 300), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(300, 3))
replica = DistributedDataParallel(model, gradient_as_bucket_view=True)
optimizer = torch.optim.SGD(replica.parameters(), lr=0.1, momentum=0.9)
torch.manual_seed(rank); random.seed(rank)
x, y = torch.randn(32, 8), torch.randint(0, 3, (32,))
history = []
for epoch in gpu_release.resumable(range(8)):
    pause(f"{rank}-{epoch}")
    loss = torch.nn.functional.cross_entropy(replica(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append((epoch, loss.item(), random.random(), os.getpid()))
    print(epoch)
weights = torch.cat([p.detach().flatten() for p in model.parameters()]).numpy().copy()
is_whole = (replica.module is model, optimizer.param_groups[0]["params"][0] is model[0].weight, dist.get_world_size(),
            replica.gradient_as_bucket_view, dist.get_backend(), optimizer.state[model[0].weight] != {})
del loss
"""


def test_replicas_that_step_aside_at_random_rounds_are_bit_identical_to_ones_that_do_not(
    node: Node, until: Until
) -> None:
    rounds = sorted(random.Random(2).sample(range(6), 2))  # they stop one or two rounds later
    stops = [f"{which}-{number}" for which, number in zip((0, 1), rounds, strict=True)]
    options = {**TWO, "gather": ["weights", "history", "is_whole"]}
    one, other = Attempts(node, _TRAINING, [], **options), Attempts(node, _TRAINING, stops, **options)
    assert one.to_end(until).status == "ok", one.run.outcome.error
    assert other.to_end(until).status == "ok", other.run.outcome
    assert len(other.runs) == 3
    for rank in (0, 1):
        assert other.names()["weights"][rank].tobytes() == one.names()["weights"][rank].tobytes()
        ours, theirs = (names["history"][rank] for names in (other.names(), one.names()))
        assert [entry[:3] for entry in ours] == [entry[:3] for entry in theirs]
        assert len({pid for *_, pid in ours}) == 3
        assert "".join(said(run).get(rank, "") for run in other.runs) == "".join(f"{n}\n" for n in range(8))
        assert other.names()["is_whole"][rank] == (True, True, 2, True, "gloo", True)


#: twelve rounds of work; in between rounds without any, until the gang has been saved. A save begins between two rounds
_LOOP = """
import random
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
random.seed(rank)
seen = []
for step in gpu_release.resumable(range(3000), every={every}):
    if 6 <= step < 2994:
        if {every} and not list(gpu_release.run_dir.parent.glob("save-*-1.graph")):
            time.sleep(0.05)
        continue
    n = step % 2988
    total = torch.tensor([float(n)])
    dist.all_reduce(total)
    seen.append((n, total.item(), random.random()))
    with open(gpu_release.run_dir / f"rounds-{{rank}}", "a") as file:
        file.write(f"{{n}}\\n")
    hangs = gpu_release.run_dir.parent / "hangs"
    if n == 9 and rank and {every} and not hangs.exists():
        hangs.touch()
        while True:
            time.sleep(0.005)
"""


def test_a_gang_that_is_killed_goes_on_from_its_last_save(node: Node, until: Until) -> None:
    options = {**TWO, "gather": ["seen"]}
    one = Attempts(node, _LOOP.format(every=0), [], **options)
    other = Attempts(node, _LOOP.format(every=0.05), [], **options)
    other.comes_to(until, lambda: saves_of(other), "the gang was saved")
    other.comes_to(until, (other.folder / "hangs").exists, "a rank is at its last rounds")
    other.run.signal("kill", "lost")
    assert other.run.wait().status == "lost"
    last = saves_of(other)[-1]
    assert last.round is not None
    assert [part.values is not None for part in last.parts] == [True]
    other.begin(last)
    assert other.run.wait().status == "ok", other.run.outcome
    assert one.to_end(until).status == "ok", one.run.outcome
    assert other.names()["seen"] == one.names()["seen"]
    for rank in (0, 1):
        rounds = (other.folder / "files" / f"rounds-{rank}").read_text()
        assert rounds == "".join(f"{n}\n" for n in range(12))


def test_a_gang_of_which_one_rank_cannot_be_saved_stays_whole_and_says_which(node: Node, until: Until) -> None:
    source = (
        "import socket\nfrom jupyter_gpu_release import ranks\nheld = socket.socket() if ranks.rank else None\n"
        "for n in gpu_release.resumable(range(4)):\n    ranks.barrier()\n    pause(f'{ranks.rank}-{n}')\n"
        "print(held is None)"
    )
    attempts = Attempts(node, source, ["0-1"], **TWO)
    until(lambda: attempts.stops_left() == 0, "rank 0 pauses")
    attempts.ask()
    assert attempts.run.wait().status == "ok", attempts.run.outcome
    assert said(attempts.run) == {0: "True\n", 1: "False\n"}
    (refusal,) = attempts.refusals
    assert refusal.reason == "it cannot be moved: rank 1: `held` is an open socket"


_ELASTIC = """
import torch
import torch.distributed as dist
from jupyter_gpu_release import ranks
from torch.utils.data.distributed import DistributedSampler
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
own = f"of rank {ranks.rank}"
sampler, sizes = DistributedSampler(range(12), shuffle=False), []
for n in gpu_release.resumable(range(6)):
    pause(f"{ranks.rank}-{n}")
    total = model(torch.ones(1, 2)).sum()
    total.backward()
    count = torch.ones(1)
    dist.all_reduce(count)
    sizes.append((n, ranks.size, int(count.item()), os.environ["WORLD_SIZE"], len(list(sampler)), list(sampler)[0]))
    del total
print(own, sizes)
"""


def test_a_gang_goes_on_with_another_size_from_the_values_of_rank_0(node: Node, until: Until) -> None:
    # one that did not pause could be a round further when it hears of the notice: then all would stop a round later
    attempts = Attempts(node, _ELASTIC, ["0-1", "1-1", "0-3", "1-3", "2-3"], **TWO)
    gang = GangOrder(is_gang=True)
    for place, (size, left) in enumerate(((2, 3), (3, 0), (1, 0))):
        if place:
            order = msgspec.structs.replace(attempts.run.order, ranks=size, gpu_ids=list("012")[:size], gang=gang)
            attempts.begin(save_of(attempts.run.outcome), order)
        if size > 1:
            until(lambda left=left: attempts.stops_left() == left, "all ranks pause")
            attempts.ask()
        assert attempts.run.wait().status == ("preempted" if size > 1 else "ok"), attempts.run.outcome
    seen = [(n, size, size, str(size), 12 // size, 0) for n, size in enumerate((2, 2, 3, 3, 1, 1))]
    assert said(attempts.run) == {0: f"of rank 0 {seen}\n"}
    notes = [str(event.data["text"]) for event in attempts.events if event.kind == "note"]
    assert "`own`" in notes[1]
    assert "`model`" not in "".join(notes)
    assert [note.partition(":")[0] for note in notes[1::2]] == ["2 ranks before, 3 now", "3 ranks before, 1 now"]
