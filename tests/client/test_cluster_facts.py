from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
import pytest

from jupyter_gpu_release.client import cluster_facts
from jupyter_gpu_release.client.cluster_facts import ClusterFacts, ClusterGpus, KnownQueue, short_type
from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.errors import GatewayUnavailableError
from jupyter_gpu_release.protocol.rest import (
    GatewayFacts,
    GpuCounts,
    GpuRow,
    NodeRow,
    QueuesDocument,
    QueueShare,
    RunRow,
    RunsDocument,
    StatusDocument,
)
from jupyter_gpu_release.scheduling.queues.gpu_types import key


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("NVIDIA A100-SXM4-40GB", "a100"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("Tesla T4", "t4"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "1g.10gb"),
        ("A100 MIG 1c.3g.20gb", "1c.3g.20gb"),
        ("A100 MIG", "a100"),
        ("Odd GPU", "oddgpu"),
    ],
)
def test_a_type_as_one_writes_it(name: str, short: str):
    assert short_type(name) == short
    assert key(short) in key(name), "no node would have it"


def test_who_types_never_waits_for_a_gateway_that_hangs(until: Callable[..., None], monkeypatch: pytest.MonkeyPatch):
    """It is read by another thread, once; what it says is there when it is asked for again."""
    goes_on, asked = threading.Event(), []

    def hang() -> None:
        asked.append(threading.current_thread())
        assert goes_on.wait(60)
        raise GatewayUnavailableError("gone", hint="")

    monkeypatch.setattr(cluster_facts, "FRESH_S", 1e9)
    facts = ClusterFacts(hang)
    for _ in range(3):
        assert facts.gpus(0.0) == ClusterGpus()
    goes_on.set()
    until(lambda: facts._gpus._reading is None, "the answer")
    assert facts.gpus(0.0) == ClusterGpus()
    assert len(asked) == 1
    asked[0].join(60)
    assert asked[0] is not threading.current_thread()


def test_what_is_old_is_read_anew_and_what_is_too_old_is_not_shown(monkeypatch: pytest.MonkeyPatch):
    values = [2, 1]
    cached = cluster_facts.Cached(values.pop, 0)
    monkeypatch.setattr(cluster_facts, "FRESH_S", 1e9)
    assert [cached.get(60.0), cached.get(0.0)] == [1, 1]
    monkeypatch.setattr(cluster_facts, "FRESH_S", -1.0)
    monkeypatch.setattr(cluster_facts, "KEPT_S", -1.0)
    assert (cached.get(60.0), values) == (0, [])


def test_the_gateways_own_documents_are_understood():
    gpu = GpuRow("0", "u", "NVIDIA H100 80GB HBM3", 80 << 30, 0, None, "free")
    drained = msgspec.structs.replace(gpu, state="drained")
    nodes = [NodeRow("a", "a", [gpu, gpu, drained]), NodeRow("b", "b", [gpu], up=False)]
    status = StatusDocument(1, False, GatewayFacts("http://x", "0"), GpuCounts(2, 0, 2, 0), nodes, [], [])
    assert cluster_facts._gpus_of(_as_json(status)) == ClusterGpus(2, {"h100": 2}, (80,), 1)
    simulated = msgspec.structs.replace(status, simulated=True)
    assert cluster_facts._gpus_of(_as_json(simulated)).types == {}, "nothing to ask for"
    row = RunRow(
        run="r",
        user="ann",
        state="failed",
        gpus=2,
        ranks=1,
        name="",
        notebook="a/b.ipynb",
        cell="",
        queue="",
        priority="",
        simulated=False,
        submitted_at=0.0,
        granted_at=None,
        running_at=None,
        gone_at=None,
        finished_at=None,
        queued_s=0.0,
        held_s=0.0,
        release_ms=None,
        position=None,
        reason="",
        hosts=[],
        gpu_ids=[],
        gpu_name="",
        results=[],
        files=[],
        error=None,
    )
    (run,) = cluster_facts._runs_of(_as_json(RunsDocument(1, [row])))
    assert (run.run, run.is_over, run.failed) == ("r", True, True)
    assert run.about == "b.ipynb · failed · 2 GPUs · 01 Jan"
    stepping = msgspec.structs.replace(row, state="yielding", title="fit(model)")
    named = msgspec.structs.replace(stepping, state="submitted", name="night run")
    abouts = [run.about for run in cluster_facts._runs_of(_as_json(RunsDocument(1, [stepping, named])))]
    assert abouts == ["fit(model) · being preempted · 2 GPUs · 01 Jan", "night run · queued · 2 GPUs · 01 Jan"]
    shares = [
        QueueShare(
            name,
            "",
            0,
            leaf=True,
            usable=usable,
            guaranteed=1,
            max=None,
            weight=1,
            priority=0,
            used=2,
            fair_share=4,
            waiting_runs=3,
            waiting_gpus=5,
        )
        for name, usable in (("vision", True), ("text", False))
    ]
    queues = cluster_facts._queues_of(_as_json(QueuesDocument(1, 8, "vision", shares)))
    assert queues == (KnownQueue("vision", "2 of 4 GPUs used, 3 waiting (your default)"),)


def test_the_token_does_not_follow_a_redirect_to_another_host():
    """Its answer is read like any other; it gets no token."""
    seen: list[str | None] = []

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.headers["Authorization"])
            self.send_response(302 if len(seen) == 1 else 200)
            self.send_header("Location", f"http://localhost:{self.server.server_address[1]}/elsewhere")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        target = Target(f"http://127.0.0.1:{server.server_port}", "secret")
        try:
            assert cluster_facts._ask(lambda: target, "/v1/status") == {}
        finally:
            server.shutdown()
            thread.join(60)
    assert seen == ["Bearer secret", None]


def _as_json(document: msgspec.Struct) -> Any:
    return json.loads(msgspec.json.encode(document))
