"""The gateway, the node agent, the cluster die: what runs goes on, what waits keeps its place, nothing is held."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from feeds import Reading
from ray_bed import GatewayBed, RayBed, request

from jupyter_gpu_release.client.feed import ConnectionBack, ConnectionLost
from jupyter_gpu_release.client.home import write_secret


def test_a_killed_gateway_costs_no_run_and_no_event(gateway: GatewayBed, open_session) -> None:
    """One that goes on, one that ends while the gateway is down, one that is submitted then."""
    session = open_session("survivor")
    asked = request("trickle 300\nhold\ntrickle 300\nvalues 100", "survivor", gpus=2)
    ending, late = request("hold\nprint 5\nvalues 7", "survivor"), request("print 2", "survivor")
    reading, ends = Reading(session.submit(asked)), Reading(session.submit(ending))
    reading.event(50)
    ends.state("running")
    gateway.kill_gateway()
    gateway.let_go(ending.run)
    reading.until(lambda item: isinstance(item, ConnectionLost))
    submitted = Reading(session.submit(late))
    gateway.let_go(asked.run)
    reading.until(lambda item: isinstance(item, ConnectionBack))
    end = reading.end()
    assert end.state == "succeeded"
    assert end.outcome.values.stream == b"v" * 100
    assert reading.numbers() == list(range(1, 601))
    seqs = [view.seq for view in reading.views()]
    assert seqs == sorted(set(seqs))
    end = ends.end()
    assert end.state == "succeeded"
    assert ends.numbers() == [1, 2, 3, 4, 5]
    assert len(end.outcome.values.stream) == 7
    assert submitted.end().state == "succeeded"
    assert submitted.numbers() == [1, 2]
    with gateway.rest() as client:
        assert [row.run for row in client.runs().runs].count(late.run) == 1


def test_a_group_that_was_handed_over_is_found_again_and_the_queue_keeps_its_order(
    gateway: GatewayBed, open_session, until
) -> None:
    """The second run holds the group that is named after the first."""
    session = open_session("handed")
    first, second = request("hold", "handed", gpus=4), request("hold\nprint 3", "handed", gpus=4)
    one, two = Reading(session.submit(first)), Reading(session.submit(second))
    two.position(1)
    gateway.let_go(first.run)
    assert one.end().state == "succeeded"
    two.state("running")
    waiting = [Reading(session.submit(request("print 1", "handed", gpus=4))) for _ in range(3)]
    for place, reading in enumerate(waiting, start=1):
        reading.position(place)
    assert gateway.bed.ask("groups") == [gateway.group_of(first.run)]
    gateway.kill_gateway()
    two.until(lambda item: isinstance(item, ConnectionBack))
    with gateway.rest() as client:
        until(lambda: client.health().ready, "recovery")
        assert client.status().gpus.held == 4
    assert gateway.bed.ask("groups") == [gateway.group_of(first.run)]
    gateway.let_go(second.run)
    ends = [two.end(), *(reading.end() for reading in waiting)]
    assert [end.state for end in ends] == ["succeeded"] * 4
    granted = [end.granted_at for end in ends]
    assert granted == sorted(granted)


def test_a_placement_group_of_nobody_is_removed(gateway: GatewayBed, until) -> None:
    gateway.bed.ask("group", gateway.group_of("20260101-000000-00000000"))
    until(lambda: gateway.bed.ask("groups") == [], "its removal")


def test_deploying_again_finds_the_gateway(gateway: GatewayBed) -> None:
    with gateway.rest() as client:
        pid = client.health().pid
    answer = gateway.deploy()
    assert (answer.ok, answer.created, answer.pid, answer.url) == (True, False, pid, gateway.url)


@pytest.fixture
def broken(ray_bed: RayBed, tmp_path: Path) -> Iterator[GatewayBed]:
    bed = GatewayBed(ray_bed, tmp_path)
    yield bed
    bed.end()


def test_deploying_to_nobody(broken: GatewayBed) -> None:
    broken.config = msgspec.structs.replace(broken.config, ray_address="127.0.0.1:1")
    answer = broken.deploy()
    assert not answer.ok
    assert "cannot connect to the Ray cluster 127.0.0.1:1" in answer.message
    assert answer.hint


def test_deploying_with_a_wrong_ray_token(broken: GatewayBed, tmp_path: Path) -> None:
    write_secret(tmp_path / "wrong", "0" * 64)
    answer = broken.deploy(RAY_AUTH_TOKEN_PATH=str(tmp_path / "wrong"), RAY_NUM_REDIS_GET_RETRIES="2")
    assert (answer.ok, answer.code) == (False, "unauthenticated")
    assert "does not let us in" in answer.message
    assert "RAY_AUTH_TOKEN_PATH" in answer.hint


def test_deploying_to_a_cluster_of_somebody_else_checks_its_nodes(broken: GatewayBed) -> None:
    broken.config = msgspec.structs.replace(broken.config, embedded=False)
    assert broken.deploy().ok


def test_deploying_without_a_node_agent_says_why(broken: GatewayBed) -> None:
    broken.config = msgspec.structs.replace(broken.config, agent_entry="no_such_module:Agent", ready_timeout_s=1)
    answer = broken.deploy()
    assert not answer.ok
    assert "no_such_module" in answer.message


def test_deploying_onto_a_port_that_is_taken(broken: GatewayBed, gateway: GatewayBed) -> None:
    broken.config = msgspec.structs.replace(broken.config, port=gateway.config.port)
    answer = broken.deploy()
    assert not answer.ok
    assert str(gateway.config.port) in answer.message
