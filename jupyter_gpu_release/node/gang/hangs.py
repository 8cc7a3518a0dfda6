"""Search for ranks that hang: those that stay behind the others for longer than ``--rank-timeout``. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from ...units import format_seconds


@dataclass
class Progress:
    """Times at which a rank reached each stage (monotonic seconds; None: not yet)."""

    began_s: float | None = None
    ended_s: float | None = None


@dataclass(frozen=True)
class Hang:
    """``ranks`` are behind; ``why`` continues a sentence that begins with the rank."""

    ranks: tuple[int, ...]
    why: str


def find_hang(
    progress: Mapping[int, Progress], waiting: Set[int], waiting_since_s: float | None, now_s: float, limit_s: float
) -> Hang | None:
    """Compare the ranks with each other: at their end, at their start, and where they wait in ``gpu_release.ranks``."""
    limit = f"(--rank-timeout {format_seconds(limit_s)})"
    for stage, behind in (("ended_s", "still ran"), ("began_s", "had not begun")):
        reached = {rank: at for rank, p in progress.items() if (at := getattr(p, stage)) is not None}
        late = tuple(rank for rank in progress if rank not in reached)
        if reached and late and now_s - min(reached.values()) > limit_s:
            first = min(reached, key=reached.__getitem__)
            word = "ended" if stage == "ended_s" else "begun"
            return Hang(
                late, f"{behind} {format_seconds(now_s - reached[first])} after rank {first} had {word} {limit}"
            )
    if waiting and waiting_since_s is not None and now_s - waiting_since_s > limit_s:
        late = tuple(rank for rank in progress if rank not in waiting)
        return Hang(late, f"did not come to where rank {min(waiting)} waited for it {limit}") if late else None
    return None
