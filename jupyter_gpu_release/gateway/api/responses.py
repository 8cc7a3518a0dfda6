"""Builds the documents for programs from the gateway's state."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from sqlalchemy.engine import Engine

from ..._version import __version__
from ...errors import OptionError
from ...presentation.run_row import run_row
from ...protocol.config import url_for_others
from ...protocol.node import GpuInfo
from ...protocol.rest import (
    DOCUMENT_VERSION,
    GatewayFacts,
    GpuCounts,
    GpuPart,
    GpuRow,
    NodeRow,
    PriceList,
    QueuesDocument,
    QueueShare,
    QueueUser,
    ReportDocument,
    ReportRow,
    RunRow,
    RunsDocument,
    StatusDocument,
    TypeShare,
    WarmRow,
    summary_of,
)
from ...protocol.states import LeaseState
from ...protocol.wire import without_gc
from ...scheduling.queues.overview import Claimed, QueueOverview, overview, remarks
from ...scheduling.queues.prices import Prices
from ...scheduling.queues.queues_file import QueuesFile
from ...scheduling.queues.tree import UNLIMITED
from ...scheduling.workload import GPU, gpu_number, in_thousandths
from ...units import sum_gpus
from ..auth.permissions import Caller, shown_run
from ..cluster.lease import Lease
from ..cluster.nodes import Node
from ..db.held_gpus import HeldGpus
from ..db.rows import WarmLeaseRow
from ..db.run_lists import newest_runs, newest_views, runs_of_sweeps
from ..runs.events import progress_of
from ..runs.record import RunRecord
from ..service import GatewayService

#: how old a GPU's figures may be for somebody who asks
GPUS_AGE_S = 0.5
#: waiting runs that a status shows: the first of the queue, and then so many of who asks (0.4 KB each)
_SHOWN_OF_QUEUE, _SHOWN_OWN = 200, 500


async def status_document(service: GatewayService, user: str, gpus_age_s: float = GPUS_AGE_S) -> StatusDocument:
    """``status --json``: who holds what, who waits and why. Asks the node agents for GPUs that it knows for longer.

    Of a long queue: its head, and the runs of ``user``.
    """
    serial = service.status_feed.serial  # before anything is looked at: what changes meanwhile is told again
    nodes = service.nodes.alive()
    gpus = await asyncio.gather(*(_gpus(service, node, gpus_age_s) for node in nodes))
    now_s = time.time()
    total = sum(node.gpus for node in nodes)
    held_on = {node.node: service.leases.held(node.node).gpus for node in nodes}
    held = sum_gpus(held_on.values())
    warm = [warm_row(service, lease, lease.kept) for lease in service.leases.warm() if lease.kept is not None]
    aside = service.withheld_gpus
    others = sum(max(0, service.leases.external.get(node.node, 0) - aside.held_on(node.node)) for node in nodes)
    external = min(others, max(0, int(total - held)))
    waiting = service.lifecycle.queue.waiting()
    rows = [_node_row(service, node, found) for node, found in zip(nodes, gpus, strict=True)]
    free = count_free(nodes, held_on, service.leases.external)
    shown, left_out = _split_queue(waiting, user)
    queues = _queues(service, user, waiting)
    offered = await service.named_environments.names_for(user, service.queue_rules.file.groups)
    return StatusDocument(
        schema_version=DOCUMENT_VERSION,
        simulated=service.config.simulated,
        gateway=GatewayFacts(
            service.config.proxy_url or url_for_others(service.url, socket.gethostname()),
            __version__,
            hash_seed=service.config.hash_seed,
        ),
        gpus=GpuCounts(total, held, free, external, int(sum_gpus(row.gpus for row in warm))),
        nodes=rows,
        queue=[run_row(record.view, now_s, me=user) for record in shown],
        runs=[_live_row(service, record, now_s, user) for record in service.runs.live() if id(record) not in left_out],
        serial=serial,
        warm=warm,
        queue_total=len(waiting),
        queue_gpus=sum_gpus(record.view.gpus for record in waiting),
        queues=queues.queues,
        queue_notes=queues.notes,
        default_queue=queues.default_queue,
        prices=price_list(service.queue_rules.file.prices, rows),
        environments=offered if service.config.max_environments else [],
    )


def price_list(prices: Prices, nodes: Iterable[NodeRow]) -> PriceList | None:
    """Prices of the GPUs that there are; None without rates."""
    types = {"", *(gpu.name for node in nodes for gpu in node.gpus)}
    hourly = {gpu_type: prices.of_hour(gpu_type) for gpu_type in sorted(types)}
    return PriceList(hourly, prices.unit, prices.warn_above) if prices.rates else None


def report_document(
    prices: Prices, since_s: float, until_s: float, held: Mapping[tuple[str, str], HeldGpus]
) -> ReportDocument:
    """``report --json``; by user and type of GPU."""
    rows = [
        ReportRow(user, gpu_type, each.runs, each.gpu_s, each.gpu_s / 3600 * prices.of_hour(gpu_type))
        for (user, gpu_type), each in sorted(held.items())
    ]
    return ReportDocument(DOCUMENT_VERSION, since_s, until_s, rows, prices.unit if prices.rates else None)


def count_free(nodes: Iterable[Node], held: Mapping[str, float], external: Mapping[str, int]) -> float:
    """GPUs that a run could have, where what is held, by runs and by others, is known for each node."""
    return sum_gpus(
        max(0, node.gpus - held.get(node.node, 0) - external.get(node.node, 0)) for node in nodes if not node.drained
    )


def _split_queue(waiting: list[RunRecord], user: str) -> tuple[list[RunRecord], set[int]]:
    """The runs that are shown, and the others by ``id()``: there may be ten thousands."""
    head, tail = waiting[:_SHOWN_OF_QUEUE], waiting[_SHOWN_OF_QUEUE:]
    own = [record for record in tail if record.view.user == user][:_SHOWN_OWN]
    return [*head, *own], set(map(id, tail)).difference(map(id, own))


def queues_document(service: GatewayService, user: str) -> QueuesDocument:
    """``queues --json`` for ``user``."""
    return _queues(service, user, service.lifecycle.queue.waiting())


def _queues(service: GatewayService, user: str, waiting: Iterable[RunRecord]) -> QueuesDocument:
    rules, gpus = service.queue_rules, sum(service.nodes.totals().values())
    usable = set(rules.file.queues_of(user))
    types = {node.name: node for node in service.nodes.scheduled()}
    total_of: Counter[str] = Counter()
    for node in types.values():
        total_of[node.gpu_type] += node.gpus
    claims = [*_held(service, {name: node.gpu_type for name, node in types.items()}), *_waiting(waiting)]
    rows = [queue_share(one, usable) for one in overview(rules.file, claims, gpus * GPU, total_of)]
    trouble = [f"{rules.trouble.message}; the queues stay as they were"] if rules.trouble else []
    notes = [*trouble, *remarks(rules.file, gpus * GPU, total_of)]
    return QueuesDocument(DOCUMENT_VERSION, gpus, _default_queue(rules.file, user), rows, notes)


def _default_queue(file: QueuesFile, user: str) -> str:
    try:
        return file.queue_for(user)
    except OptionError:
        return ""


def _held(service: GatewayService, types: Mapping[str, str]) -> Iterator[Claimed]:
    for lease in service.leases.all():
        gpus, record = sum(in_thousandths(slot.gpus) for slot in lease.slots), service.runs.get(lease.run)
        by_type: Counter[str] = Counter()
        for slot in lease.slots:
            by_type[types.get(slot.node, "")] += in_thousandths(slot.gpus)
        if lease.kept is not None:
            yield Claimed(lease.kept.queue, lease.kept.user, gpus, gpus_of=by_type)
        elif record is not None:
            yield Claimed(record.view.queue, record.view.user, gpus, gpus_of=by_type)


def _waiting(records: Iterable[RunRecord]) -> Iterator[Claimed]:
    """One claim for all runs of a user that wait in a queue: there may be ten thousands."""
    found: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for record in records:
        view = record.view
        sums = found[view.queue, view.user]
        sums[0] += in_thousandths(view.gpus)
        sums[1] += 1
    for (queue, user), (gpus, runs) in found.items():
        yield Claimed(queue, user, gpus, waiting_runs=runs)


def queue_share(one: QueueOverview, usable: set[str]) -> QueueShare:
    """One queue for ``queues --json``; ``usable``: queues that the reader may use."""
    queue = one.queue
    return QueueShare(
        name=queue.name,
        parent=queue.parent,
        depth=one.depth,
        leaf=one.is_leaf,
        usable=queue.name in usable,
        guaranteed=None if queue.guaranteed == UNLIMITED else gpu_number(queue.guaranteed),
        max=None if queue.max is None else gpu_number(queue.max),
        weight=queue.weight,
        priority=queue.priority,
        used=gpu_number(one.all.used),
        fair_share=gpu_number(one.fair_share),
        waiting_runs=one.all.runs,
        waiting_gpus=gpu_number(one.all.waiting),
        users=[
            QueueUser(user, gpu_number(tally.used), tally.runs, gpu_number(tally.waiting))
            for user, tally in sorted(one.users.items(), key=lambda item: (-item[1].used, item[0]))
        ],
        priority_ceiling=queue.priority_ceiling,
        max_timeout_s=queue.max_timeout_s,
        max_keep_s=queue.max_keep_s,
        max_gpus_per_user=None if queue.max_gpus_per_user is None else gpu_number(queue.max_gpus_per_user),
        by_type=[
            TypeShare(
                name,
                None if tally.guaranteed is None else gpu_number(tally.guaranteed),
                None if tally.max is None else gpu_number(tally.max),
                gpu_number(tally.used),
                gpu_number(tally.fair_share),
            )
            for name, tally in one.by_type.items()
        ],
    )


def record_row(record: RunRecord, caller: Caller, now_s: float) -> RunRow:
    """One run that is in memory, as ``caller`` may see it."""
    summary = None if record.outcome is None else summary_of(record.outcome)
    return shown_run(caller, run_row(record.view, now_s, summary, me=caller.user))


def priced(row: RunRow, prices: Prices) -> RunRow:
    """The row with the price of what the run has held."""
    return msgspec.structs.replace(row, price=prices.of_run(row.gpus, row.gpu_name, row.held_s))


def runs_document(
    engine: Engine,
    fresh: Mapping[str, RunRecord],
    caller: Caller,
    count: int,
    now_s: float,
    *,
    mine: bool = False,
    brief: bool = False,
    sweeps: Sequence[str] = (),
    prices: Prices = Prices(),  # noqa: B008 - frozen
    stored_bytes: int | None = None,
) -> bytes:
    """``runs --json`` as JSON: the newest ``count`` runs (of the caller: ``mine``), of each what ``caller`` may see.

    ``fresh``: those in memory. ``brief``: without what came out of those that are not. ``sweeps``: only their trials.
    ``prices``: by which each row says its price. ``stored_bytes``: what the caller's take of the store.
    """
    rows, user = [], caller.user if mine else None
    with without_gc(), engine.connect() as connection:
        if sweeps:
            found = runs_of_sweeps(connection, count, sweeps, user)
        else:
            found = (newest_views if brief else newest_runs)(connection, count, user)
        for listed in found:
            record = fresh.get(listed.view.run)
            if record is not None:
                rows.append(record_row(record, caller, now_s))
            else:
                rows.append(shown_run(caller, run_row(listed.view, now_s, listed.summary, me=caller.user)))
    if prices.rates:
        rows = [priced(row, prices) for row in rows]
    return msgspec.json.encode(RunsDocument(DOCUMENT_VERSION, rows, stored_bytes))


async def _gpus(service: GatewayService, node: Node, most_age_s: float) -> list[GpuInfo]:
    known = await service.gpu_readings.readings_of(node, most_age_s)
    return known or [GpuInfo(str(index), simulated=service.config.simulated) for index in range(node.gpus)]


def _node_row(service: GatewayService, node: Node, gpus: list[GpuInfo]) -> NodeRow:
    holders = service.leases.holders_on(node.node)
    rows = [_gpu_row(gpu, holders.get(gpu.index, []), service, node) for gpu in gpus]
    notes = node.info.notes if node.info is not None else ["its agent has not introduced itself yet"]
    trouble = [f"takes no runs: {node.problem}"] if node.problem else []
    is_up = node.info is not None and not node.is_lost
    return NodeRow(
        node.node,
        node.host,
        rows,
        up=is_up,
        drained=node.drained,
        notes=[*trouble, *notes],
        prepared=node.info.prepared if node.info is not None else [],
        environment_bytes=node.info.environment_bytes if node.info is not None else [],
    )


def _parts(holders: Iterable[Lease], service: GatewayService) -> list[GpuPart]:
    """The runs that share a GPU."""
    found = [(lease, record) for lease in holders if (record := service.runs.get(lease.run)) is not None]
    return [
        GpuPart(lease.run, record.view.user, lease.slots[0].gpus) for lease, record in found if lease.slots[0].gpus < 1
    ]


def _gpu_row(gpu: GpuInfo, holders: list[Lease], service: GatewayService, node: Node) -> GpuRow:
    lease = holders[0] if holders else None
    record = service.runs.get(lease.run) if lease is not None else None
    kept = lease.kept if lease is not None else None
    aside = node.aside.get(gpu.index, "")
    free = "drained" if node.drained or aside else "free"
    state = free if lease is None else "warm" if lease.state is LeaseState.WARM else "running"
    user = kept.user if kept is not None else record.view.user if record is not None else None
    return GpuRow(
        index=gpu.index,
        uuid=gpu.uuid,
        name=gpu.name,
        memory_bytes=gpu.memory_bytes,
        used_bytes=gpu.used_bytes,
        utilization=gpu.utilization,
        state=state,
        user=user,
        run=lease.run if lease is not None else None,
        lease=lease.run if lease is not None else None,
        warm_until=kept.until_s if kept is not None else None,
        drained=aside,
        parts=_parts(holders, service),
        slice_of=gpu.slice_of,
        unwell=gpu.index in node.unwell_gpus and gpu.index not in node.drained_gpus,
    )


def warm_row(service: GatewayService, lease: Lease, kept: WarmLeaseRow, state: str = "warm") -> WarmRow:
    """One lease that is kept (or was, a moment ago), as its owner sees it."""
    nodes = [node for slot in lease.slots if (node := service.nodes.find(slot.node)) is not None]
    return WarmRow(
        lease=lease.run,
        run=lease.run,
        user=kept.user,
        gpus=sum_gpus(slot.gpus for slot in lease.slots),
        since=kept.since_s,
        until=kept.until_s,
        auto=kept.auto,
        hosts=list(dict.fromkeys(node.host for node in nodes)),
        gpu_ids=[i for per_slot in lease.gpu_ids for i in per_slot],
        queue=kept.queue,
        notebook=kept.notebook,
        cell=kept.cell,
        kernel=kept.kernel,
        session=kept.session,
        state=state,
    )


def _live_row(service: GatewayService, record: RunRecord, now_s: float, user: str) -> RunRow:
    return run_row(
        record.view,
        now_s,
        me=user,
        progress=progress_of(record.tail),
        unattended=not service.sessions.is_live(record.view.session),
    )
