"""Queues: a tree of named shares of the cluster, and the rules for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ...errors import OptionError
from ...settings.table import QUEUE

#: the one queue that there is without a file
DEFAULT_QUEUE = "default"
#: as many as there are
UNLIMITED = -1

ACTIONS = ("allocate", "backfill", "consolidate", "reclaim", "preempt")
QUEUE_ORDER = ("priority", "fair_share")
RUN_ORDER = ("priority", "user_share", "wait_over_expected_work", "age")


@dataclass(frozen=True, slots=True)
class Queue:
    """A named share; GPUs in thousandths."""

    name: str
    parent: str = ""
    #: what it gets back whenever it asks; ``UNLIMITED``: everything
    guaranteed: int = 0
    #: never more than these
    max: int | None = None
    #: its part of what is beyond the guarantees, among siblings
    weight: float = 1.0
    #: who is asked first for what is beyond the guarantees
    priority: int = 0
    #: a restartable run is left alone for so long
    min_runtime_s: float = 0.0
    max_gpus_per_user: int | None = None
    #: that wait or are under way
    max_runs_per_user: int | None = None
    #: who may use it, ``@`` before a group; None: everybody
    users: tuple[str, ...] | None = None
    #: highest ``--priority``
    priority_ceiling: int = 75
    #: from the notice to the end, for a run that is preempted
    grace_s: float = QUEUE["grace"].default
    #: cells are restartable unless they say that they are not
    is_restartable: bool = False
    max_timeout_s: float | None = None
    max_keep_s: float | None = None
    #: ``--priority`` counts among the runs of one user only
    is_by_user: bool = False
    #: guaranteed by type of GPU (``guaranteed`` is their sum then), and the most of each type
    guaranteed_of: tuple[tuple[str, int], ...] = ()
    max_of: tuple[tuple[str, int], ...] = ()


#: the one queue that there is without a file: nobody there gets before others by a word
SHARED_QUEUE = Queue(DEFAULT_QUEUE, is_by_user=True)


@dataclass(frozen=True, slots=True)
class Policy:
    """Rules that hold for all queues; lists name actions and plugins in their order."""

    actions: tuple[str, ...] = ACTIONS
    queue_order: tuple[str, ...] = QUEUE_ORDER
    run_order: tuple[str, ...] = RUN_ORDER
    #: may runs that cannot be taken back use more than the guarantee of their queue
    non_restartable_over_guarantee: bool = True
    usage_half_life_s: float = 7 * 86400.0
    #: a run that has waited so long, or so many times its expected time, goes before all that are shorter
    max_overtaking_s: float | None = None
    max_overtaking_factor: float | None = None
    gpu_tiers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class QueueTree:
    """The queues by name; refuses names that occur twice, parents that do not exist, and cycles."""

    def __init__(self, queues: Iterable[Queue]) -> None:
        self.queues: dict[str, Queue] = {}
        for queue in queues:
            if queue.name in self.queues:
                raise OptionError(f"queue {queue.name}: there are two of this name", hint="rename one of them")
            self.queues[queue.name] = queue
        self.children: dict[str, list[str]] = {"": []}
        for queue in self.queues.values():
            if queue.parent and queue.parent not in self.queues:
                raise OptionError(
                    f"queue {queue.name}: its parent {queue.parent} is not a queue",
                    hint=f"queues: {', '.join(self.queues)}",
                )
            self.children.setdefault(queue.parent, []).append(queue.name)
        self.paths = {name: self._path(name) for name in self.queues}
        #: for so long a restartable run is left alone: the longest of its queue and those above
        self.min_runtimes_s = {
            name: max(self.queues[above].min_runtime_s for above in path) for name, path in self.paths.items()
        }

    def _path(self, name: str) -> tuple[str, ...]:
        """The queue, its parent, and so on up to the top."""
        path: list[str] = []
        while name:
            if name in path:
                circle = " → ".join([*path[path.index(name) :], name])
                raise OptionError(f"queue {name}: it is its own ancestor ({circle})", hint="remove one `parent`")
            path.append(name)
            name = self.queues[name].parent
        return tuple(path)

    def is_leaf(self, name: str) -> bool:
        """Only leaves take runs."""
        return not self.children.get(name)

    def leaves(self) -> list[str]:
        """Names of the queues that take runs."""
        return [name for name in self.queues if self.is_leaf(name)]
