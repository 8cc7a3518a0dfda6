from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.home import Connection
from jupyter_gpu_release.kernel.magics.estimate import missing_packages, outlook, sent_table
from jupyter_gpu_release.protocol.rest import GatewayFacts, GpuCounts, QueueRow, StatusDocument
from jupyter_gpu_release.protocol.runs import ResourceAsk, ValueInfo
from jupyter_gpu_release.submission.capture import CapturedInputs


def cluster(*, free: int, waiting: list[QueueRow] | None = None) -> StatusDocument:
    counts = GpuCounts(total=4, held=4 - free, free=free, external=0)
    return StatusDocument(1, True, GatewayFacts("http://x", "0"), counts, [], waiting or [], [])


def waiting(gpus: int, start_estimate_s: float | None = None) -> QueueRow:
    return QueueRow("r", "u", "default", "normal", gpus, 1, "", start_estimate_s)


@pytest.mark.parametrize(
    ("document", "gpus", "words"),
    [
        (cluster(free=2), 2, "it would start at once"),
        (cluster(free=2), 0, "it would start at once"),
        (cluster(free=1), 2, "it would be queued at place 1"),
        (cluster(free=2, waiting=[waiting(4)]), 1, "at place 2 (ahead of it: 4 simulated GPUs)"),
        (cluster(free=2, waiting=[waiting(4, 29.5)]), 1, "not before 30 s from now"),
        (cluster(free=4), 5, "it would be refused, this cluster has only 4"),
    ],
)
def test_outlook(document: StatusDocument, gpus: int, words: str):
    assert words in outlook(document, ResourceAsk(gpus=gpus))


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[Target]:
    """Only the daemon's interpreter and environment matter."""
    daemon = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield Target("http://x", "t", connection=Connection("http://x", "", "", daemon_pid=daemon.pid))
    daemon.kill()
    daemon.wait()


def test_packages_that_the_own_cluster_lacks_are_named(own_cluster: Target):
    missing = missing_packages(own_cluster, ["msgspec", "nosuch_zz"])
    assert missing == ["nosuch_zz"]
    said = outlook(cluster(free=4), ResourceAsk(), ["msgspec", "nosuch_zz"], missing)
    assert said.startswith("it would be refused: the cell imports nosuch_zz,")
    assert missing_packages(own_cluster, ["msgspec"]) == []


def test_what_other_clusters_have_is_not_known():
    imports = ["nosuch_zz"]
    for connection in (
        Connection("http://x", "", "", embedded=False, daemon_pid=1),
        Connection("http://x", "", "", daemon_pid=2**30),
    ):
        assert missing_packages(Target("http://x", "t", connection=connection), imports) is None
    assert missing_packages(Target("http://x", "t", configured=True), imports) is None
    assert missing_packages(Target("http://x", "t", configured=True), []) == []
    said = outlook(cluster(free=4), ResourceAsk(), imports, None)
    assert "it would start at once (if the nodes have nosuch_zz" in said


def test_what_would_be_sent():
    prepared = CapturedInputs(
        sent=[ValueInfo("a", "int", 28), ValueInfo("X", "ndarray", 3 << 20)],
        total_bytes=(3 << 20) + 28,
        reevaluate={"device": "'cuda'"},
        held_back=["api_key"],
    )
    table = sent_table(prepared)
    assert table.title == "To be sent: 3 MiB through the store"
    assert [row[0] for row in table.rows] == ["X", "a", "device", "api_key"]
    assert sent_table(CapturedInputs()).title == "No names would be sent"
