"""What to do with the queue: expire what waited too long, allocate in order; the head of the queue blocks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..core.resources import ResourceAsk, format_seconds
from .filters import cpus_needed, gpus_per_node, suits
from .order import first_come
from .scores import pack
from .snapshot import Decision, Expire, Grant, NodeState, QueuedRun, Slot, Snapshot, Wait


def decide(snapshot: Snapshot, now_s: float) -> list[Decision]:
    """Answer each queued run with a :class:`Grant`, a :class:`Wait` or an :class:`Expire`."""
    queue = first_come(snapshot.queue)
    grants = allocate(queue, snapshot.nodes, now_s)
    granted = {grant.run for grant in grants}
    expired, waiting = expire([queued for queued in queue if queued.run not in granted], now_s)
    return [*grants, *expired, *_waits(waiting, _after(snapshot.nodes, grants))]


def allocate(queue: list[QueuedRun], nodes: tuple[NodeState, ...], now_s: float) -> list[Grant]:
    """Grant from the head on, all GPUs of a run at once, until one does not fit: the rest stay behind it.

    One that does not fit and may wait no longer holds nobody up.
    """
    grants: list[Grant] = []
    for queued in queue:
        chosen = _best_nodes(queued.ask, _after(nodes, grants))
        if chosen:
            gpus, cpus = gpus_per_node(queued.ask), cpus_needed(queued.ask)
            grants.append(Grant(queued.run, tuple(Slot(node.node, gpus, cpus) for node in chosen)))
        elif not _is_over(queued, now_s):
            break
    return grants


def expire(queue: list[QueuedRun], now_s: float) -> tuple[list[Expire], list[QueuedRun]]:
    """Split off the runs whose ``wait_s`` is over."""
    over = [Expire(queued.run, _expired(queued)) for queued in queue if _is_over(queued, now_s)]
    return over, [queued for queued in queue if not _is_over(queued, now_s)]


def _expired(queued: QueuedRun) -> str:
    what = "GPU is" if queued.ask.gpus else "cores are"
    if not queued.wait_s:
        return f"no {what} free now, and it may not wait (--wait 0)"
    return f"no {what.split()[0]} within {format_seconds(queued.wait_s)} (--wait)"


def _is_over(queued: QueuedRun, now_s: float) -> bool:
    return queued.wait_s is not None and now_s - queued.submitted_at >= queued.wait_s


def _after(nodes: tuple[NodeState, ...], grants: Iterable[Grant]) -> tuple[NodeState, ...]:
    """The nodes once ``grants`` are carried out."""
    slots = [slot for grant in grants for slot in grant.placement]
    return tuple(
        replace(
            node,
            gpus_free=node.gpus_free - sum(slot.gpus for slot in slots if slot.node == node.node),
            cpus_free=node.cpus_free - sum(slot.cpus for slot in slots if slot.node == node.node),
        )
        for node in nodes
    )


def _best_nodes(ask: ResourceAsk, nodes: tuple[NodeState, ...]) -> list[NodeState]:
    """As many nodes as asked for, all with room for their share; none when there are too few."""
    fitting = [node for node in nodes if node.schedulable and suits(ask, node) and _has_room(ask, node)]
    best = sorted(fitting, key=lambda node: pack(ask, node), reverse=True)[: ask.nodes]
    return best if len(best) == ask.nodes else []


def _has_room(ask: ResourceAsk, node: NodeState) -> bool:
    return node.gpus_free >= gpus_per_node(ask) and node.cpus_free >= cpus_needed(ask)


def _waits(queue: list[QueuedRun], nodes: tuple[NodeState, ...]) -> list[Decision]:
    if not queue:
        return []
    head = Wait(queue[0].run, 1, f"next in the queue: {_shortage(queue[0].ask, nodes)}")
    rest = [Wait(queued.run, place, f"{_ordinal(place)} in the queue, behind {_runs(place - 1)}")
            for place, queued in enumerate(queue[1:], start=2)]  # fmt: skip
    return [head, *rest]


def _shortage(ask: ResourceAsk, nodes: tuple[NodeState, ...]) -> str:
    suited = [node for node in nodes if suits(ask, node)]
    if not suited:
        return "no node that fits is up"
    ready = [node for node in suited if node.schedulable]
    if not ready:
        return suited[0].reason or "the nodes that fit take no new runs"
    if not ask.gpus:
        best = max(node.cpus_free for node in ready)
        return f"needs {cpus_needed(ask)} CPU{_s(cpus_needed(ask))}, {best} free"
    free, total = sum(node.gpus_free for node in ready), sum(node.gpus_total for node in ready)
    where = f" (not {gpus_per_node(ask)} on each of {ask.nodes} nodes)" if ask.nodes > 1 else " (not on one node)"
    where = where if free >= ask.gpus else ""
    return f"needs {ask.gpus} GPU{_s(ask.gpus)}, {free} of {total} {'is' if free == 1 else 'are'} free{where}"


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _runs(count: int) -> str:
    return f"{count} other run{_s(count)}"


def _ordinal(place: int) -> str:
    suffix = {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place}{'th' if place % 100 in (11, 12, 13) else suffix}"
