"""A node that is taken out: what waits says why, what runs goes on, a restart of the gateway changes nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from feeds import Reading
from ray_bed import GPUS, GatewayBed, RayBed, request

from jupyter_gpu_release.cli.main import main
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.errors import ConflictError, NoSuchNodeError
from jupyter_gpu_release.protocol.admin import NodeDrain
from jupyter_gpu_release.protocol.rest import GpuRow
from jupyter_gpu_release.protocol.runs import ResourceAsk

pytestmark = pytest.mark.thorough

HOST = os.uname().nodename


@pytest.fixture(scope="module")
def drained(ray_bed: RayBed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayBed]:
    """A gateway whose node each test leaves as it was, but for what is known of who died there."""
    bed = GatewayBed(ray_bed, tmp_path_factory.mktemp("drained"))
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
        with pytest.raises(NoSuchNodeError, match=f"{HOST} has no GPU {GPUS}"):
            gateway.drain_node(NodeDrain(f"{HOST}:{GPUS}"))
        with pytest.raises(ConflictError, match=f"GPU 0 of {HOST} is not drained"):
            gateway.resume_node(NodeDrain(f"{HOST}:0"))
        with pytest.raises(ConflictError, match="is not drained"):
            gateway.resume_node(NodeDrain(HOST))
        identity = gateway.status().nodes[0].id
        assert gateway.drain_node(NodeDrain(identity[:8])).nodes[0].drained
        assert not gateway.resume_node(NodeDrain(identity)).nodes[0].drained


def test_a_single_gpu_is_taken_out_once_it_is_free(
    drained: GatewayBed, until: Callable[..., None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its run goes on, the others' GPUs are given as before, and the gateway's next life knows of it, too."""
    monkeypatch.setenv("JUPYTER_GPU_URL", drained.url)
    monkeypatch.setenv("JUPYTER_GPU_TOKEN", drained.token)
    session = GatewaySession(drained.target, "single-gpus")
    session.connect(60.0)

    def submitted() -> tuple[str, Reading]:
        asked = request("print 1\nhold", "single-gpus")
        return asked.run, Reading(session.submit(asked))

    def has(run: str) -> str:
        with drained.rest() as gateway:
            rows = [gpu for node in gateway.status().nodes for gpu in node.gpus]
        return next((gpu.index for gpu in rows if gpu.run == run), "")

    def states() -> dict[str, str]:
        with drained.rest() as gateway:
            return {gpu.index: gpu.state for node in gateway.status().nodes for gpu in node.gpus}

    first, going_on = submitted()
    going_on.state("running")
    until(lambda: has(first), "its GPU")
    gpu = has(first)
    assert main(["nodes", "drain", f"{HOST}:{gpu}", "--reason", "ECC"]) == 0
    assert "Still held there: 1 GPU." in capsys.readouterr().out
    assert states()[gpu] == "running"
    drained.let_go(first)
    assert going_on.end().state == "succeeded", "what runs is left alone"
    assert main(["nodes", "drain", f"{HOST}:{gpu}", "--wait"]) == 0
    assert states()[gpu] == "drained"

    others = [submitted() for _ in range(GPUS - 1)]
    for run, reading in others:
        reading.state("running")
        until(lambda run=run: has(run), "its GPU")
        assert has(run) != gpu
    last, waiting = submitted()
    with drained.rest() as gateway:
        until(lambda: gateway.run(last).state == "queued" and gateway.status().queue, "one more to wait")

    pid = drained.kill_gateway()
    until(lambda: drained.life() not in (None, pid), "the next gateway")
    until(lambda: states()[gpu] == "drained", "the GPU that is taken out")
    drained.let_go(others[0][0])
    assert others[0][1].end().state == "succeeded"
    waiting.state("running")
    until(lambda: has(last), "its GPU")
    assert has(last) != gpu

    assert main(["nodes"]) == 0
    assert f"GPU {gpu} of {HOST} is drained by" in " ".join(capsys.readouterr().out.split())
    assert main(["nodes", "resume", f"{HOST}:{gpu}"]) == 0
    run, back = submitted()
    back.state("running")
    until(lambda: has(run), "its GPU")
    assert has(run) == gpu, "it takes runs again"
    for name in (run, last, *(name for name, _ in others[1:])):
        drained.let_go(name)
    assert back.end().state == "succeeded"
    session.close()


def test_a_shared_gpu_that_is_taken_out_gets_no_new_part_and_is_held_after_its_last(
    drained: GatewayBed, until: Callable[..., None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ray would give its rest to the next part: that one waits, and the halves on it go on."""
    monkeypatch.setenv("JUPYTER_GPU_URL", drained.url)
    monkeypatch.setenv("JUPYTER_GPU_TOKEN", drained.token)
    session = GatewaySession(drained.target, "shared-gpus")
    session.connect(60.0)

    def submitted(gpus: float) -> tuple[str, Reading]:
        asked = request("print 1\nhold", "shared-gpus", ask=ResourceAsk(gpus=gpus))
        return asked.run, Reading(session.submit(asked))

    def rows() -> list[GpuRow]:
        with drained.rest() as gateway:
            return [gpu for node in gateway.status().nodes for gpu in node.gpus]

    def gpu_of(run: str) -> str:
        return next((gpu.index for gpu in rows() if run in {gpu.run, *(part.run for part in gpu.parts)}), "")

    first, second = submitted(0.5), submitted(0.3)
    for run, reading in (first, second):
        reading.state("running")
        until(lambda run=run: gpu_of(run), "its GPU")
    gpu = gpu_of(first[0])
    assert gpu_of(second[0]) == gpu
    assert main(["nodes", "drain", f"{HOST}:{gpu}"]) == 0
    late, waiting = submitted(0.2)
    large = submitted(0.6)
    large[1].state("running")
    until(lambda: gpu_of(large[0]), "its GPU")
    assert gpu_of(large[0]) != gpu, "it has no room there"
    with drained.rest() as gateway:
        until(lambda: [row.run for row in gateway.status().queue] == [late], "the small one to wait")
        assert "new parts wait until the runs that share it have ended" in gateway.status().queue[0].reason
    drained.let_go(first[0])
    assert first[1].end().state == "succeeded", "what runs is left alone"
    assert next(row for row in rows() if row.index == gpu).state == "running"
    drained.let_go(second[0])
    assert second[1].end().state == "succeeded"
    assert main(["nodes", "drain", f"{HOST}:{gpu}", "--wait"]) == 0
    until(lambda: next(row for row in rows() if row.index == gpu).state == "drained", "it to be held")
    waiting.state("running")
    until(lambda: gpu_of(late), "its GPU")
    assert gpu_of(late) == gpu_of(large[0])
    assert main(["nodes", "resume", f"{HOST}:{gpu}"]) == 0
    for run, reading in ((late, waiting), large):
        drained.let_go(run)
        assert reading.end().state == "succeeded"
    session.close()
