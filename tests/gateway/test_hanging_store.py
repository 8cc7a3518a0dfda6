"""A gateway whose store stops answering: nobody is held up by it, and things go on when it answers again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from feeds import Reading
from hanging_fs import HangingStore, hanging_store
from ray_bed import GPUS, GatewayBed, RayBed, request
from team_bed import Team, name_of

from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.gateway.api.route_table import ROUTES
from jupyter_gpu_release.protocol.rest import StatusDocument
from jupyter_gpu_release.store.layout import RunPaths

#: they read it, or write to it
_OF_THE_STORE = {"/v1/runs/{run}/events", "/v1/imports/{name}", "/v1/gc", "/v1/cache", "/v1/checks"}
_HTTP = [route for route in ROUTES if route.handler is not None]
NEED_THE_STORE = [route for route in _HTTP if route.path in _OF_THE_STORE]
NEED_NO_STORE = [route for route in _HTTP if route.path not in _OF_THE_STORE]
Until = Callable[[Callable[[], object], str], None]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[HangingStore]:
    with hanging_store(tmp_path) as made:
        yield made


@pytest.mark.thorough
def test_runs_wait_without_gpus_and_can_be_cancelled(
    ray_bed: RayBed, store: HangingStore, tmp_path: Path, until: Until
) -> None:
    gateway = GatewayBed(ray_bed, tmp_path, store=store.path)
    assert gateway.deploy().ok
    session = GatewaySession(gateway.target, "hanging")
    try:
        session.connect(60)
        assert Reading(session.submit(request("print 1", "hanging"))).end().state == "succeeded"
        store.hang()
        waiting = [Reading(session.submit(request("print 1", "hanging"))) for _ in range(12)]
        with gateway.rest() as client:
            until(lambda: _all_wait(client.status()), "all to wait, and nobody to hold a GPU")
            assert client.health().ready
            given_up = waiting.pop()
            client.cancel(given_up.feed.run)
            assert given_up.end().state == "cancelled"
        store.answer()
        assert [reading.end().state for reading in waiting] == ["succeeded"] * 11
        until(gateway.is_clean, "all to be given back")
    finally:
        store.answer()
        session.close()
        gateway.end()


@pytest.mark.thorough
def test_a_new_gateway_starts_and_answers_what_needs_no_store(
    ray_bed: RayBed, store: HangingStore, tmp_path: Path, until: Until
) -> None:
    """Every route. Questions that need the store are more than its threads, and are told that it hangs."""
    gateway = GatewayBed(ray_bed, tmp_path, store=store.path, reconnect_grace_s=300.0)
    assert gateway.deploy().ok
    session = GatewaySession(gateway.target, "hanging")
    team = Team(gateway, {"root": gateway.token}, "", "")
    questions = ThreadPoolExecutor(40)
    try:
        session.connect(60)
        done = request("print 1\nvalues 5", "hanging", cache_key="key")
        assert Reading(session.submit(done)).end().state == "succeeded"
        manifest = RunPaths(gateway.run_folder(done.run)).manifest
        until(lambda: "environment" in json.loads(manifest.read_text()), "the last that is written of it")
        store.hang()  # nobody waits for it now: a process that does cannot be killed
        before = gateway.kill_gateway()
        until(lambda: gateway.life() not in (None, before), "another gateway")
        late = request("print 1\nvalues 5", "hanging", cache_key="key")
        session.submit(late)
        asked = [questions.submit(team.ask, "root", route, done.run) for route in NEED_THE_STORE * 4]
        for route in NEED_NO_STORE:
            answer = team.ask("root", route, done.run)
            assert answer.status_code < 500, f"{name_of(route)}: {answer.text}"
        for answer in (one.result(60) for one in asked):
            assert answer.status_code < 500 or "the store has not answered" in answer.text
        store.answer()
        with gateway.rest() as client:
            until(lambda: client.run(late.run).state == "succeeded", "the run that waited for the store")
    finally:
        store.answer()
        questions.shutdown()
        session.close()
        gateway.end()


def _all_wait(status: StatusDocument) -> bool:
    """Tell if all twelve have come and wait, those that were tried for the store."""
    is_why = any("the store has not answered" in entry.reason for entry in status.queue)
    return is_why and status.gpus.free == GPUS and [run.state for run in status.runs] == ["queued"] * 12
