"""What a gang reads, gathers and brings home (models that it trained over gloo): through the real fork server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from doc_blocks import block
from node_bed import Node, said
from optional_libraries import torch

from jupyter_gpu_release.protocol.cell import Graph
from jupyter_gpu_release.protocol.runs import Outcome
from jupyter_gpu_release.protocol.states import new_run_id
from jupyter_gpu_release.serialization.codec import dump as dumped
from jupyter_gpu_release.serialization.codec import load
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo
from jupyter_gpu_release.store.graph_file import open_graph, write_graph
from jupyter_gpu_release.store.run_folders import create_run_folder
from jupyter_gpu_release.unpickling import Trust

TWO: dict[str, Any] = {"ranks": 2, "gpu_ids": ["0", "1"]}
REMARK = "`model` came back without DistributedDataParallel around its module (wrap it again in the next gang)"


def names_of(outcome: Outcome) -> dict[str, Any]:
    """What the notebook has then."""
    assert (outcome.status, outcome.error) == ("ok", None)
    assert outcome.values is not None
    return load(
        outcome.values.stream,
        list(outcome.values.buffers),
        NamespaceInfo({}, at_home=True, has_gpu=False),
        trust=Trust.OWN,
    ).values


@pytest.mark.parametrize("end", ["", "dist.destroy_process_group()\n"], ids=["group stands", "group destroyed"])
def test_a_replicated_model_comes_back_as_its_module(node: Node, end: str) -> None:
    """Trained in a gang, whole and usable here; the optimiser that was sent along is still its own."""
    net = torch.nn.Linear(4, 2)
    names = {"net": net, "opt": torch.optim.Adam(net.parameters()), "untouched": torch.nn.Linear(2, 2)}
    dump = dumped(names, NamespaceInfo({}, at_home=True, has_gpu=False))
    source = (
        "import torch, torch.distributed as dist\ndist.init_process_group('gloo')\ntorch.manual_seed(dist.get_rank())\n"
        "model = torch.nn.parallel.DistributedDataParallel(net)\ntrainer = {'model': model, 'scale': 2}\n"
        "model(torch.randn(8, 4)).square().mean().backward()\nopt.step()\n"
        f"total = sum(float(p.detach().double().sum()) for p in net.parameters())\n{end}"
    )
    inputs = Graph(stream=dump.stream, buffers=[bytes(buffer) for buffer in dump.buffers])
    outcome = node.run(source, inputs=inputs, gather=["total"], **TWO).outcome
    home = names_of(outcome)
    model, first = home["model"], next(home["net"].parameters())
    assert "untouched" not in home
    assert model is home["net"] is home["trainer"]["model"]
    assert type(model) is torch.nn.Linear
    assert home["opt"].param_groups[0]["params"][0] is first
    assert (int(home["opt"].state[first]["step"]), first.grad.abs().sum() > 0) == (1, True)
    assert home["total"] == pytest.approx([sum(float(p.detach().double().sum()) for p in model.parameters())] * 2)
    assert model(torch.ones(1, 4)).shape == (1, 2)
    assert {value.name: value.type for value in outcome.results}["model"] == "Linear"
    assert [note for note in outcome.notes if "DistributedDataParallel" in note] == [REMARK]


def test_the_first_gang_of_the_guide_runs_as_it_is_written(node: Node) -> None:
    first = block("use/gangs.md", "# Train on many GPUs", "%%gpu_train")
    then = block("use/gangs.md", "# Train on many GPUs", "model(")
    magic, _, source = first.text.partition("\n")
    assert magic == "%%gpu_train --gpus 2 --ranks 2"
    run = node.run(source, **TWO)
    home = names_of(run.outcome)
    assert said(run) == {rank: f"rank {rank} of 2: loss 0.0000\n" for rank in range(2)}
    assert type(home["model"]) is torch.nn.Linear
    assert eval(then.text.partition("#")[0], {**home, "torch": torch}).item() == pytest.approx(8, abs=0.01)


def test_accelerate_finds_the_ranks_as_the_guide_says(node: Node) -> None:
    pytest.importorskip("accelerate")
    one = block("use/gang-frameworks.md", "## Accelerate, Lightning, the Trainer")
    magic, _, source = one.text.partition("\n")
    assert magic == "%%gpu_train --gpus 2 --ranks 2"
    run = node.run(source, **TWO)
    home = names_of(run.outcome)
    assert said(run) == {rank: f"rank {rank} of 2: loss 0.0000\n" for rank in range(2)}
    assert (type(home["trained"]), type(home["model"])) == (torch.nn.Linear,) * 2


def test_values_of_all_ranks_come_as_lists(node: Node) -> None:
    source = (
        "import numpy as np\nfrom jupyter_gpu_release import ranks\n"
        "small = ranks.rank * 10\nlarge = np.full(300_000, ranks.rank)\nalone = ranks.rank\n"
        "def reads():\n    return np.add(small, alone)\n"
        "whole = lambda x, small=small: np.add(x, small)"
    )
    run = node.run(source, gather=["small", "large", "reads", "whole"], **TWO)
    assert run.outcome.error is None
    notes = [note for note in run.outcome.notes if "rank 0's" in note]
    assert [note.partition(":")[0] for note in notes] == ["`reads` are functions that read `small`, `alone`"]
    assert run.outcome.values is not None
    opened = open_graph(Path(run.order.folder) / run.outcome.values.file, run.outcome.values.digest)
    values = load(
        opened.stream, list(opened.buffers), NamespaceInfo({}, at_home=True, has_gpu=False), trust=Trust.OWN
    ).values
    assert values["small"] == [0, 10]
    assert [int(array.sum()) for array in values["large"]] == [0, 300_000]
    assert values["alone"] == 0


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        (
            "x = open('/dev/null') if ranks.rank else 1",
            "rank 1's `x` cannot be gathered: PicklingError: cannot pickle an open file ('/dev/null')",
        ),
        ("if ranks.rank == 0:\n    x = 1", "rank 1's `x` cannot be gathered: it has no such name"),
        ("pass", "`x` cannot be gathered: the cell makes no such name"),
    ],
)
def test_what_cannot_be_gathered_names_the_rank(node: Node, cell: str, words: str) -> None:
    outcome = node.run(f"from jupyter_gpu_release import ranks\nother = 3\n{cell}", gather=["x"], **TWO).outcome
    assert outcome.status == "error"
    assert outcome.error is not None
    assert outcome.error.evalue == words
    assert "other" in [value.name for value in outcome.results]


def test_ranks_map_one_copy_of_their_inputs(node: Node) -> None:
    """What is read from the store is read once per node: the ranks share its pages."""
    run = new_run_id()
    paths = create_run_folder(node.store, run)
    dump = dumped({"table": np.arange(400_000)}, NamespaceInfo({}, at_home=True, has_gpu=False))
    inputs = Graph(file=paths.inputs.name, digest=write_graph(paths.inputs, dump.stream, dump.buffers))
    source = (
        "total = int(table.sum())\nat = table.ctypes.data\nspan, own, is_ours = '', 0, False\n"
        "for line in open('/proc/self/smaps'):\n"
        "    words = line.split()\n"
        "    if '-' in words[0]:\n"
        "        begin, end = (int(part, 16) for part in words[0].split('-'))\n"
        "        is_ours = begin <= at < end\n        span = (words[4], words[1]) if is_ours else span\n"
        "    elif is_ours and words[0] in ('Private_Dirty:', 'Anonymous:'):\n        own += int(words[1])\n"
        "print(total, span[0], own)"
    )
    found = node.run(source, inputs=inputs, run=run, **TWO)
    assert found.outcome.error is None
    lines = said(found)
    total, inode, own = lines[0].split()
    assert (int(total), own) == (sum(range(400_000)), "0")
    assert int(inode) > 0
    assert lines[1] == lines[0]
