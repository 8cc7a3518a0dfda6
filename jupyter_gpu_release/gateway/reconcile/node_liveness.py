"""Nodes and agents that come, restart and go, and what that means for the runs on them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

import msgspec

from ...errors import ClusterError
from ...protocol.node import AttemptId, NodeInfo
from ...protocol.states import RunState
from ..cluster.nodes import Node
from ..dispatch.gangs import tell_leader
from ..runs.machine import Forgotten, Heard, Lost, Silent, is_vacated
from ..runs.record import RunRecord
from ..service import GatewayService

log = logging.getLogger(__name__)
_HELLO_S = 3.0
#: for Ray to tell the gateway where an agent lives now, and how often we look
_CALLABLE_S, _AGAIN_S = 10.0, 0.02


async def take_in(service: GatewayService, info: NodeInfo) -> None:
    """Remember what an agent says of its node; the node may take runs from now on."""
    node = service.nodes.find(info.node)
    if node is None:
        return
    if not _is_known(node, info):
        node.connection = None
    _heard(node, info)
    node.known_imports.clear()
    _judge_gpus(service, node)
    service.agent_up.set()
    await service.agents.connect(node)
    service.lifecycle.on_node_up()
    service.status_feed.note_change()


def _is_known(node: Node, info: NodeInfo) -> bool:
    return node.info is not None and node.info.incarnation == info.incarnation


def _heard(node: Node, info: NodeInfo) -> None:
    node.clock_ahead_s = info.now_s - time.time() if info.now_s else node.clock_ahead_s
    node.info = msgspec.structs.replace(info, now_s=0.0)  # news of a node are what differs
    node.reachable, node.problem = True, info.trouble and f"{info.host}: {info.trouble}"
    node.silent_since_s, node.is_lost = None, False


async def on_node_up(service: GatewayService, info: NodeInfo) -> None:
    """An agent introduces itself. Raises :class:`ClusterError` when it cannot be called: it is to say it again."""
    if service.nodes.find(info.node) is None:
        service.nodes.refresh(await service.ray_leases.nodes())
    node = service.nodes.find(info.node)
    if node is None:
        log.warning("an agent on node %s, which Ray does not know", info.node)
    elif await _is_callable(service, info):
        await _take_up(service, node, info)


async def _is_callable(service: GatewayService, info: NodeInfo) -> bool:
    """Return True once calls reach this very agent; False when another one has taken its place.

    Of an agent's new life Ray tells us a moment later than the agent does, and calls fail until then.
    """
    deadline = time.monotonic() + _CALLABLE_S
    while True:
        try:
            answering = await service.nodes.agent(info.node).hello(_HELLO_S)
        except ClusterError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(_AGAIN_S)
        else:
            return answering.incarnation == info.incarnation


async def _take_up(service: GatewayService, node: Node, info: NodeInfo) -> None:
    """An agent is there: its earlier life's runs are lost. Raises :class:`ClusterError` when it is gone again."""
    # of one that this gateway has not heard yet nobody knows which life of its agent this is
    restarted = node.adopted if node.info is None else node.info.incarnation != info.incarnation
    died_on = _seen_host(node)
    forgotten = await _forgotten(service, node, restarted=restarted)
    if restarted:
        await _tell_leaders(service, node)
        if _is_known(node, info):  # it was taken up meanwhile: its runs may be those of this life
            return
    log.info("node %s (%s) is up, incarnation %s", info.host, info.node[:8], info.incarnation)
    await take_in(service, info)
    _tell_heard(service, node)
    again, lost = (
        f"the node agent on {node.host} was restarted",
        f"the node agent on {node.host} died, and the cell with it",
    )
    for record, attempt_id in forgotten:
        service.lifecycle.hear(record, Forgotten(attempt_id, again, lost, died_on, node=node.node))


async def _forgotten(service: GatewayService, node: Node, *, restarted: bool) -> list[tuple[RunRecord, AttemptId]]:
    """Runs that a restarted agent does not know (it may have been given new ones already).

    A new one is asked for results only: those of an earlier cluster are in its spool. Raises :class:`ClusterError`
    when it does not answer: then it is unknown.
    """
    accepted = [record for record in _runs_on(service, node.node) if record.accepted]
    if not restarted:
        accepted = [record for record in accepted if record.state is RunState.PERSISTING]
    found = await service.nodes.agent(node.node).runs() if accepted else []
    known = {run.attempt_id for run in found if run.is_granted}
    return [(record, record.attempt_id) for record in accepted if record.attempt_id not in known]


def _seen_host(node: Node) -> str:
    """The host, for a death that this gateway has seen: of a node that it never heard, nobody knows what was first.

    Where the cluster itself was away (its head was lost, it was stopped), all nodes lose their runs, and none is ill.
    """
    return node.host if node.info is not None else ""


def _runs_on(service: GatewayService, node: str) -> list[RunRecord]:
    """Live runs that ``node`` leads, or whose results are still being written there."""
    found = service.nodes.find(node)
    host = found.host if found is not None else ""
    return [
        record
        for record in service.runs.live()
        if (record.lease.slots[0].node == node if record.lease else host in record.view.hosts[:1])
    ]


async def _lose_members(service: GatewayService, node: Node) -> None:
    """Gangs to which a node lent ranks, when it is gone: their leaders hear of it, should they not know."""
    for record in _with_ranks_on(service, node):
        if (lease := record.lease) is not None and lease.slots[0].node != node.node:
            await tell_leader(service.nodes, lease, node.node)


async def _tell_leaders(service: GatewayService, node: Node) -> None:
    """The leaders of gangs to which the agent's earlier life lent ranks: these may not have reached them yet."""
    for record in _with_ranks_on(service, node):
        lease = record.lease
        lent = record.accepted and lease is not None and lease.slots[0].node != node.node
        if lease is not None and lent and not await service.nodes.agent(node.node).has_remote_ranks(lease.attempt_id):
            await tell_leader(service.nodes, lease, node.node)


async def refresh_nodes(service: GatewayService) -> None:
    """Ask Ray for its nodes and each agent whether it lives; create agents that are missing."""
    died = service.nodes.refresh(await service.ray_leases.nodes())
    for node in died:
        log.warning("node %s (%s) is gone", node.host, node.node[:8])
        why = service.node_source.why_gone(node)
        service.gpu_health.forget_node(node.node)
        await _lose_all(service, node, why, _runs_on(service, node.node), died_on=_seen_host(node))
    await service.agents.ensure_agents()
    await asyncio.gather(*(_check_agent(service, node) for node in service.nodes.alive() if node.agent is not None))
    for node in service.nodes.alive():
        await _judge_silence(service, node, time.monotonic())
        _judge_gpus(service, node)


def _judge_gpus(service: GatewayService, node: Node) -> None:
    """Set GPUs aside that are not well, and take back those that are again. Of a silent node nothing is known."""
    if node.info is None or not node.reachable:
        return
    leased = set(service.leases.holders_on(node.node))
    judged = service.gpu_health.judge(node.node, node.host, node.info.gpus, leased, node.unwell_gpus)
    if judged != node.unwell_gpus:
        for words in judged.keys() - node.unwell_gpus.keys():
            log.error("%s", judged[words])
        node.unwell_gpus = judged
        service.on_nodes_drained()


async def _lose_all(service: GatewayService, node: Node, why: str, runs: list[RunRecord], *, died_on: str = "") -> None:
    """Nothing that was on a node goes on, as far as anybody can tell."""
    accepted = [(record, Lost(record.attempt_id, why, died_on)) for record in runs if record.accepted]
    await _lose_members(service, node)
    for record, lost in accepted:
        service.lifecycle.hear(record, lost)


async def _judge_silence(service: GatewayService, node: Node, now_s: float) -> None:
    """Tell those who have a cell on a node that does not answer; after the grace the cell is lost, as its node is."""
    grace_s = service.config.node_grace_s
    if node.silent_since_s is None or node.is_lost:
        return
    if now_s - node.silent_since_s < grace_s:
        text = f"{node.host} does not answer: the cell is lost if it does not within {grace_s:g} s"
        for record in _with_ranks_on(service, node):
            service.lifecycle.hear(record, Silent(node.node, text))
        return
    log.error("node %s (%s) has not answered for %g s: it is given up", node.host, node.node[:8], grace_s)
    node.is_lost = True
    # what only waits for its results to be durable holds no GPU: they may be there yet
    # and nobody is to blame: what hangs, or is cut off, may be the store, the network or this gateway
    held = [record for record in _runs_on(service, node.node) if record.state is not RunState.PERSISTING]
    await _lose_all(service, node, f"the node {node.host} has not answered for {grace_s:g} s", held)


def _tell_heard(service: GatewayService, node: Node) -> None:
    """The node answers: what was told of its silence is true no longer, and it can be told what it has not heard."""
    for record in _with_ranks_on(service, node):
        service.lifecycle.hear(record, Heard(node.node))


def _with_ranks_on(service: GatewayService, node: Node) -> list[RunRecord]:
    """Runs whose lease has GPUs of a node."""
    held = [(record, record.lease) for record in service.runs.live()]
    return [record for record, lease in held if lease and any(slot.node == node.node for slot in lease.slots)]


async def _check_agent(service: GatewayService, node: Node) -> None:
    before = node.info
    try:
        info = await service.nodes.agent(node.node).hello(_HELLO_S)
    except ClusterError as error:
        if node.problem != error.message:
            log.warning("%s", error.message)
        if node.info is before:  # else another one has come meanwhile, and this was the end of the one before
            service.nodes.note_silent(node.node, error.message)
        return
    if node.info is not before or (node.info is None and not node.adopted):
        return  # it will introduce itself when it is warm, or has done so meanwhile
    with contextlib.suppress(ClusterError):  # at the next look
        if not node.reachable and not await _is_empty(service, node):
            return
        if node.info is None or node.info.incarnation != info.incarnation:
            await _take_up(service, node, info)
            return
        if info.trouble != node.info.trouble:
            log.warning("node %s: %s", node.host, info.trouble or "takes runs again")
            service.status_feed.note_change()
        _heard(node, info)
        await service.agents.connect(node)
        _tell_heard(service, node)


async def _is_empty(service: GatewayService, node: Node) -> bool:
    """Tell if no process of what is over is left on a node: it is ended, and looked for at the next look."""
    return is_vacated(service.end_unwanted(node.node, await service.nodes.agent(node.node).runs()))


def await_end(service: GatewayService, node: Node) -> None:
    """Give a node no runs before the processes of what is over are gone there: see :func:`_is_empty`."""
    service.nodes.note_silent(node.node, f"{node.host}: what is over is being ended there")
    node.is_lost = True
