"""Kernels that end or fall silent without a word, before a gateway that does not wait long for them to come back."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest
from feeds import Reading
from ray_bed import GPUS, GatewayBed, RayBed, request, start_kernel, vanish

from jupyter_gpu_release.client.session import GatewaySession
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


def _wait_for_the_end_of_the_grace(gateway: GatewayBed, until: UntilTrue) -> None:
    grace_is_over = time.monotonic() + gateway.config.reconnect_grace_s * 1.5
    until(lambda: time.monotonic() > grace_is_over, "the grace's end")


def _kill(kernel: subprocess.Popen[bytes]) -> None:
    kernel.kill()
    kernel.wait()
    assert kernel.stdout is not None
    kernel.stdout.close()


@pytest.mark.slow("it waits for the grace")
def test_killed_kernels_end_their_runs_after_the_grace(gateway: GatewayBed, until: UntilTrue) -> None:
    """One has forked a child that lives on: its socket must be seen to close all the same."""
    asked, forked = request("hold", "killed-kernel"), request("hold", "forking")
    kernel = start_kernel(gateway, asked)
    forking = start_kernel(gateway, forked, and_then="child = os.fork()\nos.write(1, b'%d\\n' % child)")
    assert forking.stdout is not None
    told = {forking.stdout.readline().strip() for _ in range(2)}
    (child,) = (int(word) for word in told - {b"0"})
    killed_at = time.time()
    for each in (kernel, forking):
        _kill(each)
    with gateway.rest() as client:
        until(lambda: [row.unattended for row in client.status().runs] == [True, True], "nobody waits")
        for run in (asked.run, forked.run):
            until(lambda run=run: client.run(run).state == "cancelled", "the run's end")
            row = client.run(run)
            assert row.finished_at - killed_at >= gateway.config.reconnect_grace_s * 0.9
            assert row.reason == "the notebook's kernel ended"
    os.kill(child, 0)  # it lived all the time
    os.kill(child, signal.SIGKILL)


@pytest.mark.thorough
def test_what_becomes_of_runs_whose_kernels_die_with_the_gateway(gateway: GatewayBed, until: UntilTrue) -> None:
    """One that runs ends, GPUs that were kept are given back, and one that was detached goes on."""
    running, kept = request("hold", "runs"), request("print 1", "keeps", gpus=2, keep_s=60.0)
    detached = request("hold\nvalues 100", "detached")
    sessions = {asked.run: GatewaySession(gateway.target, asked.session) for asked in (running, kept, detached)}
    for session in sessions.values():
        session.connect(60.0)
    readings = {asked.run: Reading(sessions[asked.run].submit(asked)) for asked in (running, kept, detached)}
    readings[running.run].state("running")
    assert readings[kept.run].end().kept is not None
    readings[detached.run].state("running")
    sessions[detached.run].detach(detached.run)
    readings[detached.run].until(lambda item: isinstance(item, Update) and item.view.detached)
    Reading(sessions[detached.run].follow(_NOBODY)).refused()  # one after the other: it is in the ledger by now
    old = gateway.kill_gateway()
    sessions[detached.run].close()
    for asked in (running, kept):
        vanish(sessions[asked.run])
    until(lambda: gateway.life() not in (None, old), "the gateway's second life")
    with gateway.rest() as client:
        until(lambda: client.run(running.run).state == "cancelled", "the run's end")
        until(lambda: client.status().gpus.free == GPUS - 1, "the kept GPUs")
        until(lambda: gateway.bed.ask("groups") == [gateway.group_of(detached.run)], "the end of the placement groups")
        _wait_for_the_end_of_the_grace(gateway, until)
        assert client.view(detached.run).detached
        gateway.let_go(detached.run)
        until(lambda: client.run(detached.run).state == "succeeded", "its own end")
        assert client.view(detached.run).outcome.values.stream == b"v" * 100


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
        _kill(kernel)


@pytest.mark.thorough
def test_runs_go_on_whose_kernel_is_back_within_the_grace_or_whom_another_took_over(
    gateway: GatewayBed, open_session: OpenSession, until: UntilTrue
) -> None:
    asked, taken = request("print 3\nhold\nprint 2", "returning"), request("print 2\nhold\nprint 1", "killed")
    first = start_kernel(gateway, taken)
    heir = open_session("heir")
    Reading(heir.follow(taken.run, adopt=True)).event(1)
    assert _whose(gateway, taken.run) == "killed"  # its own kernel lives
    _kill(first)

    def is_taken_over() -> bool:
        feed = heir.follow(taken.run, adopt=True)
        heir.drop_feed(feed)
        return _whose(gateway, taken.run) == "heir"

    until(is_taken_over, "the heir")
    _kill(start_kernel(gateway, asked))
    reading = Reading(open_session("returning").follow(asked.run, after=2))
    reading.event(3)
    _wait_for_the_end_of_the_grace(gateway, until)
    with gateway.rest() as client:
        assert [client.run(each.run).state for each in (asked, taken)] == ["running"] * 2
    readings = {asked.run: (reading, [3, 4, 5]), taken.run: (Reading(heir.follow(taken.run)), [1, 2, 3])}
    for run, (each, numbers) in readings.items():
        gateway.let_go(run)
        assert each.end().state == "succeeded"
        assert each.numbers() == numbers


def _whose(gateway: GatewayBed, run: str) -> str:
    with gateway.rest() as client:
        return client.view(run).session
