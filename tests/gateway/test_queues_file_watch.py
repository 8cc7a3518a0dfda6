"""The queues file in a gateway: who may use what, and new versions of it while runs wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ray_bed import GatewayBed, RayBed, request

from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.errors import ImpossibleAskError, OptionError
from jupyter_gpu_release.protocol.admin import TokenRequest
from jupyter_gpu_release.protocol.rest import EstimateQuestion, QueuesDocument
from jupyter_gpu_release.protocol.runs import ResourceAsk, RunRequest, RunView

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


@pytest.mark.slow("a gateway of its own")
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


@pytest.mark.slow("a gateway of its own")
def test_who_waits_is_told_when_and_after_whom(
    with_queues: GatewayBed, queues_file: Path, until: Callable[..., None]
) -> None:
    queues_file.write_text(FIRST + "policy: {actions: [allocate, backfill]}\n")
    with _user(with_queues, "ann") as ann, _user(with_queues, "bob") as bob:
        until(
            lambda: bob.queues().notes == ["the guarantees are 6 GPUs in all, and the cluster has 4 GPUs"], "the file"
        )
        at_once = bob.ask_estimate(EstimateQuestion(ResourceAsk(gpus=2)))
        assert (at_once.queue, at_once.position, at_once.starts_in_s, at_once.sooner) == ("text", 0, 0.0, [])
        held = _submit(ann, request("hold", "", 3, timeout_s=500.0))
        until(lambda: ann.run(held.run).state == "running", "ann's run")
        waits = _submit(bob, request("hold", "", 2))
        until(lambda: bob.status().queue[0].start_at_most_s is not None, "what is known of its start")
        (row,) = bob.status().queue
        assert row.start_estimate_s is None, "nobody knows how long ann's first run takes"
        assert row.start_at_most_s is not None
        assert 400 < row.start_at_most_s <= 500
        estimate = bob.estimate(waits.run)
        assert (estimate.position, estimate.reason) == (1, row.reason)
        assert [(each.change, each.starts_in_s) for each in estimate.sooner] == [("--gpus 1", 0.0)]
        asked = bob.ask_estimate(EstimateQuestion(ResourceAsk(gpus=2)))
        assert (asked.position, asked.starts_in_s) == (2, None)
        with pytest.raises(ImpossibleAskError, match="the cluster has 4"):
            bob.ask_estimate(EstimateQuestion(ResourceAsk(gpus=5)))
        with pytest.raises(OptionError, match="1 GPUs cannot be shared evenly by 2 ranks"):
            bob.ask_estimate(EstimateQuestion(ResourceAsk(ranks=2)))
        with pytest.raises(OptionError, match="--queue vision"):
            bob.ask_estimate(EstimateQuestion(queue="vision"))

        with_queues.let_go(held.run)
        until(lambda: bob.run(waits.run).state == "running", "bob's run")
        third = _submit(ann, request("hold", "", 3))  # as the first was: it is known now how long that took
        until(lambda: ann.status().queue[0].run == third.run, "ann's next run")
        with_queues.let_go(waits.run)
        until(lambda: ann.run(third.run).state == "running", "it")
        fourth = _submit(bob, request("hold", "", 2))
        until(lambda: bob.status().queue[0].start_after == "ann", "after whom bob's next run starts")
        row = bob.status().queue[0]
        assert row.start_estimate_s is not None
        with_queues.let_go(third.run)
        until(lambda: bob.run(fourth.run).state == "running", "its start")
        with_queues.let_go(fourth.run)
        until(lambda: bob.run(fourth.run).state == "succeeded", "its end")


def test_a_gateway_does_not_start_with_a_malformed_file(ray_bed: RayBed, tmp_path: Path) -> None:
    path = tmp_path / "queues.yaml"
    path.write_text(FIRST + "queues: []\n")
    bed = GatewayBed(ray_bed, tmp_path, queues=str(path))
    answer = bed.deploy()
    bed.end()
    assert not answer.ok
    assert f"{path}, line 6" in answer.message
