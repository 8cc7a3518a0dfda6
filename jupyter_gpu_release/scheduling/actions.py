"""What to do with the queue: expire what waited too long, allocate in order; the head of the queue blocks."""

from __future__ import annotations

from dataclasses import replace

from ..core.resources import ResourceAsk, format_seconds
from .filters import cpus_needed, suits
from .order import first_come
from .scores import pack
from .snapshot import Decision, Expire, Grant, NodeState, QueuedRun, Slot, Snapshot, Wait


def decide(snapshot: Snapshot, now_s: float) -> list[Decision]:
    """Answer each queued run with a :class:`Grant`, a :class:`Wait` or an :class:`Expire`."""
    waiting, decisions = expire(first_come(snapshot.queue), now_s)
    return decisions + allocate(waiting, snapshot.nodes)


def expire(queue: list[QueuedRun], now_s: float) -> tuple[list[QueuedRun], list[Decision]]:
    """Split off the runs whose ``wait_s`` is over."""
    waiting: list[QueuedRun] = []
    over: list[Decision] = []
    for queued in queue:
        if queued.wait_s is not None and now_s - queued.submitted_at >= queued.wait_s:
            over.append(Expire(queued.run, f"no GPU within {format_seconds(queued.wait_s)} (--wait)"))
        else:
            waiting.append(queued)
    return waiting, over


def allocate(queue: list[QueuedRun], nodes: tuple[NodeState, ...]) -> list[Decision]:
    """Grant from the head on, all GPUs of a run at once, until one does not fit; the rest wait behind it."""
    free = {node.node: node for node in nodes}
    decisions: list[Decision] = []
    for index, queued in enumerate(queue):
        node = _best_node(queued.ask, list(free.values()))
        if node is None:
            return decisions + _waits(queue[index:], tuple(free.values()))
        slot = Slot(node.node, queued.ask.gpus, cpus_needed(queued.ask))
        free[node.node] = replace(node, gpus_free=node.gpus_free - slot.gpus, cpus_free=node.cpus_free - slot.cpus)
        decisions.append(Grant(queued.run, (slot,)))
    return decisions


def _best_node(ask: ResourceAsk, nodes: list[NodeState]) -> NodeState | None:
    fitting = [node for node in nodes if node.schedulable and suits(ask, node) and _has_room(ask, node)]
    return max(fitting, key=lambda node: pack(ask, node), default=None)


def _has_room(ask: ResourceAsk, node: NodeState) -> bool:
    return node.gpus_free >= ask.gpus and node.cpus_free >= cpus_needed(ask)


def _waits(queue: list[QueuedRun], nodes: tuple[NodeState, ...]) -> list[Decision]:
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
    where = " (not on one node)" if free >= ask.gpus else ""
    return f"needs {ask.gpus} GPU{_s(ask.gpus)}, {free} of {total} {'is' if free == 1 else 'are'} free{where}"


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _runs(count: int) -> str:
    return f"{count} other run{_s(count)}"


def _ordinal(place: int) -> str:
    suffix = {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place}{'th' if place % 100 in (11, 12, 13) else suffix}"
