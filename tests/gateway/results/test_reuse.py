"""Results that are used again instead of running: one's own, where nothing is different, and what is there."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from broker_bed import BrokerBed, PretendedAgent, until

from jupyter_gpu_release.errors import ClusterError
from jupyter_gpu_release.gateway.auth.permissions import Caller
from jupyter_gpu_release.gateway.runs.record import RunRecord
from jupyter_gpu_release.gateway.service import GatewayService
from jupyter_gpu_release.protocol.cell import Graph
from jupyter_gpu_release.protocol.lineage import (
    CacheAnswer,
    CacheQuestion,
    CacheUse,
    Environment,
    RunFacts,
    TrackedFile,
)
from jupyter_gpu_release.protocol.node import RunPhase
from jupyter_gpu_release.protocol.runs import Outcome
from jupyter_gpu_release.protocol.wire import encode

_ANN, _BOB = Caller("ann"), Caller("bob")
_OK = Outcome("ok")


class _Cluster(BrokerBed):
    """Its nodes have versions of a package, which a test changes."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, patch, a=2, b=2)
        self.versions = {"a": "2.5", "b": "2.5"}

        async def do_environment(agent: PretendedAgent, packages: list[str]) -> bytes:
            return encode(Environment("3.11", packages=dict.fromkeys(packages, self.versions[agent.node])))

        patch.setattr(PretendedAgent, "do_environment", do_environment)

    async def cached(self, service: GatewayService, **facts: Any) -> RunRecord:
        return await self.running(service, cache_key="k", packages=["torch"], **facts)

    async def ended(self, service: GatewayService, record: RunRecord, outcome: Outcome = _OK) -> RunRecord:
        for phase in ("ended", "released", "final"):
            said = outcome if phase != "ended" else None
            service.lifecycle.hear(record, RunPhase(record.attempt_id, phase, time.time(), said))
        await until(lambda: record.state.is_terminal)
        return record


@pytest.fixture
def bed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Cluster:
    return _Cluster(tmp_path, monkeypatch)


async def _asked(service: GatewayService, caller: Caller = _ANN) -> CacheAnswer:
    return await service.lineage.candidates(caller, CacheQuestion("k", ["torch"]), service.runs.live())


def _found(answer: CacheAnswer) -> list[str]:
    return [candidate.run for candidate in answer.candidates]


@pytest.mark.asyncio
async def test_the_users_own_runs_are_found_the_newest_first(bed: _Cluster) -> None:
    async with bed.life() as service:
        first, second = [await bed.ended(service, await bed.cached(service)) for _ in range(2)]
        others = await bed.ended(service, await bed.cached(service, user="bob"))
        assert _found(await _asked(service)) == [second.run, first.run]
        assert _found(await _asked(service, _BOB)) == [others.run]
        assert await _asked(service, Caller("eve")) == CacheAnswer()


@pytest.mark.asyncio
async def test_what_failed_or_ran_beside_other_packages_is_not_used_again(bed: _Cluster) -> None:
    async with bed.life() as service:
        await bed.ended(service, await bed.cached(service), Outcome("error"))
        changed = await bed.cached(service)
        bed.versions |= {"a": "2.6", "b": "2.6"}
        await bed.ended(service, changed)
        assert _found(await _asked(service)) == []
        new = await bed.ended(service, await bed.cached(service))
        assert _found(await _asked(service)) == [new.run]
        bed.versions |= {"a": "2.5", "b": "2.5"}
        assert _found(await _asked(service)) == []


@pytest.mark.asyncio
async def test_nodes_that_differ_or_do_not_answer_are_said(bed: _Cluster) -> None:
    async with bed.life() as service:
        await bed.ended(service, await bed.cached(service))
        bed.versions["b"] = "2.6"
        assert await _asked(service) == CacheAnswer(reason="the nodes have different packages (host-a, host-b)")
        bed.agents["b"].faults["environment"] = ClusterError("it is away")
        answer = await _asked(service)
        assert (answer.candidates, answer.reason.startswith("the packages of the nodes are not known")) == ([], True)


@pytest.mark.asyncio
async def test_a_run_with_the_same_key_that_is_not_over_is_told_of_to_its_user(bed: _Cluster) -> None:
    async with bed.life() as service:
        first, second = [await bed.cached(service) for _ in range(2)]
        assert await _asked(service) == CacheAnswer(under_way=second.run)
        assert (await _asked(service, _BOB)).under_way == ""
        await bed.ended(service, first)
        answer = await _asked(service)
        assert (_found(answer), answer.under_way) == ([first.run], "")


@pytest.mark.asyncio
async def test_only_results_that_are_on_the_store_are_used_again(bed: _Cluster) -> None:
    large = Outcome("ok", values=Graph(file="values.graph", digest="d"))
    async with bed.life() as service:
        await bed.ended(service, await bed.cached(service), large)
        assert _found(await _asked(service)) == [], "they never came there"
        record = await bed.cached(service)
        path = Path(service.manifests.folder("ann", record.run)) / "values.graph"
        path.write_bytes(b"x")
        await bed.ended(service, record, large)
        assert _found(await _asked(service)) == [record.run]
        path.unlink()
        assert _found(await _asked(service)) == []


@pytest.mark.asyncio
async def test_a_lineage_counts_reuse_and_keeps_facts_for_those_who_may_load(bed: _Cluster) -> None:
    tracked = [TrackedFile("data.csv", 9, "d")]
    async with bed.life() as service:
        record = await bed.ended(service, await bed.cached(service), Outcome("ok", tracked=tracked))
        plain = await bed.ended(service, await bed.running(service))
        await service.lineage.reused(record.run, CacheUse("a.ipynb", "3"))
        own = await service.lineage.document_of(_ANN, record)
        assert (own.reused, own.is_reusable, own.tracked, own.cut) == (1, True, tracked, False)
        assert own.facts.environment.packages == {"torch": "2.5"}
        assert [(run.run, run.is_known, run.state) for run in own.runs] == [(record.run, True, "succeeded")]
        others = await service.lineage.document_of(_BOB, record)
        assert (others.tracked, others.facts) == ([], RunFacts())
        never = await service.lineage.document_of(_ANN, plain)
        assert (never.reused, never.is_reusable) == (0, False)
