"""Single GPUs that get no runs: a placement group of ours holds each, so that Ray gives it to nobody.

Which GPU of a node a group gets is Ray's choice. So while one is to be set aside the node gets no runs, for some
hundredths of a second: groups are made there until one has that GPU, and the others are given back. A GPU that a run
has is left to it, and set aside when it is over. To the queue they are GPUs that others use.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from ...errors import ClusterError
from ...host.background import BackgroundWork
from .lease import LeaseListener, LeaseTable
from .lease_workers import accelerator_ids
from .nodes import Node, NodeTable
from .placement_groups import RayLeases, aside_prefix
from .ray_calls import RayCalls, awaited

log = logging.getLogger(__name__)
#: a group that Ray has not made after this: others were sooner
_MADE_S = 5.0
#: before the next try for a GPU that somebody else's program has
_AGAIN_S = 5.0


class WithheldGpus:
    """Holds the GPUs that nodes say are aside, and lets go of the others; told of each change by :meth:`look`."""

    def __init__(
        self, calls: RayCalls, nodes: NodeTable, leases: LeaseTable, ray_leases: RayLeases, listener: LeaseListener
    ) -> None:
        self._calls = calls
        self._ray_leases = ray_leases
        self._nodes = nodes
        self._leases = leases
        self._listener = listener
        #: (node, the id that Ray gives the GPU) → what holds it
        self._held: dict[tuple[str, str], PlacementGroup] = {}
        #: nodes at which somebody is at work
        self._busy: set[str] = set()
        #: no try there before this (monotonic seconds), unless one of these leases ends, which may have had the GPU
        self._rests: dict[str, tuple[float, set[str]]] = {}
        self._spawn = BackgroundWork().spawn
        self._is_adopted = False
        #: there is something to do, or may be soon: else nobody need call :meth:`look`
        self.is_wanted = False

    def held_on(self, node: str) -> int:
        """GPUs of a node that are held here."""
        return sum(at == node for at, _ in self._held)

    def look_anew(self) -> None:
        """Nodes or what is aside may be others; never waits."""
        alive = self._nodes.alive()
        names = {node.node for node in alive}
        for key in [key for key in self._held if key[0] not in names]:
            self._spawn(self._remove(self._held.pop(key)))  # else Ray would try to make it for ever
        is_any = bool(self._held) or any(node.aside or node.taking for node in alive)
        self.is_wanted = self._is_adopted and is_any
        self.look()

    def look(self) -> None:
        """Begin what is to be done; costs nothing where that is nothing, and never waits."""
        for node in self._nodes.alive() if self.is_wanted else ():
            self._look_at(node)

    def _look_at(self, node: Node) -> None:
        if node.info is None:  # it takes no runs yet, and nobody knows how its GPUs are
            return
        self._let_go_of_others(node)
        due = self._due(node)
        if not due or not self._is_room(node, 0) or self._is_resting(node):
            node.taking = ""
            return
        node.taking = f"GPU {due[0]} of {node.host} is being set aside"
        if node.node not in self._busy:
            self._busy.add(node.node)
            self._spawn(self._take(node))

    def _due(self, node: Node) -> list[str]:
        """GPUs that are to be held, and that no lease of ours has."""
        leased = {i for lease in self._leases.all() for i in lease.ids_on(node.node)}
        return [i for i in node.aside if i not in leased and (node.node, i) not in self._held]

    def _is_resting(self, node: Node) -> bool:
        until_s, leases = self._rests.get(node.node, (0.0, set()))
        return time.monotonic() < until_s and leases <= self._leases.names_on(node.node)

    def _let_go_of_others(self, node: Node) -> None:
        for key in [key for key in self._held if key[0] == node.node and key[1] not in node.aside]:
            group = self._held.pop(key)
            log.info("GPU %s of %s takes runs again", key[1], node.host)
            self._spawn(self._give_back(node, group))

    # ---------------------------------------------------------------------------------------- asked of Ray
    async def adopt(self) -> None:
        """Find what the gateway's earlier life held; what Ray tells nothing of is given back, and taken anew."""
        alive = {node.node[:12]: node for node in self._nodes.alive()}
        try:
            found = await self._ray_leases.groups_aside()
        except ClusterError as error:
            log.error("GPUs that an earlier gateway has set aside stay so: %s", error.message)
            found = {}
        for name, group in found.items():
            node = alive.get(name.rsplit("-", 2)[1])
            try:
                index = await self._index_of(group)
            except ClusterError:
                node = None
            if node is None:
                await self._remove(group)
            else:
                self._held[node.node, index] = group
                self._count(node, 1)
        self._is_adopted = True
        self.look_anew()

    async def _take(self, node: Node) -> None:
        """Make groups until one has the GPU; those with another are given back at the end."""
        others: list[PlacementGroup] = []
        self._leases.seekers += 1
        try:
            while (due := self._due(node)) and self._is_room(node, len(others)):
                group, index = await self._made(node)
                if index in due:
                    self._hold(node, index, group)
                else:
                    others.append(group)
        except ClusterError as error:
            log.info("%s: %s", node.taking, error.message)
        finally:
            for group in others:
                await self._remove(group)
            self._leases.seekers -= 1
            self._leases.changes += 1
            self._busy.discard(node.node)
            if self._due(node):  # somebody else's program has it
                self._rests[node.node] = time.monotonic() + _AGAIN_S, self._leases.names_on(node.node)
            self._look_at(node)
            self._listener.on_gpus_free()

    def _is_room(self, node: Node, probes: int) -> bool:
        """Tell if a GPU is free there, as far as we know."""
        taken = self._leases.gpus_in_use(node.node) + self._leases.external.get(node.node, 0)
        return node.alive and probes < node.gpus - taken

    def _hold(self, node: Node, index: str, group: PlacementGroup) -> None:
        log.warning("GPU %s of %s gets no runs: %s", index, node.host, node.aside.get(index, ""))
        self._held[node.node, index] = group
        self._count(node, 1)

    def _count(self, node: Node, more: int) -> None:
        """To the queue it is a GPU that others use, from now on and not from the next look at Ray on."""
        others = self._leases.external.get(node.node, 0) + more
        self._leases.external = {**self._leases.external, node.node: max(0, others)}

    async def _give_back(self, node: Node, group: PlacementGroup) -> None:
        await self._remove(group)
        self._count(node, -1)
        self._listener.on_gpus_free()

    async def _remove(self, group: PlacementGroup) -> None:
        try:
            await self._calls.ask(remove_placement_group, group)
        except ClusterError as error:  # the next gateway finds it
            log.warning("a GPU stays set aside: %s", error.message)

    async def _made(self, node: Node) -> tuple[PlacementGroup, str]:
        """A group with one GPU of the node, and which it is. Raises :class:`ClusterError`; then there is none."""
        group = await self._calls.ask(_make, node.node)
        try:
            return group, await self._index_of(group)
        except ClusterError:
            await self._remove(group)
            raise

    async def _index_of(self, group: PlacementGroup) -> str:
        strategy = PlacementGroupSchedulingStrategy(group, 0)
        try:
            told = accelerator_ids.options(num_gpus=1, num_cpus=0, scheduling_strategy=strategy).remote()
            (index,) = await asyncio.wait_for(awaited(told), _MADE_S)
        except (TimeoutError, ray.exceptions.RayError) as error:
            raise ClusterError("Ray does not grant it") from error
        return str(index)


def _make(node: str) -> PlacementGroup:
    name = f"{aside_prefix()}{node[:12]}-{secrets.token_hex(4)}"
    pin = [{"ray.io/node-id": node}]
    return placement_group([{"GPU": 1.0}], strategy="PACK", name=name, lifetime="detached", bundle_label_selector=pin)
