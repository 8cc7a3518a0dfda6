"""Models that a gang trains, as they come home: through the real fork server, over gloo."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from node_bed import Node, said

from jupyter_gpu_release.core.messages import Graph, Outcome
from jupyter_gpu_release.storage.codec import dump as dumped
from jupyter_gpu_release.storage.codec import load
from jupyter_gpu_release.storage.rebuild import Realm

TWO: dict[str, Any] = {"ranks": 2, "gpu_ids": ["0", "1"]}
GUIDE = Path(__file__).parents[2] / "docs" / "user-guide.md"
REMARK = "`model` came back without DistributedDataParallel around its module (wrap it again in the next gang)"


def names_of(outcome: Outcome) -> dict[str, Any]:
    """What the notebook has then."""
    assert (outcome.status, outcome.error) == ("ok", None)
    assert outcome.values is not None
    return load(outcome.values.stream, list(outcome.values.buffers), Realm({}, at_home=True, has_gpu=False)).values


@pytest.mark.parametrize("end", ["", "dist.destroy_process_group()\n"], ids=["group stands", "group destroyed"])
def test_a_replicated_model_comes_back_as_its_module(node: Node, end: str) -> None:
    """Trained in a gang, whole and usable here; the optimiser that was sent along is still its own."""
    net = torch.nn.Linear(4, 2)
    names = {"net": net, "opt": torch.optim.Adam(net.parameters()), "untouched": torch.nn.Linear(2, 2)}
    dump = dumped(names, Realm({}, at_home=True, has_gpu=False))
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
    _, _, section = GUIDE.read_text().partition("\n## Many GPUs\n")
    first, then = re.findall(r"^```[a-z]*\n(.*?)^```", section, re.DOTALL | re.MULTILINE)[:2]
    magic, _, source = first.partition("\n")
    assert magic == "%%gpu_train --gpus 2 --ranks 2"
    run = node.run(source, **TWO)
    home = names_of(run.outcome)
    assert said(run) == {rank: f"rank {rank} of 2: loss 0.0000\n" for rank in range(2)}
    assert type(home["model"]) is torch.nn.Linear
    assert eval(then.partition("#")[0], {**home, "torch": torch}).item() == pytest.approx(8, abs=0.01)
