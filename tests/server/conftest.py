"""Real Jupyter servers with the extension."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from server_bed import ServerBed


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerBed]:
    """A server on a machine without GPU, driver and cluster."""
    bed = ServerBed(tmp_path_factory.mktemp("server"))
    yield bed
    bed.stop()
