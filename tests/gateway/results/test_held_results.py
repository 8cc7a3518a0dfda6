"""Pins and holds: said in the request or later, seen in lists, and they outlive the gateway."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from feeds import Reading
from ray_bed import GatewayBed, request
from sqlalchemy import create_engine, text

from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.errors import NoSuchRunError

OpenSession = Callable[..., GatewaySession]


def finished(session: GatewaySession, script: str = "", **facts: object) -> str:
    asked = request(script, session.session_id, **facts)
    Reading(session.submit(asked)).state("succeeded")
    return asked.run


def holds_in_ledger(gateway: GatewayBed) -> set[tuple[str, str]]:
    engine = create_engine(f"sqlite:///{gateway.config.home}/ledger.sqlite")
    with engine.connect() as connection:
        found = {(row.session, row.run) for row in connection.execute(text("SELECT session, run FROM holds"))}
    engine.dispose()
    return found


def test_a_run_is_pinned_with_its_submission_or_later(gateway: GatewayBed, open_session: OpenSession) -> None:
    session = open_session("pins")
    early, late = finished(session, pin=True), finished(session)
    with gateway.rest() as client:
        assert (client.run(early).pinned, client.run(late).pinned) == (True, False)
        assert client.pin(late).pinned
        assert client.pin(late).pinned  # again
        assert not client.pin(early, pinned=False).pinned
        rows = {row.run: row.pinned for row in client.runs().runs}
        assert (rows[early], rows[late]) == (False, True)
        with pytest.raises(NoSuchRunError):
            client.pin("20200101-000000-00000000")


def test_pins_survive_the_gateways_death(
    gateway: GatewayBed, open_session: OpenSession, until: Callable[..., None]
) -> None:
    run = finished(open_session("pins and dies"))
    with gateway.rest() as client:
        client.pin(run)
        before = gateway.kill_gateway()
    until(lambda: gateway.life() not in (None, before), "a new gateway")
    with gateway.rest() as client:
        assert client.run(run).pinned


def test_who_attaches_a_run_holds_it(
    gateway: GatewayBed, open_session: OpenSession, until: Callable[..., None]
) -> None:
    first = open_session("made it")
    run = finished(first)
    assert ("made it", run) not in holds_in_ledger(gateway)  # its own session is in the run
    Reading(open_session("attached it").follow(run)).state("succeeded")
    until(lambda: ("attached it", run) in holds_in_ledger(gateway), "the hold in the ledger")


def test_who_loads_a_run_holds_it(gateway: GatewayBed, open_session: OpenSession, until: Callable[..., None]) -> None:
    run = finished(open_session("made this"))
    open_session("loads it")
    with gateway.rest() as client:
        client.view(run, session="loads it")
        client.view(run, session="nobody")
    until(lambda: ("loads it", run) in holds_in_ledger(gateway), "the hold in the ledger")
    assert ("nobody", run) not in holds_in_ledger(gateway)
