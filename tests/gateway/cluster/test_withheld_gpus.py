"""Single GPUs that get no runs: what holds them."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ray.util.placement_group import PlacementGroup, remove_placement_group

from jupyter_gpu_release.gateway.cluster.lease import Lease, LeaseTable, Slot
from jupyter_gpu_release.gateway.cluster.nodes import Node
from jupyter_gpu_release.gateway.cluster.withheld_gpus import WithheldGpus
from jupyter_gpu_release.protocol.node import AttemptId, GpuInfo, NodeInfo


@pytest.mark.asyncio
async def test_a_node_that_is_gone_leaves_no_group_that_ray_would_go_on_making() -> None:
    asked: asyncio.Queue[tuple[object, ...]] = asyncio.Queue()

    async def ask(*call: object) -> None:
        await asked.put(call)

    nodes: Any = SimpleNamespace(alive=list)
    aside = WithheldGpus(cast(Any, SimpleNamespace(ask=ask)), nodes, cast(Any, None), cast(Any, None), cast(Any, None))
    group = cast(PlacementGroup, object())
    aside._held["gone", "0"] = group
    aside.look_anew()
    assert await asyncio.wait_for(asked.get(), 30) == (remove_placement_group, group)
    assert aside.held_on("gone") == 0


class _Ray:
    """A node of two GPUs, of which Ray gives the second; it hears of leases and runs no pass."""

    def __init__(self) -> None:
        self.info = NodeInfo("n" * 56, "gpu-07", "life", "3", "1", gpus=[GpuInfo("0"), GpuInfo("1")])
        self.node = Node(self.info.node, "gpu-07", gpus=2, cpus=4, memory_bytes=0, info=self.info)
        self.node.drained_gpus = {"1": "drained: fan"}
        self.groups: dict[str, PlacementGroup] = {}
        self.leases = LeaseTable(cast(Any, self))
        nodes: Any = SimpleNamespace(alive=lambda: [self.node])
        ray_leases: Any = SimpleNamespace(groups_aside=self._groups_aside)
        self.aside = _Withheld(cast(Any, self), nodes, self.leases, ray_leases, cast(Any, self))
        self.freed = asyncio.Event()

    async def ask(self, *_call: object) -> None:
        """A group is removed, and a look at Ray that came meanwhile has it no more."""
        self.leases.external = {}

    async def _groups_aside(self) -> dict[str, PlacementGroup]:
        return self.groups

    def on_leases_changed(self) -> None:
        self.aside.look()

    def on_gpus_free(self) -> None:
        self.freed.set()


class _Withheld(WithheldGpus):
    async def _index_of(self, group: PlacementGroup) -> str:
        return "1"

    async def _made(self, node: Node) -> tuple[PlacementGroup, str]:
        return cast(PlacementGroup, object()), "1"


@pytest.mark.asyncio
async def test_the_next_gateway_gives_no_run_the_gpu_that_the_last_one_held() -> None:
    ray = _Ray()
    ray.groups = {f"jgr-aside-here-{ray.node.node[:12]}-1": cast(PlacementGroup, object())}
    await ray.aside.adopt()
    assert ray.leases.external == {ray.node.node: 1}


@pytest.mark.asyncio
async def test_what_the_last_gateway_held_is_held_until_the_agent_has_said_how_its_gpus_are() -> None:
    """One that was not well is not given to a run in the moment between."""
    ray = _Ray()
    ray.node.info, ray.node.drained_gpus = None, {}
    ray.groups = {f"jgr-aside-here-{ray.node.node[:12]}-1": cast(PlacementGroup, object())}
    await ray.aside.adopt()
    assert ray.aside.held_on(ray.node.node) == 1
    ray.node.info, ray.node.unwell_gpus = ray.info, {"1": "it is lost"}
    ray.aside.look_anew()
    assert ray.aside.held_on(ray.node.node) == 1
    ray.node.unwell_gpus = {}
    ray.aside.look_anew()
    assert ray.aside.held_on(ray.node.node) == 0


@pytest.mark.asyncio
async def test_a_gpu_that_takes_runs_again_is_not_counted_twice_as_free() -> None:
    ray = _Ray()
    ray.groups = {f"jgr-aside-here-{ray.node.node[:12]}-1": cast(PlacementGroup, object())}
    await ray.aside.adopt()
    ray.node.drained_gpus = {}
    ray.aside.look_anew()
    await asyncio.wait_for(ray.freed.wait(), 30)
    assert ray.leases.external == {ray.node.node: 0}


def test_a_gpu_that_ray_does_not_give_is_not_aside() -> None:
    node = _Ray().node
    node.drained_gpus = {"1": "drained: fan", "2": "drained: of an earlier start of this node"}
    assert node.aside == {"1": "drained: fan"}


@pytest.mark.asyncio
async def test_a_gpu_drained_while_a_lease_has_all_is_taken_before_any_run_that_comes_next() -> None:
    ray = _Ray()
    lease = ray.leases.add(
        Lease("first", AttemptId("run", 0), (Slot(ray.node.node, 2, 0),))
    )  # Ray has not said which it gets
    await ray.aside.adopt()
    await asyncio.sleep(0)
    assert not ray.node.taking
    ray.leases.drop_lease(lease)
    assert ray.node.taking == "GPU 1 of gpu-07 is being set aside"
    while ray.node.taking:
        await asyncio.sleep(0)
    assert ray.aside.held_on(ray.node.node) == 1


@pytest.mark.asyncio
async def test_a_shared_gpu_is_set_aside_when_its_last_part_is_gone() -> None:
    """Ray is not asked for it before: two halves of different GPUs leave none of the node's two."""
    ray = _Ray()
    halves = [Lease(name, AttemptId(name, 0), (Slot(ray.node.node, 0.5, 0),)) for name in ("one", "other", "second")]
    for lease, gpu in zip(halves, "101", strict=True):
        lease.gpu_ids = ((gpu,),)
        ray.leases.add(lease)
    await ray.aside.adopt()
    ray.leases.drop_lease(halves[0])
    assert not ray.node.taking
    ray.leases.drop_lease(halves[2])
    assert ray.node.taking == "GPU 1 of gpu-07 is being set aside"
    while ray.node.taking:
        await asyncio.sleep(0)
    assert ray.aside.held_on(ray.node.node) == 1
