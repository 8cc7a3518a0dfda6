"""What a run is made from: the values that were sent to it, and the files that it read."""

from __future__ import annotations

from typing import Annotated

import msgspec

from .bounds import Bytes, Name, Word


class TrackedFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that a cell read through ``track(path)``, as it was then. ``digest``: blake3-256, hex."""

    path: str
    bytes: int
    digest: str
    mtime_ns: int = 0


class UsedInput(msgspec.Struct, frozen=True, omit_defaults=True):
    """One name that was sent to a run; ``run``: the earlier run that made the object, where that is known.

    ``digest``: ``sent:…`` of the bytes as they were sent; ``blobs:…`` of the digests of its blobs where it is large;
    ``graph:…`` of what it means, with ``--cache``.
    """

    name: Name
    type: Name
    bytes: Bytes = 0
    run: Word = ""
    digest: Word = ""


UsedInputs = Annotated[list[UsedInput], msgspec.Meta(max_length=100_000)]
