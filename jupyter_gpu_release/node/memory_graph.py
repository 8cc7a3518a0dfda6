"""One object graph in memory that another process of this node opens: nothing is written while GPUs are held.

The memory has no name on any filesystem, so nothing is left behind whoever dies: it goes with its last holder.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec

_ALIGNMENT = 64


class InMemory(msgspec.Struct, frozen=True):
    """Where a graph lies: an open file of process ``pid``. ``lengths`` in bytes: the stream's, then the buffers'."""

    pid: int
    descriptor: int
    lengths: list[int]


def put(stream: bytes, buffers: Sequence[Any]) -> InMemory:
    """Copy a graph into memory that lives as long as this process; raises ``OSError`` when there is too little."""
    views = views_of(stream, buffers)
    descriptor = os.memfd_create("jgr-graph", os.MFD_CLOEXEC)
    try:
        for view, (begin, _) in zip(views, pairwise(places(list(map(len, views)))), strict=True):
            _write_all(descriptor, view, begin)
    except OSError:
        os.close(descriptor)
        raise
    return InMemory(os.getpid(), descriptor, list(map(len, views)))


def take(where: InMemory) -> tuple[bytes, list[memoryview]]:
    """Stream and buffers (writable, of this process alone); raises ``OSError`` when their process is gone."""
    begins = places(where.lengths)
    with open(f"/proc/{where.pid}/fd/{where.descriptor}", "rb") as file:
        whole = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))
    stream, *buffers = [whole[begin : begin + length] for begin, length in zip(begins, where.lengths, strict=False)]
    return bytes(stream), buffers


def views_of(stream: bytes, buffers: Sequence[Any]) -> list[memoryview]:
    """The bytes of a graph, as they follow each other."""
    return [memoryview(part).cast("B") for part in (stream, *buffers)]


def places(lengths: Sequence[int]) -> list[int]:
    """Where each part begins, aligned, and the end."""
    found = [0]
    for length in lengths:
        found.append(-(-(found[-1] + length) // _ALIGNMENT) * _ALIGNMENT)
    return found


def _write_all(descriptor: int, view: memoryview, at: int) -> None:
    """The system takes at most 2 GiB at once."""
    while view:
        written = os.pwrite(descriptor, view, at)
        view, at = view[written:], at + written
