"""CPU stages in the real process chain: their cores and threads."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest
from node_bed import Node, said

_LOOK = """
import json, os, time, torch
print(json.dumps([sorted(os.sched_getaffinity(0)), torch.get_num_threads(), os.environ.get("OMP_NUM_THREADS")]))
"""


@pytest.mark.slow("CPU-bound stages")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="with one core there is nothing to share out")
def test_stages_side_by_side_have_cores_of_their_own(node: Node, until: Callable[[Callable[[], Any], str], None]):
    facts = {"gpu_ids": [], "gpus": 0, "cpus": 1.0}
    first = node.start(_LOOK + "while not os.path.exists('stages may end'): time.sleep(0.01)", **facts)
    until(lambda: first.text(), "the first stage to say its cores")
    second = node.run(_LOOK, **facts)
    (node.store / "stages may end").touch()
    first.wait()
    third = node.run(_LOOK, gpus=1, cpus=1.0)
    (one, threads, variable), (two, *_), (all_of_them, *_) = (json.loads(run.text()) for run in (first, second, third))
    assert (len(one), threads, variable) == (1, 1, "1")
    assert len(two) == 1
    assert one != two
    assert all_of_them == sorted(os.sched_getaffinity(0))  # a GPU cell reserves none


@pytest.mark.parametrize(("facts", "confined"), [({"gpu_ids": [], "gpus": 0, "cpus": 2.0}, True), ({"gpus": 2}, False)])
def test_ranks_share_the_cores_of_their_node(node: Node, facts: dict[str, Any], confined: bool):
    """Those of ``--cpus``, else all: with all for each they would be in each other's way."""
    cores = 2 if confined else len(os.sched_getaffinity(0))
    if not confined:
        facts = facts | {"gpu_ids": ["0", "1"]}
    run = node.run(_LOOK, ranks=2, **facts)
    assert run.outcome.error is None
    found = [json.loads(text) for text in said(run).values()]
    assert [(threads, variable) for _, threads, variable in found] == [
        (max(1, cores // 2), str(max(1, cores // 2)))
    ] * 2
    assert {len(own) for own, _, _ in found} == {1 if confined else cores}
