"""Runs that are preempted or lost, and go on later: the same run, at its old age, from its last save."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from feeds import Reading
from ray_bed import GPUS, GatewayBed, RayBed, request

from jupyter_gpu_release.client.feed import ConnectionBack
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.errors import ConflictError
from jupyter_gpu_release.presentation.run_display import describe_run
from jupyter_gpu_release.protocol.rest import StatusDocument
from jupyter_gpu_release.protocol.runs import RunView

#: a queue each for the tests in which somebody has to give way
QUEUES = """\
schema_version: 1
queues:
  - {name: calm, grace: 1h}
  - {name: hasty, grace: 1ms}
policy: {run_order: [priority, age]}
default_queue: calm
"""


@pytest.fixture(scope="module")
def queued(ray_bed: RayBed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayBed]:
    folder = tmp_path_factory.mktemp("requeue")
    (folder / "queues.yaml").write_text(QUEUES)
    bed = GatewayBed(ray_bed, folder, free_attempts=10_000, queues=str(folder / "queues.yaml"))
    assert bed.deploy().ok
    yield bed
    bed.end()


@pytest.fixture
def bed(queued: GatewayBed, until: Callable[..., None]) -> Iterator[GatewayBed]:
    until(queued.is_clean, "all GPUs")
    yield queued
    until(queued.is_clean, "all GPUs and no placement group after the test")


@pytest.fixture
def session(bed: GatewayBed) -> Iterator[GatewaySession]:
    made = GatewaySession(bed.target, "session")
    made.connect(60.0)
    yield made
    made.close()


def _status(bed: GatewayBed) -> StatusDocument:
    with bed.rest() as client:
        return client.status()


def _preempt(bed: GatewayBed, run: str) -> None:
    with bed.rest() as client:
        assert client.preempt(run).state == "yielding"


def _again(reading: Reading, attempt: int = 1) -> RunView:
    """Read on until it runs again."""
    return reading._view(lambda view: view.state == "running" and len(view.attempts) == attempt)


@pytest.mark.slow("it starts a run twice")
def test_a_run_that_is_asked_steps_aside_for_who_waits_and_goes_on_where_it_was(
    bed: GatewayBed, session: GatewaySession, until: Callable[..., None]
) -> None:
    moved = request("rounds 3\nvalues 9", "session", gpus=GPUS, restartable=True, timeout_s=3600.0)
    reading = Reading(session.submit(moved))
    reading.event(1)
    bed.let_go(moved.run, "round-1")
    reading.event(2)
    other = request("hold", "session", gpus=GPUS)
    theirs = Reading(session.submit(other))
    theirs.position(1)
    _preempt(bed, moved.run)
    assert reading.state("yielding").notice.action == "request"
    theirs.state("running")
    waits = reading._view(lambda view: view.state == "queued" and view.position == 1)
    assert (waits.run, waits.granted_at, waits.gone_at, waits.hosts) == (moved.run, None, None, [])
    (past,) = waits.attempts
    assert (past.status, past.place, past.lost_s) == ("preempted", "round 3", 0.0)
    assert [(row.run, row.position) for row in _status(bed).queue] == [(moved.run, 1)]
    bed.let_go(other.run)
    assert theirs.end().state == "succeeded"
    assert _again(reading).attempts == [past]
    bed.let_go(moved.run, "round-3")
    end = reading.end()
    assert (end.state, end.outcome.values.stream) == ("succeeded", b"v" * 9)
    assert reading.numbers() == [1, 2, 3], "round 3 began once"
    assert all(view.gone_at is None and view.outcome is None for view in reading.views() if not view.finished_at)
    spans = [end.gone_at - end.granted_at, past.gone_at - past.granted_at]
    with bed.rest() as client:
        assert client.run(moved.run).held_s == pytest.approx(sum(spans), abs=0.01)
        until(lambda: client.status().usage.week.held_s >= GPUS * sum(spans), "an account of all attempts")


@pytest.mark.parametrize("script", ["rounds 2", "save 2\nstubborn"])
def test_a_run_that_is_cancelled_while_it_has_stepped_aside_brings_its_last_save_home(
    bed: GatewayBed, session: GatewaySession, script: str
) -> None:
    asked = request(script, "session", gpus=GPUS, restartable=True, queue="calm" if "rounds" in script else "hasty")
    reading = Reading(session.submit(asked))
    reading._view(lambda view: view.state == "running" and (view.saved_at or "rounds" in script))
    other = request("hold", "session", gpus=GPUS)
    theirs = Reading(session.submit(other))
    theirs.position(1)
    _preempt(bed, asked.run)
    reading._view(lambda view: view.state == "queued" and view.attempts)
    session.signal(asked.run)
    end = reading.end()
    assert (end.state, end.outcome.status, end.outcome.values.stream) == ("cancelled", "interrupted", b"before round 2")
    assert end.granted_at < end.gone_at
    assert end.attempts == []
    theirs.state("running")  # before that it has no folder
    bed.let_go(other.run)
    assert theirs.end().state == "succeeded"


def test_a_run_that_cannot_be_saved_stays_and_says_why(bed: GatewayBed, session: GatewaySession) -> None:
    asked = request("stays\nprint 1\nhold", "session", restartable=True)
    reading = Reading(session.submit(asked))
    reading.event(1)
    with bed.rest() as client:
        client.preempt(asked.run)
    stays = reading._view(lambda view: view.state == "running" and view.stays)
    assert stays.stays == "cannot be moved: `sock` is an open socket"
    assert describe_run(stays).endswith("cannot be preempted: cannot be moved: `sock` is an open socket")
    with bed.rest() as client, pytest.raises(ConflictError, match="open socket"):
        client.preempt(asked.run)
    bed.let_go(asked.run)
    assert reading.end().state == "succeeded"
    plain = request("hold", "session")
    reading = Reading(session.submit(plain))
    reading.state("running")
    with bed.rest() as client, pytest.raises(ConflictError, match="not restartable"):
        client.preempt(plain.run)
    bed.let_go(plain.run)
    assert reading.end().state == "succeeded"


@pytest.mark.parametrize("when", ["yielding", "queued"])
def test_a_killed_gateway_forgets_neither_the_notice_nor_the_save(
    bed: GatewayBed, session: GatewaySession, when: str, tmp_path: Path
) -> None:
    script = "rounds 2" if when == "queued" else "deaf\nrounds 2"
    asked = request(f"{script}\nvalues 4", "session", gpus=GPUS, restartable=True)
    other = request("hold", "session", gpus=GPUS)
    reading = Reading(session.submit(asked))
    reading.event(1)
    theirs = Reading(session.submit(other))
    theirs.position(1)
    _preempt(bed, asked.run)
    reading._view(lambda view: view.state == when and (view.attempts or when == "yielding"))
    bed.kill_gateway()
    reading.until(lambda item: isinstance(item, ConnectionBack))
    bed.let_go(asked.run, "hears")
    theirs.state("running")
    bed.let_go(other.run)
    assert theirs.end().state == "succeeded"
    assert [past.place for past in _again(reading).attempts] == ["round 2"]
    bed.let_go(asked.run, "round-2")
    end = reading.end()
    assert (end.state, end.outcome.values.stream, reading.numbers()) == ("succeeded", b"v" * 4, [1, 2])
