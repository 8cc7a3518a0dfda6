"""Nodes and runs as the policy sees them, frozen. GPUs are counted in thousandths."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

#: thousandths of one GPU
GPU = 1000
#: of the smallest size there is
MOST_PARTS = 20


class RankState(StrEnum):
    """State of one rank."""

    QUEUED = "queued"
    #: starts now
    GRANTED = "granted"
    #: starts when preempted runs have gone
    PROMISED = "promised"
    RUNNING = "running"
    #: preempted; holds its GPUs until it has stopped
    YIELDING = "yielding"


@dataclass(frozen=True, slots=True)
class Node:
    """A machine, and what it offers."""

    name: str
    #: thousandths
    gpus: int
    gpu_type: str = ""
    #: of the smallest GPU; 0: not known
    gpu_memory_bytes: int = 0
    cpus: int = 0
    memory_bytes: int = 0
    labels: tuple[tuple[str, str], ...] = ()
    #: takes new runs
    schedulable: bool = True
    #: why it takes none, in words
    reason: str = ""
    #: its agent tells attempts of a run apart: one from before `start --upgrade` does not
    knows_attempts: bool = True
    #: until the node ends
    left_s: float = math.inf
    #: runs that may share one of its GPUs; 0: none do
    parts_per_gpu: int = MOST_PARTS


@dataclass(frozen=True, slots=True)
class Needs:
    """Properties that a node must have for a run."""

    gpu_type: str = ""
    min_gpu_memory_bytes: int = 0
    #: on the node; they are not shared out
    cpus: int = 0
    memory_bytes: int = 0
    labels: tuple[tuple[str, str], ...] = ()
    #: the run may have a second attempt
    attempts: bool = False


@dataclass(frozen=True, slots=True)
class Rank:
    """A process of a run, and the node that it is on; of a queued one the node that it was promised, if any."""

    state: RankState = RankState.QUEUED
    node: str = ""
    #: of a part: the GPU that it is on; empty: not told yet, or not known
    gpu: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """A gang of equal ranks: all or nothing up to ``min_ranks``, rank by rank above that."""

    run: str
    queue: str
    ranks: tuple[Rank, ...]
    #: thousandths
    gpus_per_rank: int
    min_ranks: int
    priority: int = 50
    restartable: bool = False
    user: str = ""
    submitted_at: float = 0.0
    started_at: float | None = None
    #: what it has done since then is lost when it is taken now; None: nothing is
    saved_at: float | None = None
    #: runs that are expected to last alike have one name
    campaign: str = ""
    #: learned from earlier runs
    expected_s: float | None = None
    #: ``--timeout``
    limit_s: float | None = None
    #: nodes that the ranks are spread over evenly; ``any``: whatever nodes have room
    nodes: int | Literal["any"] = "any"
    needs: Needs = Needs()
    #: nodes where it was lost before: only taken where no other one that suits is up
    avoid: tuple[str, ...] = ()
    #: nodes that lack its environment: not taken until they have it
    unready: tuple[str, ...] = ()
    #: CPUs that each rank takes for itself (runs without GPUs)
    cpus_per_rank: int = 0

    @property
    def is_elastic(self) -> bool:
        """Tell if it may have fewer ranks than it asks for."""
        return self.min_ranks < len(self.ranks)

    @property
    def lasts_s(self) -> float:
        """Time that it needs on a node, as far as that is known. A restartable run goes on elsewhere."""
        if self.restartable:
            return 0.0
        return self.limit_s if self.limit_s is not None else self.expected_s or 0.0

    @property
    def gpus(self) -> int:
        """Thousandths of all ranks together."""
        return self.gpus_per_rank * len(self.ranks)

    @property
    def is_part(self) -> bool:
        """Tell if a rank has a part of a GPU only."""
        return 0 < self.gpus_per_rank < GPU

    @property
    def claim(self) -> int:
        """Thousandths that a rank keeps from those who want whole GPUs, where it opens one."""
        return -(-self.gpus_per_rank // GPU) * GPU

    def ranks_in(self, gpus: int) -> int:
        """Ranks that so many thousandths of whole GPUs are enough for; it has some."""
        return gpus // GPU * (GPU // self.gpus_per_rank) if self.is_part else gpus // self.gpus_per_rank


def gpu_number(thousandths: int) -> float:
    """``2000 → 2``, ``500 → 0.5``: GPUs as people count them."""
    return thousandths // GPU if thousandths % GPU == 0 else thousandths / GPU


def in_thousandths(gpus: float) -> int:
    """``0.5 → 500``."""
    return round(gpus * GPU)
