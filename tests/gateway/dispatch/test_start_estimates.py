"""Questions about starts: what they cost, what they are told where many wait, and that no change is missed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from broker_bed import BrokerBed, until
from msgspec import structs
from starlette.requests import Request

from jupyter_gpu_release.errors import ImpossibleAskError, TooManyRequestsError
from jupyter_gpu_release.gateway.api.handlers import list_runs, show_run
from jupyter_gpu_release.gateway.auth.permissions import Caller
from jupyter_gpu_release.gateway.dispatch import estimate_questions, start_estimates
from jupyter_gpu_release.gateway.dispatch.parts import part_of_user
from jupyter_gpu_release.protocol.node import GpuInfo
from jupyter_gpu_release.protocol.rest import EstimateQuestion, RunsDocument
from jupyter_gpu_release.protocol.runs import ResourceAsk, RunRequest
from jupyter_gpu_release.scheduling.queues.queues_file import QueuesFile, parse_queues
from jupyter_gpu_release.scheduling.workload import Node


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BrokerBed:
    return BrokerBed(tmp_path, monkeypatch, a=4)


class Held:
    """The working out of starts, held up: how often it was begun, and how often at once."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.goes_on = threading.Event()
        self.begun = self.now = self.most = 0
        self._work, self._lock = start_estimates.estimates, threading.Lock()
        patch.setattr(start_estimates, "estimates", self._held)

    def _held(self, *arguments: Any) -> Any:
        with self._lock:
            self.begun += 1
            self.now += 1
            self.most = max(self.most, self.now)
        assert self.goes_on.wait(60)
        with self._lock:
            self.now -= 1
        return self._work(*arguments)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    held = Held(monkeypatch)
    yield held
    held.goes_on.set()


def _asked(gpus: int) -> EstimateQuestion:
    return EstimateQuestion(ResourceAsk(gpus=gpus))


@pytest.mark.asyncio
async def test_questions_are_answered_one_by_one_and_the_same_one_once(bed: BrokerBed, held: Held) -> None:
    async with bed.life() as service:
        ask = service.start_estimates.estimate_of
        same = [asyncio.ensure_future(ask("ann", _asked(1))) for _ in range(20)]
        await until(lambda: held.begun == 1)
        others = [asyncio.ensure_future(ask(user, _asked(2))) for user in ("ann", "bob", "eve")]
        await asyncio.sleep(0)
        many = [asyncio.ensure_future(ask("ann", EstimateQuestion(name=f"run {number}"))) for number in range(20)]
        await until(lambda: any(answer.done() for answer in many))
        refused = [answer for answer in many if answer.done()]
        assert all(isinstance(answer.exception(), TooManyRequestsError) for answer in refused)
        assert "ann asks about more" in str(refused[0].exception())
        held.goes_on.set()
        assert {answer.starts_in_s for answer in await asyncio.gather(*same, *others)} == {0.0}
        await asyncio.gather(*[answer for answer in many if answer not in refused])
        assert held.most == 1
        assert held.begun == 1 + len(others) + len(many) - len(refused)


@pytest.mark.asyncio
async def test_an_answer_is_given_again_until_something_changes(
    bed: BrokerBed, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimate_questions, "_KEPT", 1e9)
    held.goes_on.set()
    async with bed.life() as service:
        ask = service.start_estimates.estimate_of
        assert [(await ask("ann", _asked(4))).starts_in_s for _ in range(3)] == [0.0, 0.0, 0.0]
        assert held.begun == 1
        await bed.running(service, 1)
        assert (await ask("ann", _asked(4))).position == 1


@pytest.mark.asyncio
async def test_where_more_wait_than_are_looked_at_no_time_is_told_but_the_real_place(
    bed: BrokerBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_estimates, "_MOST_WAITING", 2)
    async with bed.life() as service:
        await bed.running(service, 4, timeout_s=600.0)
        waiting = [await bed.submitted(service, 4) for _ in range(5)]
        await until(lambda: [record.view.position for record in waiting] == [1, 2, 3, 4, 5])
        asked = await service.start_estimates.estimate_of("ann", _asked(4))
        assert (asked.position, asked.at_most_s, asked.sooner) == (6, None, [])
        assert asked.reason == "6th in the queue: needs 4 GPUs, 0 of 4 are free"
        last = await service.start_estimates.estimate_of_run(waiting[-1])
        assert (last.position, last.reason, last.at_most_s) == (5, waiting[-1].view.reason, None)
        first = await service.start_estimates.estimate_of_run(waiting[0])
        assert (first.position, first.sooner) == (1, [])
        assert first.at_most_s is not None
        assert service.lifecycle.queue.inventory.scheduler.state.jobs.keys().isdisjoint({"asked"})


@pytest.mark.asyncio
async def test_queues_that_would_refuse_the_run_are_not_offered(bed: BrokerBed, tmp_path: Path) -> None:
    rules = parse_queues(
        "schema_version: 1\nqueues: [{name: own, max: 1}, {name: low, priority_ceiling: low},"
        " {name: short, max_timeout: 1m}, {name: open}]\ndefault_queue: own",
        "queues.yaml",
    )
    async with bed.life() as service:
        service.queue_rules.file = rules
        await bed.running(service, 1)
        waits = await bed.submitted(service, 1, timeout_s=600.0)
        asked = await service.start_estimates.estimate_of("ann", EstimateQuestion(timeout_s=600.0))
        waiting = await service.start_estimates.estimate_of_run(waits)
        assert [each.change for each in asked.sooner] == [each.change for each in waiting.sooner] == ["--queue open"]


@pytest.mark.asyncio
async def test_the_price_of_a_part_by_memory_is_that_of_the_part(bed: BrokerBed) -> None:
    async with bed.life() as service:
        service.queue_rules.file = parse_queues("schema_version: 1\nrates: {'*': 4}\nrate_unit: EUR", "queues.yaml")
        node = service.nodes.find("a")
        assert node is not None
        gpus = [GpuInfo(str(number), "H100", memory_bytes=80 << 30) for number in range(4)]
        node.info = msgspec.structs.replace(node.info, gpus=gpus)
        service.on_nodes_changed()
        ask = service.start_estimates.estimate_of
        asked = EstimateQuestion(ResourceAsk(gpu_memory_bytes=20 << 30), timeout_s=7200.0)
        assert (await ask("ann", asked)).price == "1 EUR an hour, at most 2 EUR"
        assert (await ask("ann", _asked(2))).price == "8 EUR an hour"


@pytest.mark.asyncio
async def test_a_list_says_the_price_of_a_run_as_its_own_page_does(bed: BrokerBed) -> None:
    async with bed.life() as service:
        service.queue_rules.file = parse_queues("schema_version: 1\nrates: {'*': 4000000}\nrate_unit: EUR", "a.yaml")
        record = await bed.running(service, 1)
        scope = {"type": "http", "query_string": b"", "path_params": {"run": record.run}}
        ann, asked = Caller("ann"), Request(scope)
        listed = msgspec.json.decode((await list_runs(service, ann, asked)).body, type=RunsDocument)
        prices = [row.price for row in (*listed.runs, await show_run(service, ann, asked))]
        assert [price.endswith(" EUR") for price in prices] == [True, True]


@pytest.mark.asyncio
async def test_a_change_while_starts_are_worked_out_is_not_missed(
    bed: BrokerBed, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_estimates, "_PAUSE_S", 0.01)
    monkeypatch.setattr(start_estimates, "_PAUSES", 0.0)
    async with bed.life() as service:
        await bed.running(service, 4)
        await bed.submitted(service, 4)
        await until(lambda: held.begun == 1)
        service.start_estimates.note_change()
        held.goes_on.set()
        await until(lambda: held.begun == 2)


@pytest.mark.asyncio
async def test_a_run_that_waits_is_told_who_holds_what_it_waits_for(
    bed: BrokerBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start_estimates, "_PAUSE_S", 0.01)
    monkeypatch.setattr(start_estimates, "_PAUSES", 0.0)
    async with bed.life() as service:
        records = [await bed.running(service, 1), await bed.running(service, 2)]
        waits = await bed.submitted(service, 4)
        await until(lambda: waits.view.start is not None and bool(waits.view.start.holders))
        assert waits.view.start is not None
        (holder,) = waits.view.start.holders
        assert (holder.user, holder.gpus) == (records[0].view.user, 3)
        assert holder.since == min(record.view.granted_at or 0.0 for record in records)


@pytest.mark.asyncio
async def test_an_estimate_knows_that_a_run_may_be_taken_back(bed: BrokerBed) -> None:
    rules = parse_queues(
        "schema_version: 1\nqueues: [{name: own, guaranteed: 1}]\ndefault_queue: own\n"
        "policy: {non_restartable_over_guarantee: false}",
        "queues.yaml",
    )
    async with bed.life() as service:
        service.queue_rules.file = rules
        ask = service.start_estimates.estimate_of
        assert (await ask("ann", EstimateQuestion(ResourceAsk(2), restartable=True))).starts_in_s == 0.0
        with pytest.raises(ImpossibleAskError, match="cannot be taken back"):
            await ask("ann", _asked(2))


@pytest.mark.asyncio
async def test_an_estimate_has_the_price_of_what_the_run_would_get(
    bed: BrokerBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the part that its memory is, and for the time that its queue allows at most."""

    def on_large_gpus(file: QueuesFile, user: str, request: RunRequest, nodes: Iterable[Node]) -> RunRequest:
        found = part_of_user(file, user, request, [replace(node, gpu_memory_bytes=80 << 30) for node in nodes])
        return structs.replace(found, ask=ResourceAsk(gpus=found.ask.gpus))  # the bed's own GPUs tell no memory

    monkeypatch.setattr(start_estimates, "part_of_user", on_large_gpus)
    rules = parse_queues(
        "schema_version: 1\nqueues: [{name: own, max_timeout: 2h}]\ndefault_queue: own\n"
        "rates: {'*': 4}\nrate_unit: EUR\nwarn_above: 8",
        "queues.yaml",
    )
    async with bed.life() as service:
        service.queue_rules.file = rules
        ask = service.start_estimates.estimate_of
        half = ResourceAsk(gpu_memory_bytes=40 << 30)
        assert (await ask("ann", EstimateQuestion(half))).price == "2 EUR an hour, at most 4 EUR"
        dear = "8 EUR an hour, at most 16 EUR: more than 8 EUR, is all of it needed?"
        assert (await ask("ann", _asked(2))).price == dear
        short = EstimateQuestion(ResourceAsk(gpus=2), timeout_s=3600.0)
        assert (await ask("ann", short)).price == "8 EUR an hour, at most 8 EUR"
