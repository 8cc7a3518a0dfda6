"""The free GPUs that a status tells."""

from __future__ import annotations

from jupyter_gpu_release.gateway.api.responses import count_free
from jupyter_gpu_release.gateway.cluster.nodes import Node


def test_what_others_hold_on_a_drained_node_is_not_taken_from_the_other_nodes() -> None:
    drained, other = Node("a", "a", 8, 8, 0, drained="new driver"), Node("b", "b", 8, 8, 0)
    assert count_free([drained, other], {}, {"a": 4}) == 8
    assert count_free([drained, other], {"b": 3, "a": 1}, {"a": 4, "b": 2}) == 3
    assert count_free([other], {"b": 8}, {"b": 2}) == 0
