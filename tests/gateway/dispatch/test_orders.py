"""Orders to nodes: they have all that the user asked for, and of a run that goes on what its earlier attempts left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from broker_bed import BrokerBed, PretendedAgent, look_until, until

from jupyter_gpu_release.protocol.node import JoinOrder
from jupyter_gpu_release.protocol.runs import ResourceAsk
from jupyter_gpu_release.protocol.wire import decode


@pytest.mark.asyncio
async def test_a_node_is_told_all_that_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bed = BrokerBed(tmp_path, monkeypatch, a=2)
    async with bed.life() as service:
        ask = ResourceAsk(gpus=2, ranks=2, cpus=3.0, memory_bytes=1 << 30)
        facts = {"timeout_s": 600.0, "grace_s": 7.0, "fresh": True, "rank_timeout_s": 9.0, "prepare": ["numpy"]}
        record = await bed.running(service, ask=ask, **facts)
        order = bed.agents["a"].orders[str(record.attempt_id)]
        assert (order.gpus, order.ranks, order.cpus, order.memory_bytes) == (2, 2, 3.0, 1 << 30)
        assert (order.timeout_s, order.grace_s, order.fresh, order.needs) == (600.0, 7.0, True, ["numpy"])
        assert (order.user, order.session, order.simulated, order.restartable) == ("ann", "s", True, False)
        assert (order.attempt, order.is_unbegun, order.after_event, order.save) == (0, True, 0, None)
        gang = order.gang
        assert (gang.rank_timeout_s, gang.is_gang, gang.is_elastic, gang.secret) == (9.0, True, False, "")
        assert order.folder == str(tmp_path / "store" / "runs" / record.run)
        alone = bed.agents["a"].orders
        bed.end(service, record)
        await until(lambda: record.state.is_terminal)
        small = await bed.running(service)
        assert not alone[str(small.attempt_id)].gang.is_gang


@pytest.mark.asyncio
async def test_an_attempt_that_follows_another_has_the_rest_of_the_time_and_goes_on_with_its_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed = BrokerBed(tmp_path, monkeypatch, a=1)
    async with bed.life() as service:
        record = await bed.running(service, timeout_s=600.0, retries=1)
        record.tail.last = 12
        bed.next_agent("a")
        await look_until(service, lambda: record.attempt == 1 and record.accepted)
        order = bed.agents["a"].orders[str(record.attempt_id)]
        assert (order.attempt, order.is_unbegun, order.after_event) == (1, False, 12)
        assert order.timeout_s is not None
        assert 1.0 <= order.timeout_s < 600.0


@pytest.mark.asyncio
async def test_nodes_that_lend_ranks_are_told_whose_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bed, joins = BrokerBed(tmp_path, monkeypatch, a=2, b=2), dict[str, JoinOrder]()
    lend = PretendedAgent.do_start_remote_ranks

    async def listen(agent: PretendedAgent, order: bytes) -> Any:
        joins[agent.node] = decode(order, JoinOrder)
        return await lend(agent, order)

    monkeypatch.setattr(PretendedAgent, "do_start_remote_ranks", listen)
    async with bed.life() as service:
        record = await bed.running(service, ask=ResourceAsk(gpus=4, ranks=4, nodes=2), fresh=True, prepare=["numpy"])
        (lender,) = joins
        (leader,) = {"a", "b"} - {lender}
        join, order = joins[lender], bed.agents[leader].orders[str(record.attempt_id)]
        assert (join.run, join.ranks, join.gpus, join.fresh, join.needs) == (record.run, 2, 2, True, ["numpy"])
        assert join.secret == order.gang.secret != ""
        assert [(member.node, member.host, member.ranks) for member in order.gang.members] == [
            (lender, f"host-{lender}", 2)
        ]
        assert record.view.hosts == [f"host-{leader}", f"host-{lender}"]
