"""Nodes of a Ray cluster that scales by itself: a gang that waits gets them, and nobody keeps them for nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from autoscaling_bed import AutoscalingBed
from feeds import Reading
from ray_bed import GatewayBed, request

from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.protocol.runs import ResourceAsk

Until = Callable[..., None]


@pytest.fixture
def scaling(tmp_path: Path) -> Iterator[GatewayBed]:
    bed = AutoscalingBed(gpus=2, most=2)
    gateway = GatewayBed(bed, tmp_path, idle_agent_s=1.0, embedded=False)
    try:
        assert gateway.deploy().ok
        yield gateway
    finally:
        bed.stop()


@pytest.mark.thorough
def test_a_gang_has_ray_start_its_nodes_and_idle_nodes_go(scaling: GatewayBed, until: Until) -> None:
    session = GatewaySession(scaling.target, "kernel")
    session.connect(60.0)
    gang = request("hold", "kernel", ask=ResourceAsk(gpus=4, ranks=2, nodes=2))
    huge = request("hold", "kernel", gpus=64)
    reading, of_huge = Reading(session.submit(gang)), Reading(session.submit(huge))

    def asked() -> list[str]:
        prefix = f"jgr-node-for-{scaling.config.ray_namespace}-"
        return sorted(name.removeprefix(prefix) for name in scaling.bed.ask("groups") if name.startswith(prefix))

    def gpus() -> int:
        with scaling.rest() as client:
            return client.status().gpus.total

    until(lambda: asked() == sorted([gang.run, huge.run]), "requests of both")
    reading.reason("waiting for a node that Ray is starting")
    of_huge.reason("Ray's autoscaler can start no node that fits")
    with scaling.rest() as client:
        client.cancel(huge.run)
    until(lambda: huge.run not in asked(), "no request any more of who waits no longer")
    reading.state("running", patience_s=400.0)  # two raylets and their agents
    until(lambda: asked() == [], "no request any more of who runs")
    scaling.let_go(gang.run)
    assert reading.end().state == "succeeded"
    until(lambda: gpus() == 0, "no node any more, as nobody waits")

    late = request("hold", "kernel")
    session.submit(late)
    until(lambda: asked() == [late.run], "a request of the next one")
    scaling.end()
    until(lambda: asked() == [], "no request any more, as nobody is there to withdraw it")
    session.close()
