"""Saves of a gang: all ranks meet at the same safe point, and are preempted together or not at all.

Rank 0 takes the others' parts from memory to memory, so that what is written is one graph, by one process, once the
GPUs are free. What a rank has as rank 0 has it (replicas of a model) is not even sent.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ....adapters.adapter import ImmovableError
from ....errors import RankError
from ....protocol.cell import RESUME
from ....protocol.runs import RankPart
from ....protocol.wire import decode, encode
from ....store.digests import digest_of
from ...gang.channel import RankChannel
from ...gang.rendezvous import SETTLE
from ...ipc.frames import Stay
from ...values.gather import Part, offer_part, open_part
from .preempted import TakenSave
from .run_files import StoreUnfitError
from .saver import tried

_MEETING = "save"
#: buffers below this are sent without a question
_COMPARED_BYTES = 1 << 16


class _Ready(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rank is at the safe point, and could be saved, or not. ``lengths``: rank 0's word on the run's files."""

    stay: Stay | None = None
    lengths: dict[str, int] = msgspec.field(default_factory=dict)


class _Wanted(msgspec.Struct, frozen=True, omit_defaults=True):
    """Rank 0 wants the others' parts. ``has``: digests of buffers that it has itself."""

    stay: Stay | None = None
    has: list[str] = msgspec.field(default_factory=list)


class _Brought(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rank's part. ``buffers``: for each the digest of the one of rank 0's that is the same; empty: it is sent.
    ``names``: name → digest. ``stay``: reason why there is none."""

    stay: Stay | None = None
    part: Part = Part()
    buffers: list[str] = msgspec.field(default_factory=list)
    names: dict[str, str] = msgspec.field(default_factory=dict)


class GangSave:
    """``address``: of this node, for rank 0 on another one."""

    def __init__(self, rank: int, channel: RankChannel, folder: Path, address: str) -> None:
        self._rank = rank
        self._channel = channel
        self._folder = folder
        self._address = address

    def save_all(self, take: Callable[[], TakenSave], expect_room: Callable[[int], None]) -> TakenSave:
        """Save all ranks, each by its ``take`` (rank 0 when the others have stopped), or none.

        Raises ImmovableError or StoreUnfitError, in all ranks, for what one of them cannot.
        """
        taken, stay = tried(take) if self._rank else (None, None)
        stay = self._problem(stay)
        if not self._rank and stay is None:
            taken, stay = tried(take)
        has = [] if taken is None or self._rank else list(_digests(taken.values.buffers).values())
        wanted = decode(self._tell("broadcast", encode(_Wanted(stay, has))) or encode(_Wanted(stay, has)), _Wanted)
        stay = wanted.stay
        with contextlib.ExitStack() as held:
            if stay is None and taken is not None:
                brought = self._collect(encode(self._offered(taken, wanted.has, held)))
                if not self._rank:
                    taken, stay = self._put_together(taken, brought, expect_room)
            self._settle(_Ready(stay))
        assert taken is not None
        return taken

    def meet(self) -> None:
        """Wait for the others; raises RankError."""
        self._channel.call_collective("gather", 0, b"", None, _MEETING)

    def meet_for_save(self, stay: Stay | None, look: Callable[[], dict[str, int]]) -> dict[str, int]:
        """Meet before each rank saves itself in a fork; rank 0 gives the run's files as they are while all stand.

        Raises ImmovableError or StoreUnfitError for what one of them cannot.
        """
        stay = self._problem(stay)
        lengths: dict[str, int] = {}
        if not self._rank and stay is None:
            found, stay = tried(look)
            lengths = found or {}
        return self._settle(_Ready(stay, lengths)).lengths

    # ------------------------------------------------------------------------------------ meetings
    def _problem(self, stay: Stay | None) -> Stay | None:
        """Reason why one of the ranks cannot; only rank 0 knows it."""
        found = self._collect(encode(_Ready(stay)))
        answers = [decode(data, _Ready).stay for data in found] or [stay]
        first = next(((rank, each) for rank, each in enumerate(answers) if each is not None), None)
        if first is None:
            return None
        rank, why = first
        return Stay(f"rank {rank}: {why.reason}", why.for_now) if why.reason and rank else why

    def _settle(self, ready: _Ready) -> _Ready:
        said = self._tell(SETTLE, encode(ready))
        ready = decode(said, _Ready) if said else ready
        if ready.stay is not None:
            raise (StoreUnfitError if ready.stay.for_now else ImmovableError)(ready.stay.reason)
        return ready

    def _collect(self, data: bytes) -> list[bytes]:
        return self._call("gather", data)[0]

    def _tell(self, op: str, data: bytes) -> bytes:
        """The word of rank 0; empty on itself."""
        return self._call(op, data)[1]

    def _call(self, op: str, data: bytes) -> tuple[list[bytes], bytes]:
        try:
            reply = self._channel.call_collective(op, 0, data, None, _MEETING)
        except RankError as error:
            raise StoreUnfitError(error.message) from error
        return reply.parts, reply.data

    # ---------------------------------------------------------------------------------------- parts
    def _offered(self, taken: TakenSave, has: Sequence[str], held: contextlib.ExitStack) -> _Brought:
        brought, stay = tried(lambda: self._brought(taken, has, held))
        return brought or _Brought(stay)

    def _brought(self, taken: TakenSave, has: Sequence[str], held: contextlib.ExitStack) -> _Brought:
        if not self._rank:
            return _Brought()
        values, left = taken.values, Counter(has)
        digests = _digests(values.buffers)
        same = []
        for number in range(len(values.buffers)):
            digest = digests.get(number, "")
            same.append(digest if left[digest] > 0 else "")
            left[digest] -= 1
        sent = [buffer for buffer, digest in zip(values.buffers, same, strict=True) if not digest]
        file = self._folder / f"part-{self._rank}.graph"
        return _Brought(None, offer_part(values.stream, sent, file, self._address, held), same, values.digests())

    def _put_together(
        self, taken: TakenSave, brought: list[bytes], expect_room: Callable[[int], None]
    ) -> tuple[TakenSave | None, Stay | None]:
        def put() -> TakenSave:
            whole = self._whole(taken, [decode(data, _Brought) for data in brought[1:]])
            expect_room(whole.save.bytes)
            return whole

        whole, stay = tried(put)
        if stay is not None:
            stay = Stay(f"the ranks' parts were not brought together: {stay.reason}", for_now=True)
        return whole, stay

    def _whole(self, taken: TakenSave, others: list[_Brought]) -> TakenSave:
        values, parts = taken.values, []
        buffers, keep = list(values.buffers), list(values.keep)
        own_names = values.digests()
        for rank, other in enumerate(others, 1):
            if other.stay is not None:
                raise StoreUnfitError(f"rank {rank}: {other.stay.reason}")
            stream, sent = open_part(other.part, rank, self._folder)
            mine = defaultdict(list)
            for number, digest in _digests(values.buffers).items():
                mine[digest].append(number)
            numbers = [len(buffers)]
            buffers.append(memoryview(stream))
            left = iter(sent)
            for digest in other.buffers:
                if digest:
                    numbers.append(mine[digest].pop())
                else:
                    numbers.append(len(buffers))
                    buffers.append(memoryview(next(left)).cast("B"))
            own = [name for name, digest in other.names.items() if name != RESUME and own_names.get(name) != digest]
            parts.append(RankPart(numbers, own=own))
            keep.append(sent)
        total = len(values.stream) + sum(buffer.nbytes for buffer in buffers)
        made = dataclasses.replace(values, buffers=buffers, total_bytes=total, keep=keep)
        return TakenSave(msgspec.structs.replace(taken.save, parts=parts, bytes=total), made)


def _digests(buffers: Sequence[Any]) -> dict[int, str]:
    """Number → digest of the large ones."""
    return {number: digest_of(buffer) for number, buffer in enumerate(buffers) if buffer.nbytes >= _COMPARED_BYTES}
