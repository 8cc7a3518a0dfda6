"""The table of drained nodes: hosts that are away, and a ledger that refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from jupyter_gpu_release.errors import NoSuchNodeError
from jupyter_gpu_release.gateway.cluster.drains import DrainTable
from jupyter_gpu_release.gateway.cluster.nodes import Node, NodeTable
from jupyter_gpu_release.gateway.db import database
from jupyter_gpu_release.gateway.db.writer import LedgerError, LedgerWriter
from jupyter_gpu_release.protocol.node import GpuInfo, NodeInfo


class Nodes:
    def __init__(self) -> None:
        self.up = [Node("n" * 12, "gpu3", 8, 8, 0)]
        self.drained: dict[str, str] = {}

    def alive(self) -> list[Node]:
        return self.up

    def note_drained(self, hosts: dict[str, str]) -> None:
        self.drained = hosts


class Ledger:
    refuses = False

    def __init__(self) -> None:
        self.written: list[Any] = []

    async def write(self, change: Any) -> None:
        if self.refuses:
            raise LedgerError("the disk is full")
        self.written.append(change)


def _table() -> tuple[DrainTable, Nodes, Ledger]:
    nodes, ledger = Nodes(), Ledger()
    return DrainTable(cast(NodeTable, nodes), cast(LedgerWriter, ledger)), nodes, ledger


@pytest.mark.asyncio
async def test_a_drained_node_that_is_away_can_be_resumed() -> None:
    table, nodes, _ = _table()
    await table.drain("gpu3", "ada", "repair")
    nodes.up = []
    assert str(await table.resume("gpu3")) == "gpu3"
    assert nodes.drained == {}
    with pytest.raises(NoSuchNodeError):
        await table.resume("gpu3")


@pytest.mark.asyncio
async def test_the_next_gateway_gives_no_runs_to_what_was_drained(tmp_path: Path) -> None:
    table, _, ledger = _table()
    await table.drain("gpu3", "ada", "repair")
    engine = database.open_ledger(tmp_path / "ledger.db")
    with engine.begin() as connection:
        ledger.written[-1](connection)
    later, nodes, _ = _table()
    with engine.begin() as connection:
        later.read(connection)
    assert list(nodes.drained) == ["gpu3"]
    assert "drained by ada: repair" in nodes.drained["gpu3"]
    engine.dispose()


@pytest.mark.asyncio
async def test_a_gpu_is_named_as_ray_gives_it_or_by_its_uuid() -> None:
    table, nodes, _ = _table()
    uuids = ("GPU-aaaaaaaa-1", "GPU-aaaaaaaa-2", "GPU-bbbbbbbb-3")
    gpus = [GpuInfo(index, uuid=uuid) for index, uuid in zip(("2", "3", uuids[2]), uuids, strict=True)]
    nodes.up[0].info = NodeInfo(nodes.up[0].node, "gpu3", "life", "3", "1", gpus=gpus)
    for name, meant in (("2", "2"), ("GPU-aaaaaaaa-2", "3"), ("GPU-bbbb", uuids[2]), (uuids[2], uuids[2])):
        assert str(await table.drain(f"gpu3:{name}", "ada", "")) == f"gpu3:{meant}"
        assert list(nodes.drained) == [f"gpu3:{meant}"]
        await table.resume(f"gpu3:{name}")
    for name in ("0", "GPU-aaaaaaaa", "GPU-", ""):
        with pytest.raises(NoSuchNodeError) as caught:
            await table.drain(f"gpu3:{name}", "ada", "")
        assert caught.value.hint == f"GPUs: 2, 3, {uuids[2]}"


@pytest.mark.asyncio
async def test_an_agent_that_tells_of_no_gpu_takes_back_no_drain() -> None:
    """An older one says so of a node whose driver is dead."""
    table, nodes, _ = _table()
    node = nodes.up[0]
    node.info = NodeInfo(node.node, "gpu3", "life", "3", "1")
    assert str(await table.drain("gpu3:7", "ada", "")) == "gpu3:7"
    node.drained_gpus, node.unwell_gpus = {"7": "drained"}, {"2": "it is lost"}
    assert node.aside == {"2": "it is lost", "7": "drained"}


@pytest.mark.asyncio
async def test_what_the_ledger_refused_has_not_happened() -> None:
    table, nodes, ledger = _table()
    ledger.refuses = True
    with pytest.raises(LedgerError):
        await table.drain("gpu3", "ada", "repair")
    assert nodes.drained == {}
    ledger.refuses = False
    await table.drain("gpu3", "ada", "repair")
    ledger.refuses = True
    with pytest.raises(LedgerError):
        await table.resume("gpu3")
    assert list(nodes.drained) == ["gpu3"]
