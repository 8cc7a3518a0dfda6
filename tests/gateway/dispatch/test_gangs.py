"""Gangs over nodes: each node hears how many ranks it has."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_bed import BrokerBed

from jupyter_gpu_release.errors import OptionError
from jupyter_gpu_release.gateway.dispatch.gangs import check_gang
from jupyter_gpu_release.protocol.runs import ResourceAsk


@pytest.mark.asyncio
async def test_a_gang_on_any_nodes_may_be_spread_unevenly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bed = BrokerBed(tmp_path, monkeypatch, a=1, b=4)
    async with bed.life() as service:
        record = await bed.running(service, ask=ResourceAsk(gpus=5, ranks=5, any_nodes=True))
        lease = service.leases.of_run(record.run)
        assert lease is not None
        assert [(slot.node, slot.gpus) for slot in lease.slots] == [("b", 4), ("a", 1)]
        order = bed.agents["b"].orders[record.run]
        assert (order.ranks, order.gpus) == (4, 4)
        assert [(member.node, member.ranks) for member in order.gang.members] == [("a", 1)]
        assert bed.agents["a"].lent == {record.run}


def test_any_nodes_is_not_a_number_of_nodes() -> None:
    check_gang(ResourceAsk(gpus=3, ranks=3, any_nodes=True))
    with pytest.raises(OptionError, match="for any"):
        check_gang(ResourceAsk(gpus=4, ranks=4, nodes=2, any_nodes=True))
