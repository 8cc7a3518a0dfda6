"""The queues file in a gateway: who may use what, and new versions of it while runs wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ray_bed import GatewayBed, RayBed, request

from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.errors import OptionError
from jupyter_gpu_release.protocol.admin import TokenRequest
from jupyter_gpu_release.protocol.rest import QueuesDocument
from jupyter_gpu_release.protocol.runs import RunRequest, RunView

FIRST = """\
schema_version: 1
queues:
  - {name: vision, guaranteed: 3, users: [ann]}
  - {name: text, guaranteed: 3, max_timeout: 1h}
default_queue: {ann: vision, "*": text}
"""
SECOND = """\
schema_version: 1
queues:
  - {name: all, max: 4}
"""


@pytest.fixture
def queues_file(tmp_path: Path) -> Path:
    path = tmp_path / "queues.yaml"
    path.write_text(FIRST)
    return path


@pytest.fixture
def with_queues(ray_bed: RayBed, tmp_path: Path, queues_file: Path) -> Iterator[GatewayBed]:
    bed = GatewayBed(ray_bed, tmp_path, queues=str(queues_file))
    assert bed.deploy().ok
    yield bed
    bed.end()


def _user(bed: GatewayBed, name: str) -> GatewayClient:
    with bed.rest() as root:
        secret = root.create_token(TokenRequest(name, "user", 3600.0)).secret
    return GatewayClient(bed.url, secret, timeout_s=60.0)


def _submit(client: GatewayClient, asked: RunRequest) -> RunView:
    return client._ask("POST", "/v1/runs", RunView, {}, asked)


def _used(document: QueuesDocument) -> dict[str, tuple[float, int]]:
    return {share.name: (share.used, share.waiting_runs) for share in document.queues}


def test_the_file_is_followed_while_runs_wait(
    with_queues: GatewayBed, queues_file: Path, until: Callable[..., None]
) -> None:
    with _user(with_queues, "ann") as ann, _user(with_queues, "bob") as bob:
        held = _submit(ann, request("hold", "", 3))
        until(lambda: ann.run(held.run).state == "running", "ann's run")
        waits = _submit(bob, request("hold", "", 2, priority="low"))
        assert (held.queue, waits.queue, waits.priority_value) == ("vision", "text", 25)
        with pytest.raises(OptionError, match="--queue vision: you may not use it") as refused:
            _submit(bob, request("hold", "", queue="vision"))
        assert refused.value.hint == "you may use: text"
        with pytest.raises(OptionError, match="queue text allows at most 1 h"):
            _submit(bob, request("hold", "", timeout_s=7200.0))

        status = bob.status()
        assert [(row.queue, row.priority, row.priority_value) for row in status.queue] == [("text", "low", 25)]
        assert (
            _used(bob.queues())
            == {"vision": (3, 0), "text": (0, 1)}
            == {share.name: (share.used, share.waiting_runs) for share in status.queues}
        )
        assert [share.usable for share in bob.queues().queues] == [False, True]
        assert "the guarantees are 6 GPUs in all, and the cluster has 4 GPUs" in bob.queues().notes

        queues_file.write_text(SECOND.replace("max: 4", "max: [4]"))
        until(lambda: any("line 3" in note for note in bob.queues().notes), "what is wrong with the new version")
        assert _used(bob.queues()) == {"vision": (3, 0), "text": (0, 1)}
        with_queues.kill_gateway()  # the next one begins with a malformed file, and knows the good version
        until(lambda: with_queues.life() is not None, "the next gateway")
        assert any("line 3" in note for note in bob.queues().notes)
        assert _used(bob.queues()) == {"vision": (3, 0), "text": (0, 1)}

        queues_file.write_text(SECOND)
        until(lambda: _used(bob.queues()) == {"all": (3, 1)}, "the new version, with the runs of the queues that went")
        assert bob.queues().notes == []
        assert (ann.run(held.run).queue, bob.run(waits.run).queue) == ("all", "all")
        with_queues.let_go(held.run)
        until(lambda: bob.run(waits.run).state == "running", "the run that waited")
        with_queues.let_go(waits.run)
        until(lambda: bob.run(waits.run).state == "succeeded", "its end")


def test_a_gateway_does_not_start_with_a_malformed_file(ray_bed: RayBed, tmp_path: Path) -> None:
    path = tmp_path / "queues.yaml"
    path.write_text(FIRST + "queues: []\n")
    bed = GatewayBed(ray_bed, tmp_path, queues=str(path))
    answer = bed.deploy()
    bed.end()
    assert not answer.ok
    assert f"{path}, line 6" in answer.message
