"""Runs over several nodes: the first node leads, the others lend it their ranks (``node/agent/remote_ranks.py``)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets

from ...errors import ClusterError, OptionError
from ...protocol.node import GangOrder, JoinOrder, Member, StartOrder
from ...protocol.runs import ResourceAsk, RunRequest
from ...scheduling.decisions import Slot
from ...scheduling.resource_requests import ranks_on
from ..cluster.agent_client import START_S, AgentCall
from ..cluster.lease import Lease
from ..cluster.nodes import NodeTable
from ..runs.attempts import time_left_s
from ..runs.record import RunRecord
from .parts import check_part

log = logging.getLogger(__name__)
_SECRET_BYTES = 32


def check_gang(ask: ResourceAsk) -> None:
    """Raise :class:`OptionError` for an ask that cannot be shared out (clients check that, too)."""
    if ask.gpus < 0 or ask.ranks < 1 or ask.nodes < 1 or ask.ps < 0:
        raise OptionError(
            f"asks for {ask.gpus} GPUs in {ask.ranks} ranks on {ask.nodes} nodes",
            hint="--gpus 0 or more, --ranks and --nodes 1 or more",
        )
    check_part(ask)
    if ask.gpus % ask.ranks and ask.gpus >= 1:
        raise OptionError(
            f"{ask.gpus} GPUs cannot be shared evenly by {ask.ranks} ranks", hint="make --gpus a multiple of --ranks"
        )
    if ask.min_gpus is not None:
        _check_least(ask, ask.min_gpus)
    if ask.any_nodes and ask.nodes > 1:
        raise OptionError(f"asks for {ask.nodes} nodes and for any", hint="write either --nodes any or a number")
    if ask.ranks % ask.nodes:
        raise OptionError(
            f"{ask.ranks} ranks cannot be spread evenly over {ask.nodes} nodes",
            hint="make --ranks a multiple of --nodes",
        )


def _check_least(ask: ResourceAsk, least: int) -> None:
    each = int(ask.gpus) // ask.ranks
    if not (ask.any_nodes and ask.ranks > 1 and each and least and least <= ask.gpus and least % each == 0):
        raise OptionError(
            f"asks for {ask.gpus} GPUs in {ask.ranks} ranks, to begin with {least}",
            hint=f"--min-gpus: a multiple of {max(1, each)} up to {ask.gpus}, with --ranks and --nodes any",
        )


def gang_order(request: RunRequest, lease: Lease, nodes: NodeTable) -> GangOrder:
    """The facts that the leader needs about the other nodes and processes."""
    ask = request.ask
    hosts = {slot.node: found.host for slot in lease.slots if (found := nodes.find(slot.node)) is not None}
    members = [Member(slot.node, hosts.get(slot.node, slot.node[:8]), ranks_on(ask, slot)) for slot in lease.slots]
    return GangOrder(
        members=members[1:],
        secret=secrets.token_hex(_SECRET_BYTES) if members[1:] else "",
        ps=ask.ps,
        evaluator=ask.evaluator,
        rank_timeout_s=request.rank_timeout_s,
        is_gang=request.is_gang or ask.ranks > 1,
        is_elastic=ask.min_gpus is not None,
    )


def start_order(record: RunRecord, lease: Lease, nodes: NodeTable, folder: str, preempt_grace_s: float) -> StartOrder:
    """The order for the first node of a granted run."""
    request, first = record.request, lease.slots[0]
    return StartOrder(
        run=record.run,
        payload=request.payload,
        folder=folder,
        gpus=first.gpus,
        part_bytes=_part_bytes(first, nodes),
        gpu_ids=lease.ids_on(first.node) if lease.gpu_ids else None,
        simulated=record.view.simulated,
        ranks=ranks_on(request.ask, first),
        memory_bytes=request.ask.memory_bytes or 0,
        timeout_s=time_left_s(request, record.view) if record.attempt else request.timeout_s,
        cpus=request.ask.cpus,
        grace_s=request.grace_s,
        fresh=request.fresh,
        gang=gang_order(request, lease, nodes),
        restartable=bool(request.restartable),
        preempt_grace_s=preempt_grace_s,
        attempt=record.attempt,
        save=record.save,
        after_event=record.tail.last if record.attempt else 0,
        is_unbegun=not record.view.attempts,
        needs=request.prepare,
        environment=request.environment.digest if request.environment is not None else "",
        user=record.view.user,
        session=record.view.session,
    )


def _part_bytes(slot: Slot, nodes: NodeTable) -> int:
    """Memory of a part of a GPU; 0: no part, or not known, as where the node's GPUs differ and Ray will choose one."""
    found = nodes.find(slot.node)
    gpus = found.info.gpus if found is not None and found.info is not None else ()
    sizes = {gpu.memory_bytes for gpu in gpus if gpu.memory_bytes}
    return int(sizes.pop() * slot.gpus) if 0 < slot.gpus < 1 and len(sizes) == 1 else 0


async def start(nodes: NodeTable, lease: Lease, order: StartOrder) -> list[AgentCall[None]]:
    """Give all nodes their orders; await the answers with :func:`accepted`."""
    leader, *others = lease.slots
    joins: list[AgentCall[None]] = []
    if others:
        address, port = await nodes.agent(leader.node).open_rank_listener()
        for slot, member in zip(others, order.gang.members, strict=True):
            ids = lease.ids_on(slot.node) if lease.gpu_ids else None
            join = JoinOrder(
                order.run,
                slot.node,
                member.ranks,
                slot.gpus,
                address,
                port,
                order.gang.secret,
                ids,
                order.fresh,
                order.attempt,
                order.needs,
                order.environment,
                order.owner if order.as_owner else None,
            )
            joins.append(nodes.agent(slot.node).start_remote_ranks(join))
    return [nodes.agent(leader.node).start(order), *joins]


async def accepted(asked: list[AgentCall[None]]) -> None:
    """Return when every node has its order; raises :class:`ClusterError` for one that does not answer."""
    for order in asked:
        await order.answer(START_S)


async def grant(nodes: NodeTable, lease: Lease, order: StartOrder) -> None:
    """Tell every node its accelerators, where ``order`` did not say them.

    Most know them by now, unless their lease task could not reach the agent.
    """
    slots = lease.slots if order.gpu_ids is None else ()
    await asyncio.gather(*(nodes.agent(slot.node).grant(order.attempt_id, lease.ids_on(slot.node)) for slot in slots))


def abandon(nodes: NodeTable, lease: Lease) -> None:
    """The lease came to nothing: no node shall go on with it."""
    for slot in lease.slots:
        with contextlib.suppress(ClusterError):  # there is no agent that could go on
            nodes.agent(slot.node).abandon(lease.attempt_id)


async def ranks_left(nodes: NodeTable, lease: Lease, *, leader_has: bool) -> frozenset[str]:
    """Return when the ranks have ended, those of the leader unless it said that they have; tells which nodes do not
    answer.

    Such a node takes no runs until its agent does, so nobody need wait for Ray to see that it is gone (15 s).
    """

    async def leave(node: str) -> bool:
        if (found := nodes.find(node)) is None or not found.reachable:
            return False
        try:
            await nodes.agent(node).end_ranks(lease.attempt_id)
        except ClusterError as error:
            log.warning("run %s: %s", lease.run, error.message)
            nodes.note_silent(node, error.message)
            return False
        return True

    asked = [slot.node for slot in (lease.slots[1:] if leader_has else lease.slots)]
    answers = await asyncio.gather(*map(leave, asked))
    return frozenset(node for node, answered in zip(asked, answers, strict=True) if not answered)


async def tell_leader(nodes: NodeTable, lease: Lease, gone: str) -> None:
    """A node that lends ranks is gone, whatever their connections say."""
    with contextlib.suppress(ClusterError):
        await nodes.agent(lease.slots[0].node).lose_member(lease.attempt_id, gone)
