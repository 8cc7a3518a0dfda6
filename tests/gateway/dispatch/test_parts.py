"""Parts of GPUs that requests ask for: their size by memory, and those that cannot be."""

from __future__ import annotations

import pytest

from jupyter_gpu_release.errors import ImpossibleAskError, OptionError
from jupyter_gpu_release.gateway.dispatch.gangs import check_gang
from jupyter_gpu_release.gateway.dispatch.parts import part_of_user, with_part
from jupyter_gpu_release.protocol.runs import ResourceAsk, RunRequest
from jupyter_gpu_release.scheduling.plugins.node_filters import gpu_memory
from jupyter_gpu_release.scheduling.queues.queues_file import parse_queues
from jupyter_gpu_release.scheduling.resource_requests import to_run
from jupyter_gpu_release.scheduling.workload import GPU, Node

_GIB = 1 << 30
_NODES = (Node("small", GPU, "A100", 40 * _GIB), Node("large", GPU, "H100", 80 * _GIB))


def _request(ask: ResourceAsk, **facts: float) -> RunRequest:
    return RunRequest("r", "s", ask, b"", **facts)


@pytest.mark.parametrize(
    ("ask", "part"),
    [
        (ResourceAsk(0.5), 0.5),
        (ResourceAsk(gpu_memory_bytes=20 * _GIB), 0.5),
        (ResourceAsk(gpu_memory_bytes=20 * _GIB, gpu_type="h100"), 0.25),
        (ResourceAsk(gpu_memory_bytes=60 * _GIB), 0.75),
        (ResourceAsk(gpu_memory_bytes=40 * _GIB), 1),
        (ResourceAsk(gpu_memory_bytes=_GIB, gpu_type="h100"), 0.05),
        (ResourceAsk(2), 2),
    ],
)
def test_memory_finds_its_part_of_the_smallest_gpu_that_has_it(ask: ResourceAsk, part: float) -> None:
    assert with_part(_request(ask), _NODES).ask.gpus == part


def test_what_cannot_be_a_part_is_refused_with_what_can() -> None:
    with pytest.raises(ImpossibleAskError, match="the largest GPU has 80 GiB"):
        with_part(_request(ResourceAsk(gpu_memory_bytes=90 * _GIB)), _NODES)
    with pytest.raises(OptionError, match="do not tell their memory"):
        with_part(_request(ResourceAsk(gpu_memory_bytes=_GIB)), (Node("n", GPU),))
    with pytest.raises(OptionError, match="--keep"):
        with_part(_request(ResourceAsk(0.5), keep_s=9.0), _NODES)
    with pytest.raises(ImpossibleAskError, match=r"of which CUDA itself takes 512 MiB") as found:
        with_part(_request(ResourceAsk(0.05)), (Node("n", GPU, "T4", 15 * _GIB),))
    assert found.value.hint == "ask for --gpus 0.07 or more"


def test_the_rules_of_the_queues_file_decide_which_gpus_are_shared_and_by_how_many() -> None:
    file = parse_queues("schema_version: 1\ngpu_sharing: {types: [h100], at_most: 4}", "queues.yaml")

    def part(ask: ResourceAsk) -> float:
        return part_of_user(file, "ann", _request(ask), _NODES).ask.gpus

    assert part(ResourceAsk(gpu_memory_bytes=40 * _GIB)) == 0.5, "of the larger one"
    assert part(ResourceAsk(gpu_memory_bytes=_GIB)) == 0.25
    with pytest.raises(OptionError, match=r"--gpus 0\.1: at most 4 runs share a GPU") as found:
        part(ResourceAsk(0.1))
    assert found.value.hint == "ask for --gpus 0.25 or more"
    with pytest.raises(OptionError, match="or may not be shared"):
        part(ResourceAsk(gpu_memory_bytes=_GIB, gpu_type="a100"))
    with pytest.raises(OptionError, match="--gpu-memory: GPUs of this cluster are not shared"):
        part_of_user(
            parse_queues("schema_version: 1\ngpu_sharing: {mode: none}", "q"),
            "ann",
            _request(ResourceAsk(gpu_memory_bytes=_GIB)),
            _NODES,
        )


@pytest.mark.parametrize(
    "ask",
    [
        ResourceAsk(1.5),
        ResourceAsk(0.01),
        ResourceAsk(0.333),
        ResourceAsk(0.5, ranks=2),
        ResourceAsk(4, ranks=4, gpu_memory_bytes=20 * _GIB),
        ResourceAsk(2, ranks=2, nodes=2, gpu_memory_bytes=80 * _GIB),
    ],
)
def test_a_client_that_does_not_check_is_refused(ask: ResourceAsk) -> None:
    with pytest.raises(OptionError):
        check_gang(ask)


def test_a_part_by_memory_lands_on_no_gpu_where_it_would_be_less() -> None:
    nodes = (Node("tiny", GPU, "T4", 16 * _GIB), *_NODES)
    asked = with_part(_request(ResourceAsk(gpu_memory_bytes=20 * _GIB)), nodes)
    assert [node.name for node in nodes if gpu_memory(to_run("r", asked.ask), node) is None] == ["small", "large"]
