"""GPUs that stay with a kernel between its cells: kept, taken again, given up, and remembered by a new gateway."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from feeds import Reading
from ray_bed import GatewayBed, request
from team_bed import Team

from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.protocol.admin import TokenRequest
from jupyter_gpu_release.protocol.rest import StatusDocument, WarmRow
from jupyter_gpu_release.protocol.runs import RunView
from jupyter_gpu_release.protocol.session import Accepted, Update

Open = Callable[..., GatewaySession]


def end(session: GatewaySession, script: str = "print 1", gpus: int = 1, **facts: object) -> RunView:
    return Reading(session.submit(request(script, session.session_id, gpus, **facts))).end()


def status(gateway: GatewayBed) -> StatusDocument:
    with gateway.rest() as client:
        return client.status()


def warm(gateway: GatewayBed) -> list[WarmRow]:
    return status(gateway).warm


def release(gateway: GatewayBed, lease: str) -> WarmRow:
    with gateway.rest() as client:
        return client.release_lease(lease)


def bobs_session(gateway: GatewayBed) -> GatewaySession:
    """Another user's."""
    with gateway.rest() as root:
        secret = root.create_token(TokenRequest("bob", "user", 3600.0)).secret
    session = GatewaySession(Target(gateway.url, secret), "bobs")
    session.connect()
    return session


def test_the_next_cell_of_the_kernel_takes_what_it_kept(gateway: GatewayBed, open_session: Open, until) -> None:
    session = open_session("kernel-1")
    first = end(session, gpus=2, keep_s=600.0)
    assert first.kept is not None
    assert first.kept.for_s == gateway.config.max_keep_s == 600.0
    assert not first.on_kept
    seen = status(gateway)
    [row] = seen.warm
    assert (row.run, row.gpus, row.session, row.gpu_ids) == (first.run, 2, "kernel-1", first.gpu_ids)
    assert row.until == first.kept.until
    assert (seen.gpus.held, seen.gpus.warm, seen.gpus.free) == (2, 2, 2)
    gpus = [gpu for gpu in seen.nodes[0].gpus if gpu.state == "warm"]
    assert [(gpu.index, gpu.lease, gpu.user, gpu.warm_until) for gpu in gpus] == [
        (index, first.run, first.user, row.until) for index in first.gpu_ids
    ]
    assert gateway.bed.ask("groups") == [gateway.group_of(first.run)]

    other = bobs_session(gateway)
    blocked = Reading(other.submit(request("print 1", "bobs", 4)))
    blocked.until(lambda item: isinstance(item, Accepted | Update) and "2 are kept for other cells" in item.view.reason)
    second = end(session, gpus=2, keep_s=600.0)  # ahead of the one that waits, on the same GPUs
    assert (second.on_kept, second.gpu_ids, second.hosts) == (True, first.gpu_ids, first.hosts)
    assert second.kept is not None
    assert release(gateway, second.run).state == "gone"
    assert blocked.end().state == "succeeded"
    other.close()
    until(lambda: status(gateway).usage.today.kept_s > 0, "the account, which is read now and then")
    until(lambda: gateway.bed.ask("groups") == [], "no placement group")


@pytest.mark.parametrize(
    ("script", "facts", "kept"),
    [
        ("fail", {}, True),
        ("print 1", {"keep_s": 0.0}, False),
        ("print 1", {"gpus": 0}, False),
        ("print 1", {"detach": True}, False),
    ],
)
def test_after_which_ends_it_is_kept(
    gateway: GatewayBed, open_session: Open, script: str, facts: dict[str, object], kept: bool
) -> None:
    session = open_session("ends")
    view = end(session, script, **{"keep_s": 60.0, **facts})
    assert (view.kept is not None) is kept
    assert [row.run for row in warm(gateway)] == ([view.run] if kept else [])
    session.close()


@pytest.mark.parametrize("how", ["interrupt", "kill", "cancel"])
def test_an_interrupted_cell_keeps_its_gpus_and_one_that_was_given_up_does_not(
    gateway: GatewayBed, open_session: Open, how: str
) -> None:
    session = open_session("ended")
    asked = request("hold", "ended", keep_s=60.0)
    reading = Reading(session.submit(asked))
    reading.state("running")
    if how == "cancel":
        with gateway.rest() as client:
            client.cancel(asked.run)
    else:
        session.signal(asked.run, how)
    view = reading.end()
    assert view.state == "cancelled"
    assert (view.kept is not None) is (how == "interrupt")
    session.close()


def test_a_killed_gateway_goes_on_keeping_until_the_same_time(gateway: GatewayBed, open_session: Open, until) -> None:
    session = open_session("restart")
    asked = request("print 1", "restart", 2, keep_s=300.0)
    reading = Reading(session.submit(asked))
    first = reading.end()
    [before] = warm(gateway)
    old = gateway.kill_gateway()
    until(lambda: gateway.life() not in (None, old), "recovery")
    assert warm(gateway) == [before]
    assert gateway.bed.ask("groups") == [gateway.group_of(first.run)]
    second = end(session, gpus=2)
    assert (second.on_kept, second.gpu_ids) == (True, first.gpu_ids)
    assert second.kept is None
    assert status(gateway).gpus.free == 4


def test_a_kernel_that_says_bye_keeps_nothing(gateway: GatewayBed, until) -> None:
    session = GatewaySession(gateway.target, "bye")
    session.connect()
    assert end(session, gpus=2, keep_s=60.0).kept is not None
    session.close()
    until(lambda: status(gateway).gpus.free == 4, "the GPUs")


def test_a_killed_agent_costs_the_kept_gpus_nothing(gateway: GatewayBed, open_session: Open, until) -> None:
    """Nothing runs on them, so there is nothing to lose."""
    session = open_session("agent-dies")
    first = end(session, gpus=4, keep_s=300.0)
    lives = gateway.log().count("is up, incarnation")
    gateway.kill_agent()
    until(lambda: gateway.log().count("is up, incarnation") > lives, "the agent's next life")
    second = end(session, gpus=4)
    assert (second.state, second.on_kept, second.gpu_ids) == ("succeeded", True, first.gpu_ids)
    assert status(gateway).gpus.free == 4


def test_an_agent_that_is_gone_takes_one_run_with_it_at_most(gateway: GatewayBed, open_session: Open, until) -> None:
    """It is not known if the one that was sent to it has begun; those behind it are not sent."""
    session = open_session("agent-gone")
    end(session, gpus=4, keep_s=300.0)
    lives = gateway.log().count("is up, incarnation")
    gateway.kill_agent()
    readings = [Reading(session.submit(request("print 1", session.session_id, 4))) for _ in range(5)]
    states = [reading.end().state for reading in readings]
    assert states[1:] == ["succeeded"] * 4
    assert states[0] in ("lost", "succeeded")
    until(lambda: gateway.log().count("is up, incarnation") > lives, "the agent's next life")
    until(lambda: status(gateway).gpus.free == 4, "all GPUs are free")


@pytest.mark.slow("the first of a module starts its gateway")
def test_who_may_release_and_extend(team: Team) -> None:
    session = GatewaySession(team.bed.target, "s-kept")
    session.connect()
    lease = end(session, keep_s=120.0).run
    url = f"/v1/leases/{lease}"
    assert team.post("bob", f"{url}/release").status_code == 403
    assert team.post("bob", f"{url}/extend", {"keep_s": 60}).status_code == 403
    assert team.post("root", f"{url}/extend", {"keep_s": -1}).status_code == 400
    assert team.post("root", f"{url}/extend").status_code == 400
    asked_at = time.time()
    longer = team.post("root", f"{url}/extend", {"keep_s": 86400}).json()
    assert asked_at <= longer["until"] - 600 <= time.time()  # the gateway's maximum
    with team.rest("bob") as bob:
        [shown] = bob.status().warm
    assert (shown.run, shown.gpus, shown.session, shown.notebook) == (lease, 1, "", "")
    assert team.post("chief", f"{url}/release").json()["state"] == "gone"
    again = team.post("root", f"{url}/release")
    assert (again.status_code, "its lease has ended" in again.json()["error"]["message"]) == (409, True)
    busy = team.post("ann", f"/v1/leases/{team.held}/release")
    assert (busy.status_code, "is not warm" in busy.json()["error"]["message"]) == (409, True)
    assert team.post("ann", "/v1/leases/20260101-000000-00000000/release").status_code == 404
    done = [(entry["user"], entry["action"]) for entry in team.audit() if entry.get("target") == lease]
    assert ("bob", "lease.change") in done
    assert ("chief", "lease.release") in done
    session.close()
