"""``broker``: what a run costs the gateway, and who gets in when thousands wait."""

from __future__ import annotations

import asyncio
import json
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jupyter_gpu_release.client.home import write_secret
from jupyter_gpu_release.protocol.config import GatewayConfig
from jupyter_gpu_release.protocol.wire import encode

from ..report import Report
from . import decision, handoff, kueue, policy_pass

_NODES = 5


@dataclass
class SimulatedCluster:
    """The address of a gateway over simulated nodes; ``cpu_s`` once it has ended."""

    url: str
    token: str
    home: Path
    facts: dict[str, Any] = field(default_factory=dict)


@contextmanager
def simulated_cluster(nodes: int, gpus: int, queues: str = "") -> Iterator[SimulatedCluster]:
    """A gateway process over ``nodes`` × ``gpus`` simulated GPUs; at the end its folder is removed.

    ``queues``: text of a queues file.
    """
    with tempfile.TemporaryDirectory(prefix="jgr-bench-") as folder:
        home, token = Path(folder) / "home", secrets.token_urlsafe(24)
        queues_file = Path(folder) / "queues.yaml"
        queues_file.write_text(queues)
        write_secret(home / "token", token)
        config = GatewayConfig(
            home=str(home),
            store=str(Path(folder) / "store"),
            token_file=str(home / "token"),
            runtime=str(Path(folder) / "run"),
            ray_address="none",
            cluster=secrets.token_hex(4),
            simulated=True,
            queues=str(queues_file) if queues else "",
            user_requests_per_s=1e6,  # one user's client stands for a team
        )
        Path(config.store).mkdir()
        path = home / "gateway.config"
        path.write_bytes(encode(config))
        command = [sys.executable, "-m", "benchmarks.broker.simulated_gateway", str(path), str(nodes), str(gpus)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                deployed = json.loads(process.stdout.readline() or '{"ok": false, "message": "it ended"}')
                if not deployed["ok"]:
                    raise RuntimeError(f"the gateway did not start: {deployed['message']}")
                cluster = SimulatedCluster(deployed["url"], token, home)
                yield cluster
                process.stdin.close()
                cluster.facts = json.loads(process.stdout.readline())
            finally:
                process.kill()


def run(*, quick: bool) -> Report:
    """Measure."""
    report = Report("broker")
    kinds = tuple(replace(kind, count=4) for kind in kueue.KINDS) if quick else kueue.KINDS
    with simulated_cluster(_NODES, kueue.UNITS // _NODES, kueue.queues_file()) as cluster:
        measured = asyncio.run(kueue.measure(cluster.url, cluster.token, kinds=kinds, queues=3 if quick else 30))
    report.add("kueue_wall_s", [measured.wall_s], "s")
    for name, values in measured.admission_s.items():
        mean = sum(values) / len(values)
        report.add(f"kueue_admission_{name}_s", [mean], "s")
    report.add("kueue_use", [measured.use], "%")
    report.add("gateway_cpu_ms", [1000 * cluster.facts["cpu_s"] / measured.runs])
    with simulated_cluster(_NODES, kueue.UNITS // _NODES, decision.QUEUES) as cluster:
        waiting, count = (50, 5) if quick else (1000, 200)
        decisions = asyncio.run(decision.measure(cluster.url, cluster.token, waiting=waiting, count=count))
    report.add("submit_to_decision", decisions)
    waiting = 200 if quick else 10_000
    report.add("pass_10k", policy_pass.passes(waiting, 3 if quick else 100))
    report.add("bytes_per_queued_run", [policy_pass.bytes_per_queued_run(waiting)], "B")
    ours, theirs = handoff.measure(2 if quick else 20)
    report.add("handoff", ours)
    report.add("ray_handoff", theirs)
    report.notes.append(f"driver: {1000 * measured.driver_cpu_s / measured.runs:.2f} ms of CPU a run")
    return report
