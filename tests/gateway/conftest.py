"""One Ray cluster for all broker tests; gateways on it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from feeds import Reading
from ray_bed import GatewayBed, RayBed, request
from team_bed import Team

from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.gateway.auth.tokens import digest_of
from jupyter_gpu_release.gateway.db.database import open_ledger, put_token
from jupyter_gpu_release.gateway.db.rows import StoredToken
from jupyter_gpu_release.protocol.admin import TokenRequest, TokenRevocation

_OF_OURS = ("jupyter_gpu_release.gateway.dispatch", "jupyter_gpu_release.host.background")


@pytest.fixture(autouse=True)
def no_fault_of_ours(request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """The queue survives faults in its own code and goes on; a test that did not provoke one must not hide it."""
    yield
    faults = [
        logging.Formatter().format(record)
        for record in caplog.get_records("call")
        if record.exc_info and record.name.startswith(_OF_OURS)
    ]
    assert bool(faults) == (request.node.get_closest_marker("faults_of_ours") is not None), "\n".join(faults)


@pytest.fixture(scope="session")
def ray_bed() -> Iterator[RayBed]:
    bed = RayBed()
    yield bed
    bed.stop()


@pytest.fixture(scope="session")
def shared_gateway(ray_bed: RayBed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayBed]:
    """One that waits long for kernels to come back, however busy the machine is; test_grace.py has a hasty one."""
    gateway = GatewayBed(ray_bed, tmp_path_factory.mktemp("gateway"), free_attempts=10_000)
    answer = gateway.deploy()
    assert answer.ok, answer
    yield gateway
    gateway.end()


@pytest.fixture(scope="module")
def team(ray_bed: RayBed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    bed = GatewayBed(ray_bed, tmp_path_factory.mktemp("routes"), free_attempts=10_000, reconnect_grace_s=1.0)
    engine = open_ledger(Path(bed.config.home) / "ledger.sqlite")
    with engine.begin() as connection:
        past_s = time.time() - 10
        put_token(connection, StoredToken(digest_of("jgr_expired"), "old", "ann", "admin", past_s, 0.0))
    engine.dispose()
    assert bed.deploy().ok
    secrets = {"root": bed.token, "wrong": "jgr_" + "x" * 43, "expired": "jgr_expired"}
    with bed.rest() as root:
        for name, role in (("ann", "user"), ("bob", "user"), ("chief", "admin"), ("revoked", "admin")):
            secrets[name] = root.create_token(TokenRequest(name, role, 3600.0)).secret
        root.revoke_tokens(TokenRevocation(user="revoked"))
    session = GatewaySession(Target(bed.url, secrets["ann"]), "s-ann")
    session.connect()
    over = request("print 1\nvalues 5", "s-ann")
    held = request("print 1\nhold", "s-ann", detach=True)  # whatever becomes of the connection of ann's kernel
    Reading(session.submit(over)).end()
    reading = Reading(session.submit(held))
    reading.state("running")
    yield Team(bed, secrets, over.run, held.run)
    bed.let_go(held.run)
    assert reading.end().state == "succeeded", "somebody who may not has ended ann's run"
    session.close()
    bed.end()


@pytest.fixture
def gateway(shared_gateway: GatewayBed, until: Callable[..., None]) -> Iterator[GatewayBed]:
    """The shared gateway; after the test nothing may be held or queued."""
    until(shared_gateway.is_clean, "all GPUs, which another gateway may have had a moment ago")
    yield shared_gateway
    with shared_gateway.rest() as client:
        for row in client.status().runs:
            client.cancel(row.run, kill=True)
    until(shared_gateway.is_clean, "all GPUs and no placement group after the test")


@pytest.fixture
def open_session(gateway: GatewayBed) -> Iterator[Callable[..., GatewaySession]]:
    """Makes connected sessions; they are closed after the test."""
    sessions: list[GatewaySession] = []

    def make(name: str = "session", **settings: Any) -> GatewaySession:
        session = GatewaySession(gateway.target, name, **settings)
        sessions.append(session)
        session.connect(60.0)
        return session

    yield make
    for session in sessions:
        session.close()
