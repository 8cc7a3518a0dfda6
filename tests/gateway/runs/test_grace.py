"""Kernels that end or fall silent without a word, before a gateway that does not wait long for them to come back."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest
from feeds import Reading
from ray_bed import GatewayBed, RayBed, request, start_kernel, vanish

from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.errors import GatewayUnavailableError
from jupyter_gpu_release.protocol.session import Update

OpenSession = Callable[..., GatewaySession]
UntilTrue = Callable[[Callable[[], object], str], None]
_NOBODY = "20000101-000000-00000000"


@pytest.fixture(scope="module")
def shared_gateway(ray_bed: RayBed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayBed]:
    """In place of the patient one. Two tests must be back within its grace, so it is not as short as it could be."""
    gateway = GatewayBed(ray_bed, tmp_path_factory.mktemp("hasty"), reconnect_grace_s=5.0)
    answer = gateway.deploy()
    assert answer.ok, answer
    yield gateway
    gateway.end()


def _outlives_the_grace(gateway: GatewayBed, run: str, until: UntilTrue) -> None:
    """It still runs when the grace of its kernel would be over; then it may end."""
    with gateway.rest() as client:
        grace_is_over = time.monotonic() + gateway.config.reconnect_grace_s * 1.5
        until(lambda: time.monotonic() > grace_is_over, "the grace's end")
        assert client.run(run).state == "running"
    gateway.let_go(run)


# ----------------------------------------------------------------------------------------- it is over
@pytest.mark.slow("it waits for the grace")
def test_a_killed_kernel_ends_its_run_after_the_grace(gateway: GatewayBed, until: UntilTrue) -> None:
    asked = request("hold", "killed-kernel")
    kernel = start_kernel(gateway, asked)
    killed_at = time.time()
    kernel.send_signal(signal.SIGKILL)
    kernel.wait()
    with gateway.rest() as client:
        until(
            lambda: [row.unattended for row in client.status().runs if row.run == asked.run] == [True], "nobody waits"
        )
        until(lambda: client.run(asked.run).state == "cancelled", "the run's end")
        row = client.run(asked.run)
    kernel.stdout.close()
    assert row.finished_at - killed_at >= gateway.config.reconnect_grace_s * 0.9
    assert row.reason == "the notebook's kernel ended"


def test_a_forked_child_does_not_keep_the_connection_open(gateway: GatewayBed, until: UntilTrue) -> None:
    """The kernel is killed while a child that it forked lives on: its socket must be seen to close."""
    asked = request("hold", "forking")
    kernel = start_kernel(gateway, asked, and_then="child = os.fork()\nos.write(1, b'%d\\n' % child)")
    told = {kernel.stdout.readline().strip() for _ in range(2)}
    (child,) = (int(word) for word in told - {b"0"})
    kernel.kill()
    kernel.wait()
    with gateway.rest() as client:
        until(lambda: client.run(asked.run).state == "cancelled", "the run's end")
        assert client.run(asked.run).reason == "the notebook's kernel ended"
    os.kill(child, 0)  # it lived all the time
    os.kill(child, signal.SIGKILL)
    kernel.stdout.close()


@pytest.mark.thorough
def test_a_kernel_that_dies_with_the_gateway_ends_its_run(gateway: GatewayBed, until: UntilTrue) -> None:
    session = GatewaySession(gateway.target, "both")
    session.connect(60.0)
    asked = request("hold", "both")
    Reading(session.submit(asked)).state("running")
    gateway.kill_gateway()
    vanish(session)
    with gateway.rest() as client:

        def is_cancelled() -> bool:
            with suppress(GatewayUnavailableError):
                return client.run(asked.run).state == "cancelled"
            return False

        until(is_cancelled, "the run's end")


@pytest.mark.thorough
def test_a_killed_gateway_whose_kernel_dies_too_keeps_nothing(gateway: GatewayBed, until: UntilTrue) -> None:
    session = GatewaySession(gateway.target, "both-die")
    session.connect(60.0)
    asked = request("print 1", "both-die", gpus=2, keep_s=60.0)
    assert Reading(session.submit(asked)).end().kept is not None
    gateway.kill_gateway()
    vanish(session)
    until(lambda: gateway.bed.ask("groups") == [], "the end of the placement group")
    # the second where the grace was over before Ray and the agents had answered
    assert "its kernel ended" in gateway.log() or "belongs to no live run" in gateway.log()


@pytest.mark.thorough
def test_a_silent_client_is_contact_lost(gateway: GatewayBed, until: UntilTrue) -> None:
    """Kernels are stopped (as when the lid is closed): no heartbeats; one asked for the end, one is killed later."""
    kept = request("hold", "silent-kept", on_disconnect="continue")
    given_up = request("hold", "silent-given-up", on_disconnect="cancel")
    killed = request("hold", "silent-killed", on_disconnect="continue")
    kernels = [start_kernel(gateway, asked) for asked in (kept, given_up, killed)]
    for kernel in kernels:
        kernel.send_signal(signal.SIGSTOP)
    with gateway.rest() as client:
        until(lambda: client.run(given_up.run).state == "cancelled", "the end of the one that asked for it")
        assert client.run(given_up.run).reason.startswith("contact with the notebook's kernel was lost")
        assert [client.run(asked.run).state for asked in (kept, killed)] == ["running"] * 2
        kernels[2].kill()
        until(lambda: client.run(killed.run).state == "cancelled", "the end of the one whose kernel ended")
        assert client.run(kept.run).state == "running"
        gateway.let_go(kept.run)
        until(lambda: client.run(kept.run).state == "succeeded", "the other one's end")
    for kernel in kernels:
        kernel.kill()
        kernel.wait()
        kernel.stdout.close()


# ------------------------------------------------------------------------------------------ it goes on
@pytest.mark.thorough
def test_a_kernel_that_is_back_within_the_grace_keeps_its_run(
    gateway: GatewayBed, open_session: OpenSession, until: UntilTrue
) -> None:
    asked = request("print 3\nhold\nprint 2", "returning")
    kernel = start_kernel(gateway, asked)
    kernel.kill()
    kernel.wait()
    kernel.stdout.close()
    session = open_session("returning")
    reading = Reading(session.follow(asked.run, after=2))
    reading.event(3)
    _outlives_the_grace(gateway, asked.run, until)
    assert reading.end().state == "succeeded"
    assert reading.numbers() == [3, 4, 5]


@pytest.mark.thorough
def test_a_run_is_taken_over_from_a_kernel_that_is_gone(
    gateway: GatewayBed, open_session: OpenSession, until: UntilTrue
) -> None:
    asked = request("print 2\nhold\nprint 1", "killed")
    kernel = start_kernel(gateway, asked)
    heir = open_session("heir")
    Reading(heir.follow(asked.run, adopt=True)).event(1)
    assert _whose(gateway, asked.run) == "killed"  # its own kernel lives
    kernel.kill()
    kernel.wait()
    kernel.stdout.close()

    def is_taken_over() -> bool:
        feed = heir.follow(asked.run, adopt=True)
        heir.drop_feed(feed)
        return _whose(gateway, asked.run) == "heir"

    until(is_taken_over, "the heir")
    reading = Reading(heir.follow(asked.run))
    _outlives_the_grace(gateway, asked.run, until)
    assert reading.end().state == "succeeded"
    assert reading.numbers() == [1, 2, 3]


def _whose(gateway: GatewayBed, run: str) -> str:
    with gateway.rest() as client:
        return client.view(run).session


@pytest.mark.thorough
def test_a_detached_run_outlives_its_kernel_and_the_gateway(gateway: GatewayBed, until: UntilTrue) -> None:
    asked = request("hold\nvalues 100", "outlived")
    session = GatewaySession(gateway.target, "outlived")
    session.connect(60.0)
    reading = Reading(session.submit(asked))
    reading.state("running")
    session.detach(asked.run)
    reading.until(lambda item: isinstance(item, Update) and item.view.detached)
    Reading(session.follow(_NOBODY)).refused()  # one after the other: it is in the ledger by now
    old = gateway.kill_gateway()
    session.close()
    with gateway.rest() as client:

        def is_back() -> bool:
            with suppress(GatewayUnavailableError):
                return client.health().pid != old
            return False

        until(is_back, "the gateway's second life")
        grace_is_over = time.monotonic() + gateway.config.reconnect_grace_s * 1.5
        until(lambda: time.monotonic() > grace_is_over, "the grace's end")
        assert client.view(asked.run).detached
        gateway.let_go(asked.run)
        until(lambda: client.run(asked.run).state == "succeeded", "its own end")
        assert client.view(asked.run).outcome.values.stream == b"v" * 100
