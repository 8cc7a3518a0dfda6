"""Queues that go while runs wait, or are taken in: runs are admitted anew where they go."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from broker_bed import ANN, BrokerBed, until

from jupyter_gpu_release.errors import ImpossibleAskError, OptionError
from jupyter_gpu_release.gateway.service import GatewayService
from jupyter_gpu_release.protocol.runs import ResourceAsk, RunRequest
from jupyter_gpu_release.protocol.states import RunState, new_run_id
from jupyter_gpu_release.scheduling.queues.queues_file import parse_queues


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BrokerBed:
    return BrokerBed(tmp_path, monkeypatch, a=4)


def _change(service: GatewayService, queues: str) -> None:
    service.queue_rules.file = parse_queues(f"schema_version: 1\nqueues: [{queues}]", "queues.yaml")
    service.on_queues_changed()


@pytest.mark.asyncio
async def test_a_run_whose_queue_goes_has_at_most_the_priority_of_its_new_one(bed: BrokerBed) -> None:
    async with bed.life() as service:
        held = await bed.running(service, 4, priority="high")
        waits = await bed.submitted(service, 1, priority="high")
        plain = await bed.submitted(service, 1)
        large = await bed.submitted(service, 4)
        _change(service, "{name: rest, priority_ceiling: 60, max: 2}")
        assert [(run.view.queue, run.view.priority_value) for run in (held, waits, plain)] == [
            ("rest", 60),
            ("rest", 60),
            ("rest", 50),
        ]
        await until(lambda: large.state is RunState.CANCELLED)
        assert large.view.reason == (
            "its queue default is gone: asks for 4 GPUs, and queue rest has at most 2 GPUs (ask for --gpus 2)"
        )
        assert held.state is RunState.RUNNING


@pytest.mark.asyncio
async def test_a_waiting_run_ends_where_its_user_may_use_no_queue_any_more(bed: BrokerBed) -> None:
    async with bed.life() as service:
        held, waits = await bed.running(service, 4), await bed.submitted(service, 1)
        _change(service, "{name: theirs, users: [bob]}")
        await until(lambda: waits.state is RunState.CANCELLED)
        assert "no queue names you" in waits.view.reason
        assert held.state is RunState.RUNNING


@pytest.mark.asyncio
async def test_queues_that_change_while_a_run_is_taken_in_hold_for_it(bed: BrokerBed) -> None:
    async with bed.life() as service:
        service.agent_up.clear()
        asked = RunRequest(new_run_id(), "s", ResourceAsk(), b"", queue="default")
        submission = asyncio.ensure_future(service.submit(ANN, asked))
        await asyncio.sleep(0)
        _change(service, "{name: other}")
        service.agent_up.set()
        with pytest.raises(OptionError, match="--queue default: there is no such queue"):
            await submission


@pytest.mark.asyncio
async def test_a_part_is_refused_where_the_cluster_has_no_gpu_that_may_be_shared(bed: BrokerBed) -> None:
    async with bed.life() as service:
        service.queue_rules.file = parse_queues("schema_version: 1\ngpu_sharing: {types: [h100]}", "queues.yaml")
        service.on_queues_changed()
        with pytest.raises(ImpossibleAskError, match="may be shared; no node of the cluster offers that\n") as refused:
            await bed.submitted(service, ask=ResourceAsk(0.5))
        assert refused.value.hint == "the nearest that fits: --gpus 1"
