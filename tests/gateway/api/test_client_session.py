"""The client's session against a real gateway: reconnects, refusals, forks, proxies of bad behaviour."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from feeds import Reading
from ray_bed import GatewayBed, request
from relay import RunOutput

from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.feed import ConnectionBack, ConnectionLost
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.errors import AuthenticationError, NoSuchRunError, from_code
from jupyter_gpu_release.protocol.runs import RunRequest
from jupyter_gpu_release.protocol.session import Signal


@pytest.fixture
def relay(gateway: GatewayBed) -> Iterator[RunOutput]:
    relay = RunOutput(gateway.url)
    yield relay
    relay.close()


@pytest.fixture
def relayed(gateway: GatewayBed, relay: RunOutput) -> Iterator[GatewaySession]:
    session = GatewaySession(Target(relay.url, gateway.token), "relayed", silence_s=2.0)
    session.connect()
    yield session
    session.close()


def running(session: GatewaySession, script: str) -> tuple[RunRequest, Reading]:
    asked = request(script, "relayed")
    reading = Reading(session.submit(asked))
    reading.state("running")
    return asked, reading


@pytest.mark.thorough
def test_cut_connections_cost_no_event(gateway: GatewayBed, relay: RunOutput, relayed: GatewaySession) -> None:
    asked = request("trickle 500\nhold\ntrickle 300", "relayed")  # it must not end before the last cut
    reading = Reading(relayed.submit(asked))
    for number in (30, 60, 120, 240, 400):
        reading.event(number)
        relay.cut()
        reading.until(lambda item: isinstance(item, ConnectionBack))
    gateway.let_go(asked.run)
    assert reading.end().state == "succeeded"
    assert reading.numbers() == list(range(1, 801))


@pytest.mark.slow("it waits for the limit of silence")
def test_a_silent_gateway_is_noticed(gateway: GatewayBed, relay: RunOutput, relayed: GatewaySession) -> None:
    asked = request("print 1\nhold\nprint 1", "relayed")
    reading = Reading(relayed.submit(asked))
    reading.event(1)
    relay.swallow = True
    lost = reading.until(lambda item: isinstance(item, ConnectionLost))
    assert "silent" in lost.error.message or "does not answer" in lost.error.message
    relay.pass_on()
    reading.until(lambda item: isinstance(item, ConnectionBack))
    gateway.let_go(asked.run)
    assert reading.end().state == "succeeded"
    assert reading.numbers() == [1, 2]


def test_a_submission_that_was_swallowed_is_sent_again(
    gateway: GatewayBed, relay: RunOutput, relayed: GatewaySession
) -> None:
    relay.swallow = True
    asked = request("print 1", "relayed")
    reading = Reading(relayed.submit(asked))
    reading.until(lambda item: isinstance(item, ConnectionLost))
    relay.pass_on()
    assert reading.end().state == "succeeded"
    with gateway.rest() as client:
        assert [row.run for row in client.runs().runs].count(asked.run) == 1


def test_an_interrupt_without_a_connection_is_delivered_later(
    gateway: GatewayBed, relay: RunOutput, relayed: GatewaySession
) -> None:
    asked, reading = running(relayed, "hold")
    relay.swallow = True
    reading.until(lambda item: isinstance(item, ConnectionLost))
    relayed.signal(asked.run)
    relay.pass_on()
    end = reading.end()
    assert end.state == "cancelled"
    assert end.outcome.notes == ["signal interrupt"]


def test_an_interrupt_that_was_swallowed_is_sent_again_and_counts_once(
    gateway: GatewayBed, relay: RunOutput, relayed: GatewaySession
) -> None:
    """A second one would kill."""
    asked, reading = running(relayed, "hold")
    relay.swallow = True
    relayed.signal(asked.run)  # nobody knows yet that the connection is gone
    reading.until(lambda item: isinstance(item, ConnectionLost))
    relay.pass_on()
    end = reading.end()
    assert (end.state, end.outcome.notes) == ("cancelled", ["signal interrupt"])

    asked, reading = running(relayed, "stubborn")
    for _ in range(3):
        relayed._tell(Signal(asked.run, "interrupt", "the same"))
    assert Reading(relayed.submit(request("print 1", "relayed"))).end().state == "succeeded"
    with gateway.rest() as client:
        assert client.run(asked.run).state == "running"
    relayed.signal(asked.run)
    assert reading.end().state == "cancelled"


def test_a_wrong_token_is_final(gateway: GatewayBed) -> None:
    session = GatewaySession(replace(gateway.target, token="wrong"), "s")
    with pytest.raises(AuthenticationError, match="does not know this token"):
        session.connect()
    feed = session.submit(request("print 1", "s"))
    lost = feed.next_item(30)
    assert isinstance(lost, ConnectionLost)
    assert lost.final
    session.close()


def test_following_a_run_that_is_none(gateway: GatewayBed, open_session) -> None:
    refused = Reading(open_session().follow("20200101-000000-00000000")).refused()
    assert isinstance(from_code(refused.code, refused.message), NoSuchRunError)


def test_large_values_pass(gateway: GatewayBed, open_session) -> None:
    end = Reading(open_session().submit(request(f"values {6 << 20}", "session"))).end()
    assert len(end.outcome.values.stream) == 6 << 20


def test_the_payload_may_be_some_mebibytes(gateway: GatewayBed, open_session) -> None:
    asked = request("print 1\n" + "#" * (5 << 20), "session")
    reading = Reading(open_session().submit(asked))
    reading.event(1)
