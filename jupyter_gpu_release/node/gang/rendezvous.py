"""Meeting place of a gang's ranks (``barrier``, ``broadcast``, ``--gather``): their leading agent counts. Pure."""

from __future__ import annotations

import msgspec

#: larger objects are a matter for the framework, or for files in ``run_dir``
MOST_BYTES = 16 << 20

#: the op that ends what ranks do together at a safe point
SETTLE = "settle"


class CollectiveCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rank comes to its ``turn``-th round. ``op``: ``barrier``, ``broadcast``, ``gather``; ``leave``: gives up.
    ``settle``: the last broadcast at a safe point."""

    turn: int
    op: str
    src: int = 0
    data: bytes = b""
    #: where they meet; empty: where the cell's own calls do
    meeting: str = ""


class CollectiveReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """``data``: what was broadcast; ``parts``: of all ranks, for rank 0 of a gather; ``error``: there was no round."""

    turn: int
    data: bytes = b""
    parts: list[bytes] = msgspec.field(default_factory=list)
    error: str = ""


CollectiveReplies = dict[int, CollectiveReply]


class Rendezvous:
    """Rounds that all ranks come to, one at a time; whoever cannot meet is told why at once.

    ``in_step``: ranks that have made different numbers of calls do not fit together.
    """

    def __init__(self, ranks: int, *, in_step: bool = True) -> None:
        self._ranks = ranks
        self._in_step = in_step
        self._here: dict[int, CollectiveCall] = {}
        self._gone: dict[int, str] = {}
        #: turn → why nobody meets there any more
        self._broken: dict[int, str] = {}

    @property
    def waiting(self) -> set[int]:
        """The ranks that wait for others."""
        return set(self._here)

    def arrive(self, rank: int, call: CollectiveCall) -> CollectiveReplies:
        """Take in what ``rank`` says; returns who is to be answered what."""
        if call.op == "leave":
            return self._on_leave(rank, call)
        if self._gone:
            return {rank: CollectiveReply(call.turn, error=self._why_gone(call))}
        if call.turn in self._broken:
            return {rank: CollectiveReply(call.turn, error=self._broken[call.turn])}
        self._here[rank] = call
        other = next((number for number, found in self._here.items() if not self._fit(found, call)), None)
        if other is not None:
            return self._break(
                f"rank {other} called {_shown(self._here[other])}, rank {rank} {_shown(call)}: "
                "all ranks must make the same calls in the same order"
            )
        return self._complete(call) if len(self._here) == self._ranks else {}

    def leave_for_good(self, rank: int, how: str) -> CollectiveReplies:
        """``rank`` has ended: those who wait for it need wait no longer."""
        self._gone[rank] = how
        self._here.pop(rank, None)
        if not self._here:
            return {}
        return self._break(self._why_gone(next(iter(self._here.values()))))

    def _fit(self, one: CollectiveCall, other: CollectiveCall) -> bool:
        return (one.op, one.src) == (other.op, other.src) and (one.turn == other.turn or not self._in_step)

    def _on_leave(self, rank: int, call: CollectiveCall) -> CollectiveReplies:
        """End its waiting, which was long enough; a round that was completed meanwhile counts."""
        if rank not in self._here:
            return {}
        missing = sorted(set(range(self._ranks)) - set(self._here))
        mine = self._here.pop(rank)
        text = f"rank {rank} gave up waiting for {_ranks(missing)} in {_shown(mine)}"
        replies = self._break(text)
        self._broken[mine.turn] = text
        return {**replies, rank: CollectiveReply(call.turn, error=f"{_ranks(missing)} did not come to {_shown(mine)}")}

    def _complete(self, call: CollectiveCall) -> CollectiveReplies:
        calls, self._here = self._here, {}
        if call.op == "gather":
            parts = [calls[rank].data for rank in range(self._ranks)]
            return {rank: CollectiveReply(mine.turn, parts=[] if rank else parts) for rank, mine in calls.items()}
        data = calls[call.src].data
        return {
            rank: CollectiveReply(mine.turn, data=b"" if rank == call.src else data) for rank, mine in calls.items()
        }

    def _break(self, why: str) -> CollectiveReplies:
        calls, self._here = self._here, {}
        self._broken.update((call.turn, why) for call in calls.values())
        return {rank: CollectiveReply(call.turn, error=why) for rank, call in calls.items()}

    def _why_gone(self, call: CollectiveCall) -> str:
        rank, how = next(iter(self._gone.items()))
        return f"rank {rank} {how} and does not come to {_shown(call)}"


def _shown(call: CollectiveCall) -> str:
    return f"broadcast(src={call.src})" if call.op == "broadcast" else f"{call.op}()"


def _ranks(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
