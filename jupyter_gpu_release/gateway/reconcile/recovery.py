"""After a restart of the gateway: what the ledger remembers, what Ray still holds, what the agents still run."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from ray.util.placement_group import PlacementGroup

from ...client.home import read_secret
from ...errors import ClusterError
from ...host.accounts import own_name
from ...protocol.node import NodeRun
from ...protocol.runs import Outcome, PersistWait
from ...protocol.wire import decode
from ...store.layout import RunPaths
from ..auth import tokens
from ..auth.tokens import embedded_token
from ..cluster.lease import Lease, Placement
from ..cluster.nodes import Node
from ..cluster.ray_calls import START_S
from ..db import database, warm_leases
from ..db.rows import StoredLease, StoredSession, WarmLeaseRow
from ..db.run_times import past_runs
from ..db.usage import last_sign_of_life
from ..runs.machine import Found, is_vacated
from ..runs.record import Persisting, Queued, RunRecord, Starting
from ..service import GatewayService
from . import node_liveness
from .stray_leases import end_strangers

log = logging.getLogger(__name__)
#: how long an agent that was there before may take to answer (it may be restarting itself)
_AGENT_PATIENCE_S = 10.0
#: past runs from which it is learned how long others will take, and who used how much of late
_REMEMBERED = 5000
_ANOTHER_AGENT = "the node's agent does not know the run any more: it was restarted"


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
        record.snapshot = replace(record.snapshot, save=saves.get(record.run))
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
    on_nodes = {run.attempt_id: (run, node) for node, runs in told for run in runs if run.is_granted}
    for stored_lease, kept in remembered.kept:
        _adopt_warm(service, stored_lease, kept, groups, remembered)
    for record in remembered.runs:
        stored = remembered.leases.pop(record.run, None)
        known, node = on_nodes.get(record.attempt_id, (None, None))
        lease = _lease_of(service, record, stored, groups)
        found = await _found_of(service, record, stored, lease, known, silent, is_fresh=remembered.fresh)
        if node is not None and found.known is not None:
            _catch_up_output(record, found.known)
            found = replace(found, hosts=found.hosts or [node.host])
        found = replace(found, gone_at=_gone_at(record, remembered))
        log.info("run %s: %s", record.run, f"goes on ({found.known.phase})" if found.known else "no node has it")
        if found.is_silent and lease is not None:
            first = lease.slots[0].node
            service.nodes.note_silent(first, "its agent has not answered since the gateway was restarted")
        service.lifecycle.hear(record, found)
        record.notify()
    for node, runs in told:  # a node may have come back while there was no gateway, with what nobody wants
        if not is_vacated(service.end_unwanted(node.node, runs)):
            node_liveness.await_end(service, node)
    for stored in [*remembered.leases.values(), *remembered.others]:
        service.ledger.write(partial(database.drop_lease, lease=stored.lease))
    await end_strangers(service)


def _gone_at(record: RunRecord, remembered: RecoveredState) -> float | None:
    """When a run ended whose cluster did: whoever stopped that for a weekend has not used its GPUs so long."""
    view = record.view
    return remembered.gone_at(max(view.submitted_at, view.granted_at or 0.0, view.running_at or 0.0))


def _why_unknown(service: GatewayService, stored: StoredLease | None) -> str:
    """Say why no agent has the run that held this lease: another agent, or another Ray, is on its node."""
    node = decode(stored.placement, Placement).slots[0][0] if stored is not None else ""
    known = service.nodes.find(node)
    if node and (known is None or not known.alive):
        return "Ray on its node has ended: the node, or the head of the cluster, was lost"
    return _ANOTHER_AGENT


async def _found_of(
    service: GatewayService,
    record: RunRecord,
    stored: StoredLease | None,
    lease: Lease | None,
    known: NodeRun | None,
    silent: set[str],
    *,
    is_fresh: bool,
) -> Found:
    """Facts of a run of which the ledger remembers the lease ``stored``, and Ray has ``lease``."""
    hosts = [] if lease is None else service.nodes.hosts_of(lease.slots)
    ids = [] if lease is None else [i for per_slot in lease.gpu_ids for i in per_slot]
    found = Found(record.attempt_id, lease, hosts, ids, _why_unknown(service, stored), known)
    if known is not None:
        # a gang over nodes that has not begun: nobody knows if all have their orders, so it starts anew
        may_lack = lease is not None and len(lease.slots) > 1 and known.phase == "starting"
        first = lease.slots[0].node if lease is not None else ""
        is_back = may_lack and await _is_unbegun(service, record, first)
        return replace(found, known=None, is_ordered=True) if is_back else found
    if isinstance(record.stage, Persisting):
        return replace(found, waits_for=_wait_for_node(service, record, record.stage.outcome))
    if is_fresh:
        return replace(found, is_fresh=True)
    if lease is not None and lease.slots[0].node in silent:
        return replace(found, is_silent=True)
    if stored is None:  # of what has left the queue, its lease is gone: it may have begun
        return replace(found, is_unbegun=isinstance(record.stage, Queued))
    first = decode(stored.placement, Placement).slots[0][0]
    unbegun = first not in silent and await _is_unbegun(service, record, first)
    return replace(found, is_unbegun=unbegun, is_ordered=True)


def _wait_for_node(service: GatewayService, record: RunRecord, outcome: Outcome) -> PersistWait:
    """Its results are with a node that is not there: its agent says whether it still has them when it is."""
    view = record.view
    path = str(RunPaths(Path(service.manifests.folder(view.user, record.run)), record.attempt).values)
    reason = f"waiting for {', '.join(view.hosts) or 'its node'}"
    return PersistWait(path, sum(value.bytes for value in outcome.results), reason, kept="gone")


def _catch_up_output(record: RunRecord, known: NodeRun) -> None:
    """An adopted run's agent has not counted its events: they are in the log."""
    record.tail.last = max(record.tail.last, known.last_event)
    record.tail.known = bool(known.last_event) or known.phase not in ("released", "final")


async def _ask_agents(service: GatewayService) -> tuple[list[tuple[Node, list[NodeRun]]], set[str]]:
    """Nodes with the attempts that their agents know, and the nodes whose agents did not answer."""
    nodes = [node for node in service.nodes.alive() if node.adopted]
    answers = await asyncio.gather(*(_ask_agent(service, node.node) for node in nodes))
    told = [(node, answer) for node, answer in zip(nodes, answers, strict=True) if answer is not None]
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


async def _is_unbegun(service: GatewayService, record: RunRecord, node: str) -> bool:
    """Tell if its cell has surely not begun: its agent never heard of it, or a later one finds no mark of it.

    The ledger may say ``queued`` of a run with a lease: what follows a grant is committed a moment later.
    """
    if not isinstance(record.stage, Queued | Starting):
        return False
    try:
        # one that knows it, but has not begun it, gives it back in the same step
        agent = service.nodes.agent(node)
        return await agent.forget_unbegun(record.attempt_id) or not await agent.has_begun(record.attempt_id)
    except ClusterError as error:
        log.warning("run %s may have begun: %s", record.run, error.message)
        return False
