"""Queues by type of GPU: a tree of its own, with its guarantees and maxima, for each type that a queue names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from .tree import Queue, QueueTree

#: all types that no queue names
OTHERS = ""


def key(name: str) -> str:
    """``NVIDIA A100-SXM4`` → ``nvidiaa100sxm4``: names are compared by their letters and digits."""
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def named_types(queues: Iterable[Queue]) -> list[str]:
    """Types that some queue names, the longest first; none where no queue does."""
    names = {key(kind) for queue in queues for kind, _ in (*queue.guaranteed_of, *queue.max_of)}
    return sorted(names, key=lambda name: (-len(name), name))


def type_among(gpu_type: str, names: Iterable[str]) -> str:
    """The one of ``names`` that a GPU is of."""
    return next((name for name in names if name in key(gpu_type)), OTHERS)


def tree_of(tree: QueueTree, kind: str) -> QueueTree:
    """The queues with what they are guaranteed, and may have at most, of one type."""
    return QueueTree(
        replace(queue, guaranteed=_of(queue.guaranteed_of).get(kind, 0), max=_of(queue.max_of).get(kind))
        for queue in tree.queues.values()
    )


def _of(counts: Iterable[tuple[str, int]]) -> Mapping[str, int]:
    return {key(kind): count for kind, count in counts}
