"""A node that is taken out: what waits says why, what runs goes on, a restart of the gateway changes nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from feeds import Reading
from ray_bed import GPUS, GatewayBed, RayBed, request

from jupyter_gpu_release.cli.main import main
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.errors import ConflictError, NoSuchNodeError, OptionError
from jupyter_gpu_release.protocol.admin import NodeDrain

HOST = os.uname().nodename


@pytest.fixture
def drained(ray_bed: RayBed, tmp_path: Path) -> Iterator[GatewayBed]:
    bed = GatewayBed(ray_bed, tmp_path)
    answer = bed.deploy()
    assert answer.ok, answer
    yield bed
    bed.end()


def test_a_drained_node_empties_and_comes_back(
    drained: GatewayBed, until: Callable[..., None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JUPYTER_GPU_URL", drained.url)
    monkeypatch.setenv("JUPYTER_GPU_TOKEN", drained.token)
    session = GatewaySession(drained.target, "drains")
    session.connect(60.0)
    runs = request("print 1\nhold", "drains")
    going_on = Reading(session.submit(runs))
    going_on.state("running")

    assert main(["nodes", "drain", HOST, "--reason", "new driver"]) == 0
    assert "Still held there: 1 GPU." in capsys.readouterr().out
    waits = request("print 1", "drains")
    waiting = Reading(session.submit(waits))
    with drained.rest() as gateway:

        def reasons() -> list[str]:
            return [row.reason for row in gateway.status().queue if row.run == waits.run]

        until(lambda: any("is drained by" in reason and "new driver" in reason for reason in reasons()), "the reason")
        status = gateway.status()
        assert status.gpus.free == 0
        assert sorted(gpu.state for gpu in status.nodes[0].gpus) == ["drained"] * (GPUS - 1) + ["running"]

    pid = drained.kill_gateway()
    until(lambda: drained.life() not in (None, pid), "the next gateway")
    with drained.rest() as gateway:
        assert "new driver" in gateway.status().nodes[0].drained
    drained.let_go(runs.run)
    assert going_on.end().state == "succeeded", "what runs is left alone"
    assert main(["nodes", "drain", HOST, "--wait"]) == 0
    assert "Nothing runs there." in capsys.readouterr().out
    assert main(["nodes"]) == 0
    assert "drained" in capsys.readouterr().out
    with drained.rest() as gateway:
        assert gateway.run(waits.run).state == "queued"
    assert main(["nodes", "resume", HOST]) == 0
    assert waiting.end().state == "succeeded"
    session.close()


def test_what_cannot_be_drained_is_named(drained: GatewayBed) -> None:
    with drained.rest() as gateway:
        with pytest.raises(NoSuchNodeError, match="there is no node elsewhere") as caught:
            gateway.drain_node(NodeDrain("elsewhere"))
        assert HOST in caught.value.hint
        with pytest.raises(OptionError, match="a single GPU cannot be drained"):
            gateway.drain_node(NodeDrain(f"{HOST}:0"))
        with pytest.raises(ConflictError, match="is not drained"):
            gateway.resume_node(NodeDrain(HOST))
        identity = gateway.status().nodes[0].id
        assert gateway.drain_node(NodeDrain(identity[:8])).nodes[0].drained
        assert not gateway.resume_node(NodeDrain(identity)).nodes[0].drained
