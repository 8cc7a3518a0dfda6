"""Kernels that end, fall silent, come back: what becomes of their runs."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable

from feeds import Reading
from ray_bed import GatewayBed, request, start_kernel
from websockets.sync.client import connect

from jupyter_gpu_release.broker.sessions import FRESH_S, judge_closing
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.core.messages import decode, encode
from jupyter_gpu_release.core.session_messages import PROTOCOL, Accepted, GatewayMessage, Hello, Submit, Update


def _outlives_the_grace(gateway: GatewayBed, run: str, until: Callable[[Callable[[], object], str], None]) -> None:
    """It still runs when the grace of its kernel would be over; then it may end."""
    with gateway.rest() as client:
        grace_is_over = time.monotonic() + gateway.config.reconnect_grace_s * 1.5
        until(lambda: time.monotonic() > grace_is_over, "the grace's end")
        assert client.run(run).state == "running"
    gateway.let_go(run)


def test_what_a_closed_socket_means() -> None:
    assert judge_closing(100.0, said_bye=True) == "ended"
    assert judge_closing(0.0, said_bye=False) == "grace"
    assert judge_closing(FRESH_S, said_bye=False) == "grace"
    assert judge_closing(FRESH_S + 0.1, said_bye=False) == "lost"


def test_a_killed_kernel_ends_its_run_after_the_grace(gateway: GatewayBed, until) -> None:
    asked = request("hold", "killed-kernel")
    kernel = start_kernel(gateway, asked)
    kernel.send_signal(signal.SIGKILL)
    kernel.wait()
    killed_at = time.time()
    with gateway.rest() as client:
        until(lambda: client.run(asked.run).state == "cancelled", "the run's end")
        row = client.run(asked.run)
    kernel.stdout.close()
    assert row.finished_at - killed_at >= gateway.config.reconnect_grace_s * 0.9
    assert row.reason == "the notebook's kernel ended"


def test_a_kernel_that_says_bye_ends_its_runs_now(gateway: GatewayBed, until) -> None:
    asked = request("hold", "polite")
    session = GatewaySession(gateway.target, "polite")
    session.connect()
    Reading(session.submit(asked)).state("running")
    left_at = time.time()
    session.close()
    with gateway.rest() as client:
        until(lambda: client.run(asked.run).state == "cancelled", "the run's end")
        assert client.run(asked.run).finished_at - left_at < gateway.config.reconnect_grace_s


def test_a_kernel_that_is_back_within_the_grace_keeps_its_run(gateway: GatewayBed, open_session, until) -> None:
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


def test_a_silent_client_is_contact_lost(gateway: GatewayBed, until) -> None:
    """Kernels are stopped (as when the lid is closed): no heartbeats, then the socket is cut; one asked for the end."""
    kept = request("hold", "silent-kept", on_disconnect="continue")
    given_up = request("hold", "silent-given-up", on_disconnect="cancel")
    kernels = [start_kernel(gateway, asked) for asked in (kept, given_up)]
    for kernel in kernels:
        kernel.send_signal(signal.SIGSTOP)
    with gateway.rest() as client:
        until(lambda: client.run(given_up.run).state == "cancelled", "the end of the one that asked for it")
        assert client.run(given_up.run).reason.startswith("contact with the notebook's kernel was lost")
        assert client.run(kept.run).state == "running"
        gateway.let_go(kept.run)
        until(lambda: client.run(kept.run).state == "succeeded", "the other one's end")
    for kernel in kernels:
        kernel.kill()
        kernel.wait()
        kernel.stdout.close()


def test_a_newer_connection_of_a_session_takes_its_place(gateway: GatewayBed, open_session) -> None:
    asked = request("print 1\nhold", "twice")
    first = open_session("twice")
    Reading(first.submit(asked)).state("running")
    url = gateway.url.replace("http", "ws", 1) + "/v1/session"
    with connect(url, additional_headers={"Authorization": f"Bearer {gateway.token}"}, proxy=None) as second:
        second.send(encode(Hello(PROTOCOL, "twice", "", {asked.run: 0})))
        kinds = [type(decode(second.recv(timeout=10), GatewayMessage)).__name__ for _ in range(3)]
        assert kinds == ["Welcome", "Events", "Update"]
        first._closed = True  # its own reconnecting would go on for ever
    gateway.let_go(asked.run)


def test_a_slow_client_misses_nothing_and_costs_no_memory(gateway: GatewayBed, until) -> None:
    """The client reads nothing while 200,000 events (20 MiB) go by, then all of them."""
    url = gateway.url.replace("http", "ws", 1) + "/v1/session"
    asked = request("print 1000\n" * 200, "slow")
    with connect(
        url, additional_headers={"Authorization": f"Bearer {gateway.token}"}, proxy=None, max_size=None, max_queue=1
    ) as link:
        link.send(encode(Hello(PROTOCOL, "slow")))
        link.send(encode(Submit(asked)))
        with gateway.rest() as client:
            pid = client.health().pid
            before = _resident_bytes(pid)
            until(lambda: asked.run in [row.run for row in client.runs().runs], "it is submitted")
            until(lambda: client.run(asked.run).state == "succeeded", "the run's end")
            grown = _resident_bytes(pid) - before
        assert grown < 40 << 20
        numbers: list[int] = []
        accepted = False
        beating = _keep_beating(link)
        while True:
            message = decode(link.recv(timeout=20), GatewayMessage)
            accepted = accepted or isinstance(message, Accepted)
            if isinstance(message, Update) and message.view.state == "succeeded":
                break
            numbers += [event.n for event in getattr(message, "events", [])]
        beating.set()
    assert accepted
    assert numbers == list(range(1, 200_001))


def _keep_beating(link: object) -> threading.Event:
    from jupyter_gpu_release.core.session_messages import Heartbeat

    over = threading.Event()

    def beat() -> None:
        while not over.wait(1.0):
            link.send(encode(Heartbeat(time.time())))

    threading.Thread(target=beat, daemon=True).start()
    return over


def _resident_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_a_detached_run_goes_on_without_its_kernel(gateway: GatewayBed, until) -> None:
    """One was submitted so, one was let go later; a third one ends with the kernel."""
    asked = [request("hold", "leaver", detach=True), request("hold", "leaver"), request("hold", "leaver")]
    session = GatewaySession(gateway.target, "leaver")
    session.connect()
    readings = [Reading(session.submit(each)) for each in asked]
    for reading in readings:
        reading.state("running")
    session.detach(asked[1].run)
    readings[1].until(lambda item: isinstance(item, Update) and item.view.detached)
    session.close()
    with gateway.rest() as client:
        until(lambda: client.run(asked[2].run).state == "cancelled", "the end of the one that is attached")
        for each in asked[:2]:
            row = client.run(each.run)
            assert (row.state, row.detached) == ("running", True)
            gateway.let_go(each.run)
            until(lambda each=each: client.run(each.run).state == "succeeded", "its own end")


def test_a_run_is_taken_over_from_a_kernel_that_is_gone(gateway: GatewayBed, open_session, until) -> None:
    asked = request("print 2\nhold\nprint 1", "killed")
    kernel = start_kernel(gateway, asked)
    heir = open_session("heir")
    Reading(heir.follow(asked.run, adopt=True)).event(1)
    assert heir_of(gateway, asked.run) == "killed"  # its own kernel lives
    kernel.kill()
    kernel.wait()
    kernel.stdout.close()

    def is_taken_over() -> bool:
        feed = heir.follow(asked.run, adopt=True)
        heir.drop(feed)
        return heir_of(gateway, asked.run) == "heir"

    until(is_taken_over, "the heir")
    reading = Reading(heir.follow(asked.run))
    _outlives_the_grace(gateway, asked.run, until)
    assert reading.end().state == "succeeded"
    assert reading.numbers() == [1, 2, 3]


def heir_of(gateway: GatewayBed, run: str) -> str:
    with gateway.rest() as client:
        return client.view(run).session


def test_two_places_of_a_notebook_follow_one_run(gateway: GatewayBed, open_session) -> None:
    asked = request("print 3\nhold\nprint 2", "twofold")
    session = open_session("twofold")
    first = Reading(session.submit(asked))
    first.event(3)
    second = Reading(session.follow(asked.run))
    second.event(3)
    gateway.let_go(asked.run)
    assert [reading.end().state for reading in (first, second)] == ["succeeded"] * 2
    assert first.numbers() == second.numbers() == [1, 2, 3, 4, 5]


def test_a_run_that_is_not_there_is_not_detached(gateway: GatewayBed, open_session) -> None:
    session = open_session("nobody")
    reading = Reading(session.follow("20000101-000000-00000000"))
    session.detach("20000101-000000-00000000")
    assert reading.refused().code == "no_such_run"
