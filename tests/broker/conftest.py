"""One Ray cluster for all broker tests; gateways on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ray_bed import GatewayBed, RayBed

from jupyter_gpu_release.client.session import GatewaySession


@pytest.fixture(scope="session")
def ray_bed() -> Iterator[RayBed]:
    bed = RayBed()
    yield bed
    bed.stop()


@pytest.fixture(scope="session")
def shared_gateway(ray_bed: RayBed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayBed]:
    gateway = GatewayBed(ray_bed, tmp_path_factory.mktemp("gateway"), reconnect_grace_s=2.0, free_attempts=10_000)
    answer = gateway.deploy()
    assert answer.ok, answer
    yield gateway
    gateway.end()


@pytest.fixture
def gateway(shared_gateway: GatewayBed) -> Iterator[GatewayBed]:
    """The shared gateway; after the test nothing may be held or queued."""
    yield shared_gateway
    with shared_gateway.rest() as client:
        for row in client.status().runs:
            client.cancel(row.run, kill=True)
        _until(lambda: not client.status().runs)
        assert client.status().gpus.held == 0
    assert shared_gateway.bed.ask("groups") == []


def _until(condition: Callable[[], object]) -> None:
    import time

    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def open_session(gateway: GatewayBed) -> Iterator[Callable[..., GatewaySession]]:
    """Makes connected sessions; they are closed after the test."""
    sessions: list[GatewaySession] = []

    def make(name: str = "session", **settings: Any) -> GatewaySession:
        session = GatewaySession(gateway.target, name, **settings)
        sessions.append(session)
        session.connect(10.0)
        return session

    yield make
    for session in sessions:
        session.close()
