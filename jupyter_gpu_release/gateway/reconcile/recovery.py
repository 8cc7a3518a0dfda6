"""After a restart of the gateway: what the ledger remembers, what Ray still holds, what the agents still run."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec
from ray.util.placement_group import PlacementGroup

from ...client.home import read_secret
from ...errors import ClusterError
from ...host.accounts import own_name
from ...protocol.node import NodeRun, RunPhase
from ...protocol.wire import decode
from ..auth import tokens
from ..auth.tokens import embedded_token
from ..cluster.lease import Lease, Placement
from ..cluster.nodes import Node
from ..cluster.ray_calls import START_S
from ..db import database, warm_leases
from ..db.rows import StoredLease, StoredSession, WarmLeaseRow
from ..db.run_times import past_runs
from ..db.usage import last_sign_of_life
from ..dispatch import gangs
from ..runs.record import Ended, Persisting, Queued, RunRecord, Starting
from ..service import GatewayService
from . import node_liveness
from .persisting import await_node
from .stray_leases import end_strangers

log = logging.getLogger(__name__)
#: how long an agent that was there before may take to answer (it may be restarting itself)
_AGENT_PATIENCE_S = 10.0
#: past runs from which it is learned how long others will take, and who used how much of late
_REMEMBERED = 5000
_ANOTHER_AGENT = "the node's agent does not know the run any more: it was restarted"
#: phases of a run in which its cell may still use the GPUs
_HOLDS_GPUS = ("starting", "running", "ended")


@dataclass
class RecoveredState:
    """The state that is left to compare with Ray and the agents once the ledger is read."""

    leases: dict[str, StoredLease] = field(default_factory=dict)
    #: those of attempts that are over
    others: list[StoredLease] = field(default_factory=list)
    #: leases that kernels kept warm
    kept: list[tuple[StoredLease, WarmLeaseRow]] = field(default_factory=list)
    runs: list[RunRecord] = field(default_factory=list)
    sessions: list[StoredSession] = field(default_factory=list)
    #: the cluster itself is a new one: nothing of the ledger's can be alive
    fresh: bool = False
    #: the last time that the gateway's earlier life is known to have been there (unix seconds)
    seen_s: float | None = None

    def gone_at(self, begun_s: float) -> float | None:
        """When GPUs were gone that Ray does not know any more: what began after the last sign of life ended at once."""
        return None if self.seen_s is None else max(self.seen_s, begun_s)


def read_ledger(service: GatewayService) -> RecoveredState:
    """Read the ledger: tokens, live runs, sessions, leases. No word to Ray yet."""
    config = service.config
    secret = read_secret(Path(config.token_file))
    with service.engine.begin() as connection:
        database.put_token(connection, embedded_token(secret, own_name(), time.time()))
        service.tokens = tokens.read_book(connection, service.ledger, time.time())
        fresh = database.read_meta(connection, "cluster") != config.cluster
        database.write_meta(connection, "cluster", config.cluster)
        service.drains.read(connection)
        stored = database.live_runs(connection)
        sessions = database.open_sessions(connection)
        kept = warm_leases.all_warm_leases(connection)
        found = database.all_leases(connection)
        past = past_runs(connection, _REMEMBERED)
        saves = database.all_saves(connection)
        seen_s = last_sign_of_life(connection)
    attempts = {entry.view.run: entry.view.attempt for entry in stored}
    leases = {lease.run: lease for lease in found if lease.lease not in kept and _is_of(lease, attempts)}
    others = [lease for lease in found if lease.lease not in kept and leases.get(lease.run) is not lease]
    warm = [(lease, kept[lease.lease]) for lease in found if lease.lease in kept]
    records = [service.runs.adopt(entry) for entry in stored]
    for record in records:
        record.save = saves.get(record.run)
    service.lifecycle.queue.inventory.remember(past, records)
    return RecoveredState(leases, others, warm, records, sessions, fresh, seen_s)


def _is_of(lease: StoredLease, attempts: dict[str, int]) -> bool:
    """Tell if it is the lease of its run's present attempt."""
    return decode(lease.placement, Placement).attempt in (None, attempts.get(lease.run, 0))


def restore_sessions(service: GatewayService, remembered: RecoveredState) -> None:
    """Let clients come back from now on: their grace begins (on a new cluster nobody is waited for)."""
    if remembered.fresh:
        _close_sessions(service, remembered.sessions)
    else:
        service.sessions.restore(remembered.sessions)


def _close_sessions(service: GatewayService, sessions: list[StoredSession]) -> None:
    now_s = time.time()
    for session in sessions:
        ended = StoredSession(session.session, session.user, "ended", now_s)
        service.ledger.write(partial(database.put_session, session=ended))


async def find_accounts(service: GatewayService, records: list[RunRecord]) -> None:
    """Know the accounts of those whose runs go on, so that nobody waits for them later."""
    if service.users is not None:
        for user in {record.view.user for record in records}:
            with contextlib.suppress(ClusterError):  # said when the run needs it
                await service.users.find(user)


async def compare_with_cluster(service: GatewayService, remembered: RecoveredState) -> None:
    """Compare with Ray and the agents: go on with what runs, queue what waits, give up what is gone."""
    await find_accounts(service, remembered.runs)
    await service.agents.ensure_agents()
    groups = await service.ray_leases.groups(START_S)
    told, silent = await _ask_agents(service)
    on_nodes = {run.attempt_id: (run, node) for run, node in told if run.is_granted}
    for stored_lease, kept in remembered.kept:
        _adopt_warm(service, stored_lease, kept, groups, remembered)
    for record in remembered.runs:
        stored = remembered.leases.pop(record.run, None)
        known, node = on_nodes.get(record.attempt_id, (None, None))
        lease = _lease_of(service, record, stored, groups)
        if known is None and isinstance(record.stage, Persisting):
            await_node(service, record)
        elif remembered.fresh and _waits_for_any_cluster(record):
            service.lifecycle.queue.add(record)
        elif remembered.fresh:
            record.is_abandoned = not record.view.detached  # kernels' sessions have ended with their cluster
            await service.lifecycle.lose(record, "the cluster was started anew", at_s=_gone_at(record, remembered))
        elif known is None and lease is not None and lease.slots[0].node in silent:
            _await_answer(service, record, lease)
        elif known is not None and await _is_taken_back(service, record, lease, known):
            await _without_agent(service, record, lease, unbegun=True, ordered=True)
        elif known is not None and node is not None:
            await _go_on(service, record, lease, known, node)
        else:
            unbegun = stored is None or await _is_unbegun(service, record, stored, silent)
            gone_at = _gone_at(record, remembered) if lease is None else None
            await _without_agent(
                service,
                record,
                lease,
                unbegun=unbegun,
                ordered=stored is not None,
                why=_why_unknown(service, stored),
                gone_at=gone_at,
            )
    _end_others(service, told)
    for stored in [*remembered.leases.values(), *remembered.others]:
        service.ledger.write(partial(database.drop_lease, lease=stored.lease))
    await end_strangers(service)


def _gone_at(record: RunRecord, remembered: RecoveredState) -> float | None:
    """When a run ended whose cluster did: whoever stopped that for a weekend has not used its GPUs so long."""
    view = record.view
    return remembered.gone_at(max(view.submitted_at, view.granted_at or 0.0, view.running_at or 0.0))


def _end_others(service: GatewayService, told: list[tuple[NodeRun, Node]]) -> None:
    """End what nobody wants: a node may have come back with it while there was no gateway."""
    for run, node in told:
        if run.holds_gpus and service.runs.is_over(run.attempt_id):
            service.end_attempts(node.node, [run.attempt_id])
            node_liveness.await_end(service, node)


def _why_unknown(service: GatewayService, stored: StoredLease | None) -> str:
    """Say why no agent has the run that held this lease: another agent, or another Ray, is on its node."""
    node = decode(stored.placement, Placement).slots[0][0] if stored is not None else ""
    known = service.nodes.find(node)
    if node and (known is None or not known.alive):
        return "Ray on its node has ended: the node, or the head of the cluster, was lost"
    return _ANOTHER_AGENT


def _waits_for_any_cluster(record: RunRecord) -> bool:
    """Tell of a run that waits if it may begin, or go on, on another cluster: nothing of it was on the one before."""
    request = record.request
    return isinstance(record.stage, Queued) and record.view.detached and bool(request.restartable or request.retries)


def _began_s(known: NodeRun) -> float:
    return (known.outcome.granted_s if known.outcome is not None else None) or known.at_s


async def _ask_agents(service: GatewayService) -> tuple[list[tuple[NodeRun, Node]], set[str]]:
    """Attempts that agents know, with their nodes, and the nodes whose agents did not answer."""
    nodes = [node for node in service.nodes.alive() if node.adopted]
    answers = await asyncio.gather(*(_ask_agent(service, node.node) for node in nodes))
    told = [(run, node) for node, answer in zip(nodes, answers, strict=True) for run in answer or ()]
    return told, {node.node for node, answer in zip(nodes, answers, strict=True) if answer is None}


async def _ask_agent(service: GatewayService, node: str) -> list[NodeRun] | None:
    deadline = time.monotonic() + _AGENT_PATIENCE_S
    while True:
        try:
            info = await service.nodes.agent(node).hello()
            runs = await service.nodes.agent(node).runs()
        except ClusterError as error:
            log.warning("%s", error.message)
            if time.monotonic() > deadline:
                return None
            await asyncio.sleep(0.3)
        else:
            await node_liveness.take_in(service, info)
            return runs


def _lease_of(
    service: GatewayService, record: RunRecord, stored: StoredLease | None, groups: dict[str, PlacementGroup]
) -> Lease | None:
    if stored is None or stored.lease not in groups:
        return None
    lease = Lease.restored(stored, groups[stored.lease])
    lease.attempt_id = record.attempt_id
    return service.leases.add(lease)


def _adopt_warm(
    service: GatewayService,
    stored: StoredLease,
    kept: WarmLeaseRow,
    groups: dict[str, PlacementGroup],
    remembered: RecoveredState,
) -> None:
    """A kernel goes on keeping its GPUs, until the same time as before; what is not kept is a stranger's group."""
    now_s, is_there = time.time(), not remembered.fresh and stored.lease in groups
    if is_there and now_s < kept.until_s and service.sessions.is_open(kept.session):
        log.info("lease %s stays warm for another %.1f s", stored.lease, kept.until_s - now_s)
        service.warm.adopt(Lease.restored(stored, groups[stored.lease]), kept)
        return
    gpus = sum(slot[1] for slot in decode(stored.placement, Placement).slots)
    gone_at = (None if is_there else remembered.gone_at(kept.since_s)) or now_s
    service.warm.count(stored.lease, stored.run, gpus, kept, min(gone_at, kept.until_s), "the gateway was restarted")
    service.ledger.write(partial(database.drop_lease, lease=stored.lease))


async def _go_on(service: GatewayService, record: RunRecord, lease: Lease | None, known: NodeRun, node: Node) -> None:
    """The agent has the run: catch up with its phase. One whose GPUs are nobody's any more is ended."""
    log.info("run %s goes on (%s)", record.run, known.phase)
    if isinstance(record.stage, Queued):  # killed between the agent's acceptance and our commit
        _to_starting(service, record, lease, _began_s(known), [node.host])
    _hold(service, record, lease)
    record.accept()
    record.tail.last = max(record.tail.last, known.last_event)
    # an adopted run's agent has not counted its events: they are in the log
    record.tail.known = bool(known.last_event) or known.phase not in ("released", "final")
    if lease is not None and not record.view.gpu_ids:
        ids = [i for per_slot in lease.gpu_ids for i in per_slot]
        record.view = msgspec.structs.replace(record.view, gpu_ids=ids)
    if known.save is not None:
        service.lifecycle.requeue.on_saved(record, known.save)
    service.lifecycle.on_phase(
        record, RunPhase(known.attempt_id, known.phase, known.at_s, known.outcome), is_news=False
    )
    if lease is None and known.phase in _HOLDS_GPUS:
        log.error("run %s holds no lease, so others could get its GPUs: it is ended", record.run)
        with contextlib.suppress(ClusterError):
            service.nodes.agent(node.node).abandon(known.attempt_id)
        await service.lifecycle.lose(record, "the lease of its GPUs is gone")
    if known.waits_for is not None:
        service.lifecycle.on_waits(record, known.waits_for)
    record.notify()


def _hold(service: GatewayService, record: RunRecord, lease: Lease | None) -> None:
    """The run holds the lease that Ray still has. Of one that was just granted the ledger may say less."""
    if lease is None:
        return
    if isinstance(record.stage, Queued):
        hosts = [node.host for slot in lease.slots if (node := service.nodes.find(slot.node)) is not None]
        _to_starting(service, record, lease, time.time(), hosts)
    elif isinstance(record.stage, Persisting):  # it needs its GPUs no more, and was about to give them back
        service.lifecycle.spawn(service.lifecycle.free_and_serve(lease))
    elif isinstance(record.stage, Ended):  # it was cancelled while Ray and the nodes were asked
        gangs.abandon(service.nodes, lease)
        service.lifecycle.spawn(service.lifecycle.free_and_serve(lease))
    else:
        record.hold_lease(lease)
        service.lifecycle.preemption_notices.carry_out(record)


def _to_starting(
    service: GatewayService, record: RunRecord, lease: Lease | None, granted_s: float, hosts: list[str]
) -> None:
    """The stage that follows a grant is committed a moment later: the gateway's earlier life did not come to it."""
    granted_s = max(granted_s, record.view.submitted_at)
    service.runs.change(
        record, Starting(lease), granted_at=granted_s, position=None, reason="", hosts=hosts, **record.shape_on(lease)
    )


def _await_answer(service: GatewayService, record: RunRecord, lease: Lease) -> None:
    """Wait for a node that does not answer just now, as at any other time
    (``gateway/reconcile/node_liveness.py``)."""
    log.warning("run %s may go on: its node does not answer", record.run)
    _hold(service, record, lease)
    record.accept()
    service.nodes.note_silent(lease.slots[0].node, "its agent has not answered since the gateway was restarted")


async def _without_agent(
    service: GatewayService,
    record: RunRecord,
    lease: Lease | None,
    *,
    unbegun: bool,
    ordered: bool,
    why: str = _ANOTHER_AGENT,
    gone_at: float | None = None,
) -> None:
    """No agent has the run: it waits (again), or it is lost. A cell that may have begun is not begun again.

    ``ordered``: a node may have this attempt's order, and be silent.
    """
    lifecycle, is_queued = service.lifecycle, isinstance(record.stage, Queued)
    # whatever a restartable one did meanwhile, it goes on from its last save
    goes_on = is_queued and lease is None and record.request.restartable
    if not goes_on and not (unbegun and (is_queued or isinstance(record.stage, Starting))):
        _hold(service, record, lease)
        await lifecycle.lose(record, why, at_s=gone_at)
    elif ordered or lease is not None or not is_queued:
        lifecycle.wait_again(record, lease, "the gateway was restarted")
    else:
        lifecycle.queue.add(record)


async def _is_taken_back(service: GatewayService, record: RunRecord, lease: Lease | None, known: NodeRun) -> bool:
    """A gang over nodes that has not begun: nobody knows whether all of them got their orders, so it starts anew."""
    if lease is None or len(lease.slots) < 2 or known.phase != "starting" or not isinstance(record.stage, Starting):
        return False
    try:
        return await service.nodes.agent(lease.slots[0].node).forget_unbegun(record.attempt_id)
    except ClusterError as error:
        log.warning("run %s may have begun: %s", record.run, error.message)
        return False


async def _is_unbegun(service: GatewayService, record: RunRecord, stored: StoredLease, silent: set[str]) -> bool:
    """Tell if its cell has surely not begun: its agent never heard of it, or a later one finds no mark of it.

    The ledger may say ``queued`` of a run with a lease: what follows a grant is committed a moment later.
    """
    first = decode(stored.placement, Placement).slots[0][0]
    if first in silent or not isinstance(record.stage, Queued | Starting):
        return False
    try:
        # one that knows it, but has not begun it, gives it back in the same step
        agent = service.nodes.agent(first)
        return await agent.forget_unbegun(record.attempt_id) or not await agent.has_begun(record.attempt_id)
    except ClusterError as error:
        log.warning("run %s may have begun: %s", record.run, error.message)
        return False
