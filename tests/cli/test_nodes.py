"""``jupyter gpu nodes drain --wait``: whom it waits for."""

from __future__ import annotations

import pytest

from jupyter_gpu_release.cli.admin import nodes
from jupyter_gpu_release.cli.main import main
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.protocol.admin import NodeDrain
from jupyter_gpu_release.protocol.rest import GatewayFacts, GpuCounts, GpuPart, GpuRow, NodeRow, StatusDocument


def _gpu(index: str, *runs: str) -> GpuRow:
    parts = [GpuPart(run, "ann", 0.5) for run in runs] if len(runs) > 1 else []
    first = runs[0] if runs else None
    return GpuRow(index, f"GPU-{index}", "H100", 0, 0, None, "running", run=first, user="ann", parts=parts)


def _status(*gpus: GpuRow) -> StatusDocument:
    rows = [NodeRow("n" * 56, "gpu-01", list(gpus)), NodeRow("m" * 56, "gpu-02", [_gpu("0", "elsewhere")])]
    return StatusDocument(1, False, GatewayFacts("https://gpu-01:9472", "0"), GpuCounts(3, 2, 1, 0), rows, [], [])


class _Emptying(GatewayClient):
    """A gateway of which each look at the status sees the next one."""

    def __init__(self, *seen: StatusDocument) -> None:
        super().__init__("http://127.0.0.1:9", "t")
        self.seen = list(seen)

    def drain_node(self, asked: NodeDrain) -> StatusDocument:
        assert asked == NodeDrain("gpu-01:1", "fan")
        return self.seen.pop(0)

    def status(self) -> StatusDocument:
        return self.seen.pop(0)


def test_it_waits_for_what_has_the_gpu_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shared, one, free = _gpu("1", "r1", "r2"), _gpu("1", "r2"), _gpu("1")
    gateway = _Emptying(*(_status(_gpu("0", "other"), gpu) for gpu in (shared, shared, one, free)))
    monkeypatch.setattr(nodes, "open_gateway", lambda: gateway)
    monkeypatch.setattr(nodes, "_LOOK_S", 0.0)
    assert main(["nodes", "drain", "gpu-01:1", "--reason", "fan", "--wait"]) == 0
    assert gateway.seen == []
    assert capsys.readouterr().out.splitlines() == [
        "gpu-01:1 gets no new runs; `jupyter gpu nodes resume gpu-01:1` undoes it.",
        "Waiting for 1 GPU: r1 (ann), r2 (ann)",
        "Waiting for 1 GPU: r2 (ann)",
        "Nothing runs there.",
    ]
