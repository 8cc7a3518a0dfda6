from __future__ import annotations

import pytest

from jupyter_gpu_release.core.documents import GatewayFacts, GpuCounts, QueueRow, StatusDocument
from jupyter_gpu_release.core.messages import ValueInfo
from jupyter_gpu_release.core.resources import ResourceAsk
from jupyter_gpu_release.kernel.estimate import outlook, sent_table
from jupyter_gpu_release.kernel.namespace import Prepared


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
        (cluster(free=1), 2, "it would wait at position 1"),
        (cluster(free=2, waiting=[waiting(4)]), 1, "at position 2 (ahead of it: 4 simulated GPUs)"),
        (cluster(free=2, waiting=[waiting(4, 29.5)]), 1, "not before 30 s from now"),
        (cluster(free=4), 5, "it would be refused, this cluster has only 4"),
    ],
)
def test_outlook(document: StatusDocument, gpus: int, words: str):
    assert words in outlook(document, ResourceAsk(gpus=gpus))


def test_what_would_be_sent():
    prepared = Prepared(
        sent=[ValueInfo("a", "int", 28), ValueInfo("X", "ndarray", 3 << 20)],
        total_bytes=(3 << 20) + 28,
        reevaluate={"device": "'cuda'"},
        held_back=["api_key"],
    )
    table = sent_table(prepared)
    assert table.title == "To be sent: 3.0 MiB through the store"
    assert [row[0] for row in table.rows] == ["X", "a", "device", "api_key"]
    assert sent_table(Prepared()).title == "No names would be sent"
