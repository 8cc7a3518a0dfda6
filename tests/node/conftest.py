"""The node bed as a fixture for the session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from node_bed import Node

from jupyter_gpu_release.node import process


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    made = Node(tmp_path_factory.mktemp("store"), [])
    yield made
    made.close()
    assert process.end_marked(process.CLUSTER_MARKER, made.marker) == 0
    assert not made.runtime.exists()
