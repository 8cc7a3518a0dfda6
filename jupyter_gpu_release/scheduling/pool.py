"""Nodes to ask for and to give back, where a cluster borrows them. Pure: the gateway and the simulator carry it out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..protocol.config import SlurmPool
from ..units import format_seconds
from .plugins.node_filters import FILTERS, cpu_count, gpu_count, gpu_memory, gpu_type, host_memory, labels, walltime
from .workload import GPU, Node, Run


@dataclass(frozen=True, slots=True)
class Pool:
    """Limits of a pool. ``shape``: each of its nodes, when it is empty; its type of GPU may be unknown. ``seen``: kinds
    of nodes that have come.
    """

    shape: Node
    most: int
    least: int = 0
    idle_return_s: float = 600.0
    seen: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class Lent:
    """A node that is there: thousandths of GPUs and CPUs free, without work since ``idle_s`` (None: it has some)."""

    name: str
    gpus: int
    cpus: int = 0
    idle_s: float | None = None
    left_s: float = math.inf
    #: False: it is in trouble, or taken out
    takes_runs: bool = True
    #: the node when it is empty; None: its agent still starts
    shape: Node | None = None


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """Things to do now: ``submit`` requests, ``withdraw`` the last ones, ``give_back`` nodes."""

    submit: int = 0
    withdraw: tuple[str, ...] = ()
    give_back: tuple[str, ...] = ()
    #: runs that wait for nodes which were or will be asked for
    asked: frozenset[str] = frozenset()
    #: runs for which no nodes are asked, and why not
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Room:
    """Room on a node; ``name`` is empty for one that is not there yet."""

    gpus: int
    cpus: int
    left_s: float = math.inf
    name: str = ""
    shape: Node | None = None

    def takes(self, run: Run) -> bool:
        if self.shape is not None and any(check(run, self.shape) for check in FILTERS):
            return False
        cpus = max(run.cpus_per_rank, run.needs.cpus)
        return run.gpus_per_rank <= self.gpus and cpus <= self.cpus and run.lasts_s <= self.left_s


def pool_of(settings: SlurmPool, left_s: float = math.inf) -> Pool:
    """The pool that a file describes; ``left_s``: time that a run may have on a node that has just come."""
    shape = Node(
        name="",
        gpus=settings.gpus_per_node * GPU,
        gpu_type=settings.gpu_type,
        cpus=settings.cpus_per_node,
        left_s=left_s,
    )
    return Pool(shape, settings.max_nodes, settings.min_nodes, settings.idle_return_s)


def plan_pool(
    pool: Pool, wanted: Sequence[Run], there: Sequence[Lent], coming: int = 0, asked: Sequence[str] = ()
) -> PoolPlan:
    """Plan for the runs that lack a node, the first first.

    ``coming``: nodes whose request was granted and that are not there yet; ``asked``: requests that wait, the first
    first. Small runs share a node. A run that wants several gets all of them or none.
    """
    fit = [node for node in there if node.takes_runs]
    rooms = [_Room(node.gpus, node.cpus, node.left_s, node.name, node.shape) for node in fit]
    used: set[str] = set()
    new, placed, refused = 0, set(), {}
    for run in wanted:
        if why := _never(pool, run):
            refused[run.run] = why
            continue
        further = _further(pool, run, pool.most - len(there) - new)
        taken = _place(run, rooms + further)
        if taken is None:
            refused[run.run] = f"the pool has all of its {pool.most} nodes"
            continue
        used.update(room.name for room in taken if room.name)
        added = [room for room in further if any(room is one for one in taken)]
        rooms, new = rooms + added, new + len(added)
        if any(not room.name for room in taken):
            placed.add(run.run)
    least = min(pool.least - len(fit), pool.most - len(there))
    keep = max(max(new, least) - coming, 0)
    return PoolPlan(
        submit=max(0, keep - len(asked)),
        withdraw=tuple(asked[keep:]),
        give_back=_surplus(pool, there, used),
        asked=frozenset(placed),
        refused=refused,
    )


def _further(pool: Pool, run: Run, most: int) -> list[_Room]:
    """Room on nodes that are not there yet: more than one for each rank are of no use."""
    return [_Room(pool.shape.gpus, pool.shape.cpus) for _ in range(min(most, run.min_ranks))]


def _never(pool: Pool, run: Run) -> str:
    """The reason why no node of the pool, or not so many, could take a run; empty: they could."""
    checks = (gpu_count, cpu_count, host_memory, labels, *((gpu_type,) if pool.shape.gpu_type else ()))
    lacks = [lack for check in checks if (lack := check(run, pool.shape))]
    lacks = lacks or _never_seen(pool, run)
    if lacks:
        return f"no node of the pool has {' and '.join(lacks)}"
    if walltime(run, pool.shape):
        lasts, stays = format_seconds(run.lasts_s), format_seconds(pool.shape.left_s)
        return f"its --timeout is {lasts}, and the pool's walltime leaves {stays}: shorten it, or add --restartable"
    if _place(run, _further(pool, run, pool.most)) is None:
        return f"the pool has at most {pool.most} nodes"
    return ""


def _never_seen(pool: Pool, run: Run) -> list[str]:
    """Needs that none of the nodes has that have come: the pool's file does not say all of them."""
    checks = (gpu_type, gpu_memory, host_memory)
    by_node = [[lack for check in checks if (lack := check(run, node))] for node in pool.seen]
    return by_node[0] if by_node and all(by_node) else []


def _place(run: Run, rooms: Sequence[_Room]) -> list[_Room] | None:
    """Take room for the least that a run can start with, the first first; None, and nothing is taken: there is none."""
    taken: list[_Room] = []
    apart = run.nodes != "any"
    for room in rooms:
        while len(taken) < run.min_ranks and room.takes(run):
            room.gpus -= run.gpus_per_rank
            room.cpus -= run.cpus_per_rank
            taken.append(room)
            if apart:
                break
    if len(taken) == run.min_ranks:
        return taken
    for room in taken:
        room.gpus += run.gpus_per_rank
        room.cpus += run.cpus_per_rank
    return None


def _surplus(pool: Pool, there: Sequence[Lent], used: set[str]) -> tuple[str, ...]:
    """Nodes that were idle for long enough, the longest first, but for the least that stay and take runs."""
    idle = [node for node in there if node.idle_s is not None and node.name not in used]
    over = [node for node in idle if node.idle_s is not None and node.idle_s >= pool.idle_return_s]
    over.sort(key=lambda node: -(node.idle_s or 0.0))
    fit = [node for node in over if node.takes_runs]
    may_go = fit[: max(0, sum(node.takes_runs for node in there) - pool.least)]
    return tuple(node.name for node in over if not node.takes_runs or node in may_go)
