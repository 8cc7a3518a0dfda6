"""The memory that cells of a node may use without ``--memory``."""

from __future__ import annotations

import pytest

from jupyter_gpu_release.node.agent.agent import usable_bytes


@pytest.mark.parametrize(
    ("node_mib", "usable_mib"),
    [(64_000, 57_600), (2048, 1536), (600, 300)],
    ids=["a share of a large one", "what a small job's own processes leave", "half of one that is too small"],
)
def test_cells_leave_room_for_the_nodes_own_processes(node_mib: int, usable_mib: int) -> None:
    assert usable_bytes(node_mib << 20) == usable_mib << 20
