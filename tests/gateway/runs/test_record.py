"""A run's stages: what they carry, and that what is not expected is refused and harms nobody."""

from __future__ import annotations

import ast
import asyncio
import logging
from pathlib import Path

import pytest
from broker_bed import ANN, BrokerBed, until
from sqlalchemy.exc import OperationalError

import jupyter_gpu_release.gateway.service as service_module
from jupyter_gpu_release.gateway.cluster.lease import Lease
from jupyter_gpu_release.gateway.db import database
from jupyter_gpu_release.gateway.db.rows import StoredRun
from jupyter_gpu_release.gateway.db.writer import LedgerError
from jupyter_gpu_release.gateway.runs.record import (
    Ended,
    Persisting,
    Queued,
    Releasing,
    Running,
    RunRecord,
    Stage,
    Starting,
)
from jupyter_gpu_release.protocol.cell import CellPayload
from jupyter_gpu_release.protocol.node import AttemptId, RunPhase
from jupyter_gpu_release.protocol.runs import Outcome, PersistWait, ResourceAsk, RunRequest, RunView
from jupyter_gpu_release.protocol.states import RunState, new_run_id
from jupyter_gpu_release.protocol.wire import encode
from jupyter_gpu_release.scheduling.decisions import Slot

LEASE = Lease("lease", AttemptId("r", 0), (Slot("n", 1),))
OUTCOME = Outcome("ok")
PHASES = ("starting", "running", "ended", "released", "final")


def record(stage: Stage) -> RunRecord:
    view = RunView("r", "ann", stage.state.word)
    return RunRecord(view, 1, RunRequest("r", "s", ResourceAsk(gpus=1), b"cell"), stage)


def stages() -> list[Stage]:
    """One of each, in order."""
    return [
        Queued(),
        Starting(LEASE),
        Running(LEASE),
        Releasing(LEASE),
        Releasing(None, OUTCOME),
        Persisting(OUTCOME),
        Ended(RunState.SUCCEEDED, OUTCOME),
    ]


def test_each_stage_carries_what_exists_only_then() -> None:
    held = [record(stage).lease for stage in stages()]
    assert held == [None, LEASE, LEASE, LEASE, None, None, None]
    known = [record(stage).outcome for stage in stages()]
    assert known == [None, None, None, None, OUTCOME, OUTCOME, OUTCOME]


def test_a_phase_of_its_node_is_news_once_and_never_leads_back() -> None:
    news = [[phase for phase in PHASES if record(stage).snapshot.expects(phase)] for stage in stages()]
    assert news == [[], list(PHASES[1:]), list(PHASES[2:]), ["released", "final"], ["final"], ["final"], []]
    assert not record(Releasing(None, OUTCOME, is_final=True)).snapshot.expects("final")


@pytest.mark.parametrize("stage", stages())
def test_the_ledger_brings_a_run_back_in_its_stage(stage: Stage) -> None:
    view = RunView("r", "ann", stage.state.word, waits_for=PersistWait("/store/r", 1, "full", kept="memory"))
    back = RunRecord.restored(StoredRun(view, 1, OUTCOME, None)).stage
    assert type(back) is type(stage)
    if isinstance(back, Persisting):
        assert (back.outcome, back.wait) == (OUTCOME, view.waits_for)


@pytest.mark.asyncio
async def test_what_is_not_expected_is_said_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    bed = BrokerBed(tmp_path, monkeypatch, a=4)
    async with bed.life() as service:
        run = await bed.running(service)
        before = run.snapshot
        service.lifecycle.hear(run, RunPhase(run.attempt_id, "running", 1.0))
        service.lifecycle.hear(run, RunPhase(AttemptId(run.run, 7), "ended", 1.0))
        assert run.snapshot is before
        assert f"run {run.run}: RunPhase is not expected: it is running" in caplog.text
        assert f"RunPhase is not expected: it is of attempt {run.run}.7" in caplog.text
        bed.end(service, run)
        await until(lambda: run.state is RunState.SUCCEEDED)
        bed.agents["a"].orders.clear()
        service.lifecycle.queue.add(run)  # as if somebody had forgotten that it is over
        service.lifecycle.queue.serve()
        await until(lambda: not service.leases.all() and not bed.ray.groups)
        assert (run.state, bed.agents["a"].orders) == (RunState.SUCCEEDED, {})
        assert "Granted is not expected: it is succeeded" in caplog.text


def test_no_part_of_the_gateway_is_told_later_whom_to_call() -> None:
    """Parts get their listeners when they are made: what follows from what is read in ``service.py``."""
    found = [
        f"{path.name}:{node.lineno}"
        for path in Path(service_module.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr.startswith("on_")
    ]
    assert found == []


@pytest.mark.asyncio
async def test_a_run_that_the_ledger_refuses_gets_no_gpu_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was granted before the ledger said no, and whoever sent it was told that nothing was queued."""

    def full(*_: object) -> None:
        raise OperationalError("INSERT", {}, Exception("database or disk is full"))

    bed = BrokerBed(tmp_path, monkeypatch, a=2)
    async with bed.life() as service:
        with monkeypatch.context() as patch:
            patch.setattr(database, "insert_run", full)
            asked = RunRequest(new_run_id(), "s", ResourceAsk(gpus=2), encode(CellPayload(source="x")))
            refused = await service.submit(ANN, asked)
            with pytest.raises(LedgerError):
                await service.committed(refused)
        await until(lambda: isinstance(refused.stage, Ended))
        await bed.running(service, 2)
        assert bed.ray.asked.count("placement_group") == 2
        assert refused.run not in service.lifecycle.queue


@pytest.mark.asyncio
async def test_an_end_is_told_once_it_is_committed_and_not_if_that_has_failed() -> None:
    loop = asyncio.get_running_loop()
    for result, may_be_told in ((None, True), (LedgerError("no"), False)):
        over = record(Ended(RunState.CANCELLED, None))
        assert over.may_be_told, "of an earlier life"
        over.committed = loop.create_future()
        assert not over.may_be_told
        if result is None:
            over.committed.set_result(None)
        else:
            over.committed.set_exception(result)
        assert (over.may_be_told, over.refused_by_ledger) == (may_be_told, not may_be_told)
