"""The node bed as a fixture for the session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from node_bed import Node
from vanishing_store import is_of

from jupyter_gpu_release.host import process_control


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    made = Node(tmp_path_factory.mktemp("store"), [])
    yield made
    made.close()
    assert process_control.end_marked(process_control.CLUSTER_MARKER, made.marker) == 0  # all were waited for
    assert not made.runtime.exists()


@pytest.fixture
def own_node(tmp_path: Path) -> Iterator[Node]:
    """A node whose store may be broken."""
    (tmp_path / "store").mkdir()
    made = Node(tmp_path / "store", ["numpy"])
    yield made
    made.close()
    process_control.kill_each(pid for pid in process_control.persisters() if is_of(made, pid))
