"""Bounds of every number, text and list that a client may send to the gateway: decoding refuses what is beyond.

They keep out what could hurt (numbers that the ledger cannot store, memory without end), not what is unusual.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from ..settings.built_in import BUILT_IN

#: what JSON, SQLite and floats hold exactly
LARGEST_NUMBER = 1 << 53
_LONGEST_TEXT = 16 << 20
_LONGEST_S = 1e10

Count = Annotated[int, Meta(ge=0, le=1_000_000)]
#: whole ones, or a part of one
Gpus = Count | Annotated[float, Meta(ge=0, le=1_000_000)]
#: each is a bundle that Ray places and a process
MOST_RANKS: int = BUILT_IN["most_ranks"].default
#: ranks, nodes
Several = Annotated[int, Meta(ge=1, le=MOST_RANKS)]
#: helpers of a gang that reserve nothing
Few = Annotated[int, Meta(ge=0, le=256)]
Number = Annotated[int, Meta(ge=0, le=LARGEST_NUMBER)]
Bytes = Annotated[int, Meta(ge=0, le=LARGEST_NUMBER)]
Cores = Annotated[float, Meta(gt=0, le=1e6)]
Seconds = Annotated[float, Meta(ge=0, le=_LONGEST_S)]
#: a time or a difference of times, whatever the clocks say
Finite = Annotated[float, Meta(ge=-1e15, le=1e15)]

#: an id, a kind, a digest
Word = Annotated[str, Meta(max_length=200)]
#: a name or a path
Name = Annotated[str, Meta(max_length=4096)]
#: code
Text = Annotated[str, Meta(max_length=_LONGEST_TEXT)]
Blob = Annotated[bytes, Meta(max_length=64 << 20)]
#: a value inside a message: :data:`.INLINE_LIMIT_BYTES`, and what is around it
SmallBlob = Annotated[bytes, Meta(max_length=2 << 20)]

Names = Annotated[list[Name], Meta(max_length=10_000)]
Resumed = Annotated[dict[Word, Number], Meta(max_length=10_000)]
Labels = Annotated[dict[Word, Word], Meta(max_length=100)]
Versions = Annotated[dict[Name, Name], Meta(max_length=10_000)]
