"""The policy, ``decide()``: order, allocation, expiry, reasons for waiting."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache

from ..protocol.runs import ResourceAsk
from ..units import format_seconds
from .constraints import cpus_needed, gpus_per_node, impossible, suits
from .snapshot import Decision, Expire, Grant, NodeState, QueuedRun, Release, Slot, Snapshot, Wait, WarmLease
from .warm_leases import Recall, own_lease, recall, split_ended


def first_come(queue: Iterable[QueuedRun]) -> list[QueuedRun]:
    """The queue by age of submission."""
    return sorted(queue, key=lambda queued: queued.ordinal)


def pack(ask: ResourceAsk, node: NodeState) -> float:
    """Fill nodes that are in use already, so that whole nodes stay free for large asks."""
    return -float(node.gpus_free if ask.gpus else node.cpus_free)


#: GPUs that are being given back are waited for by runs that may not wait, at most so long
_GIVING_BACK_S = 2.0
_ASIDE = "others go first until a node that fits is up: "


def decide(snapshot: Snapshot, now_s: float) -> list[Decision]:
    """Answer each queued run with a :class:`Grant`, a :class:`Wait` or an :class:`Expire`.

    Warm leases that are to be given up get a :class:`Release`.
    """
    queue = first_come(snapshot.queue)
    ended, warm = split_ended(snapshot.warm, now_s)
    allotted = allocate(queue, snapshot.nodes, warm, now_s)
    granted = {grant.run for grant in allotted.grants}
    left = [queued for queued in queue if queued.run not in granted]
    expired = expire([queued for queued in left if queued.run not in allotted.heads], now_s)
    over = {expiry.run for expiry in expired}
    waiting = [queued for queued in left if queued.run not in over]
    kept = sum(slot.gpus for lease in warm if lease.lease not in allotted.taken for slot in lease.slots)
    waits = _waits(waiting, allotted, _after(snapshot.nodes, allotted.grants), kept)
    return [*ended, *allotted.releases, *allotted.grants, *expired, *waits]


def grants(snapshot: Snapshot, now_s: float) -> list[Grant]:
    """The grants among what :func:`decide` answers."""
    return allocate(first_come(snapshot.queue), snapshot.nodes, split_ended(snapshot.warm, now_s)[1], now_s).grants


@dataclass
class Allotment:
    """Decisions on who gets what; ``taken``: warm leases that are kept no longer."""

    claims: Claims
    grants: list[Grant] = field(default_factory=list)
    releases: list[Release] = field(default_factory=list)
    #: runs that nobody is ahead of on the nodes that they wait for, and which nodes these are
    heads: dict[str, frozenset[str]] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)


def allocate(queue: list[QueuedRun], nodes: tuple[NodeState, ...], warm: list[WarmLease], now_s: float) -> Allotment:
    """Grant in order, all GPUs of a run at once. Behind a run that waits only those go on who cannot use what it
    waits for; a run that fits no node which is here waits for none of them.

    A run whose own kernel keeps what it asks for does not wait behind anybody for that. The first run that waits for
    a node takes back what is kept there and helps it. One that may wait no longer holds nobody up.
    """
    found, free = Allotment(Claims(nodes)), nodes
    for queued in queue:
        left = [lease for lease in warm if lease.lease not in found.taken] if found.taken else warm
        lease = own_lease(queued, left, nodes) if left else None
        if lease is None and found.claims.may_go(queued):
            lease, slots = _find(found, queued, left, free, now_s)
            if slots is not None:
                found.grants.append(Grant(queued.run, slots))
                free = _after(free, found.grants[-1:])
        if lease is not None:
            found.taken.add(lease.lease)
            found.grants.append(Grant(queued.run, lease.slots, lease.lease))
    return found


def _find(
    found: Allotment, queued: QueuedRun, warm: list[WarmLease], free: tuple[NodeState, ...], now_s: float
) -> tuple[WarmLease | None, tuple[Slot, ...] | None]:
    """The warm lease or the free slots that the run gets; else it waits, and what it waits for is claimed."""
    left = found.claims.left_to(queued)
    if len(left) < queued.ask.nodes:
        if not _is_over(queued, now_s):
            found.claims.add(queued)
        return None, None
    nodes = tuple(node for node in free if node.node in left)
    slots = _place(queued.ask, nodes)
    lease = _block(found, queued, recall(queued, warm, nodes, _place), left, now_s) if slots is None else None
    return lease, slots


def _block(
    found: Allotment, queued: QueuedRun, recalled: Recall, left: frozenset[str], now_s: float
) -> WarmLease | None:
    """The run is the next one for these nodes, unless what it takes back can be handed over to it as it is."""
    if recalled.whole is not None:
        return recalled.whole
    soon = recalled.is_enough and not _is_over(queued, now_s - _GIVING_BACK_S)
    if soon or not _is_over(queued, now_s):
        found.heads[queued.run] = left
        found.claims.add(queued)
        found.releases += recalled.releases(queued.user)
        found.taken |= set(recalled.leases)
    return None


def expire(queue: list[QueuedRun], now_s: float) -> list[Expire]:
    """End the runs whose ``wait_s`` is over."""
    return [Expire(queued.run, _expired(queued)) for queued in queue if _is_over(queued, now_s)]


def _expired(queued: QueuedRun) -> str:
    what = "GPU is" if queued.ask.gpus else "cores are"
    if not queued.wait_s:
        return f"no {what} free now, and it may not wait (--wait 0)"
    return f"no {what.split()[0]} within {format_seconds(queued.wait_s)} (--wait)"


def _is_over(queued: QueuedRun, now_s: float) -> bool:
    return queued.wait_s is not None and now_s - queued.submitted_at >= queued.wait_s


def _after(nodes: tuple[NodeState, ...], grants: Iterable[Grant]) -> tuple[NodeState, ...]:
    """The nodes once ``grants`` are carried out (those on warm leases change nothing)."""
    slots = [slot for grant in grants for slot in grant.placement if not grant.lease]
    return tuple(
        replace(
            node,
            gpus_free=node.gpus_free - sum(slot.gpus for slot in slots if slot.node == node.node),
            cpus_free=node.cpus_free - sum(slot.cpus for slot in slots if slot.node == node.node),
        )
        for node in nodes
    )


def _place(ask: ResourceAsk, nodes: tuple[NodeState, ...]) -> tuple[Slot, ...] | None:
    gpus, cpus = gpus_per_node(ask), cpus_needed(ask)
    return tuple(Slot(node.node, gpus, cpus) for node in _best_nodes(ask, nodes)) or None


def _best_nodes(ask: ResourceAsk, nodes: tuple[NodeState, ...]) -> list[NodeState]:
    """The best nodes, as many as asked for, all with room for their share; none when there are too few."""
    fitting = [node for node in nodes if node.schedulable and suits(ask, node) and _has_room(ask, node)]
    best = sorted(fitting, key=lambda node: pack(ask, node), reverse=True)[: ask.nodes]
    return best if len(best) == ask.nodes else []


def _has_room(ask: ResourceAsk, node: NodeState) -> bool:
    return node.gpus_free >= gpus_per_node(ask) and node.cpus_free >= cpus_needed(ask)


def _waits(queue: list[QueuedRun], allotted: Allotment, nodes: tuple[NodeState, ...], kept: int) -> list[Decision]:
    """Positions and reasons; whoever stands aside comes behind those who wait for a node that is here."""
    inside, asides = allotted.claims.split(queue)
    found: list[Decision] = []
    for place, queued in enumerate(inside, start=1):
        left = allotted.heads.get(queued.run)
        if left is None:
            found.append(Wait(queued.run, place, _behind(place)))
        else:
            others = f", {kept} {'is' if kept == 1 else 'are'} kept for other cells" if kept and queued.ask.gpus else ""
            found.append(Wait(queued.run, place, _next(queued, left, place, nodes) + others))
            kept = 0
    places = enumerate(asides, start=len(inside) + 1)
    return found + [Wait(queued.run, place, _ASIDE + allotted.claims.aside(queued)) for place, queued in places]


def _next(queued: QueuedRun, left: frozenset[str], place: int, nodes: tuple[NodeState, ...]) -> str:
    shortage = _shortage(queued.ask, tuple(node for node in nodes if node.node in left))
    where = "next in the queue" if place == 1 else f"{_ordinal(place)} in the queue, the next for nodes that fit it"
    return f"{where}: {shortage}"


@lru_cache(maxsize=4096)
def _behind(place: int) -> str:
    return f"{_ordinal(place)} in the queue, behind {_runs(place - 1)}"


def _shortage(ask: ResourceAsk, nodes: tuple[NodeState, ...]) -> str:
    """The reason why no node that suits the run takes it now."""
    ready = [node for node in nodes if node.schedulable]
    if len(ready) < ask.nodes:
        away = next((node.reason for node in nodes if not node.schedulable), "")
        return away or "the nodes that fit take no new runs"
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


class Claims:
    """The nodes that runs wait for, of one decision: whoever is behind them cannot take these away, but all others.

    GPUs and cores are claimed apart: a run without GPUs takes nothing that others wait for.
    """

    def __init__(self, nodes: tuple[NodeState, ...]) -> None:
        self._nodes = nodes
        self._suited: dict[bytes, frozenset[str]] = {}
        self._asides: dict[bytes, str] = {}
        self._claimed: dict[bool, set[str]] = {True: set(), False: set()}
        #: what those ahead ask for: others of the kind wait behind them
        self._behind: set[bytes] = set()

    def suited(self, queued: QueuedRun) -> frozenset[str]:
        """The nodes that could take the run, were they empty."""
        found = self._suited.get(queued.shape)
        if found is None:
            found = frozenset(node.node for node in self._nodes if suits(queued.ask, node))
            self._suited[queued.shape] = found
        return found

    def may_go(self, queued: QueuedRun) -> bool:
        """Tell if there may be a node for the run that nobody ahead of it waits for."""
        return queued.shape not in self._behind and not self.aside(queued)

    def left_to(self, queued: QueuedRun) -> frozenset[str]:
        """The nodes that could take the run, and that nobody ahead of it waits for."""
        return self.suited(queued) - self._claimed[queued.ask.gpus > 0]

    def add(self, queued: QueuedRun) -> None:
        """The run waits for any of the nodes that suit it."""
        self._claimed[queued.ask.gpus > 0] |= self.suited(queued)
        self._behind.add(queued.shape)

    def aside(self, queued: QueuedRun) -> str:
        """The reason why the run waits for no node that is here, in words; empty when it does wait.

        It holds nobody up, and is in its old place again as soon as there are nodes for it.
        """
        found = self._asides.get(queued.shape)
        if found is None:
            found = self._asides[queued.shape] = self._lack(queued)
        return found

    def split(self, queue: list[QueuedRun]) -> tuple[list[QueuedRun], list[QueuedRun]]:
        """Those that wait for nodes which are here, and those that stand aside."""
        inside = [queued for queued in queue if not self.aside(queued)]
        return inside, [queued for queued in queue if self.aside(queued)] if len(inside) < len(queue) else []

    def _lack(self, queued: QueuedRun) -> str:
        suited = [node for node in self._nodes if node.node in self.suited(queued)]
        if sum(node.expected for node in suited) >= queued.ask.nodes:
            return ""
        if len(suited) >= queued.ask.nodes:
            return "; ".join(dict.fromkeys(node.reason for node in suited if not node.expected))
        return impossible(queued.ask, self._nodes) or "no node that fits is up"
