"""The leases of this server's users as the gateway's status shows them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ..core.documents import StatusDocument
from .policy import Signal


@dataclass(frozen=True, slots=True)
class LeaseSeen:
    """One lease (named by its run) at one moment. ``utilization``: mean over its cards; None: not told."""

    user: str
    queue: str
    path: str
    signals: tuple[Signal, ...]
    utilization: float | None
    #: when a warm one ends by itself, at the latest
    ends_at_s: float | None = None


def leases_of(status: StatusDocument, users: Collection[str], clock_s: float = 0.0) -> dict[str, LeaseSeen]:
    """Run → lease, of these users alone. ``clock_s``: the policy's clock minus unix time."""
    warm = {row.lease: row for row in status.warm}
    runs = {run.run: run for run in status.runs}
    cards = [card for node in status.nodes for card in node.gpus if card.run and card.user in users]
    found: dict[str, LeaseSeen] = {}
    for run in dict.fromkeys(card.run or "" for card in cards):
        own = [card for card in cards if card.run == run]
        known = [card.utilization for card in own if card.utilization is not None]
        signal = Signal("run", False, "nothing runs on it")
        known_as = runs.get(run) or warm.get(run)
        if any(card.state != "warm" for card in own):
            state = runs[run].state if run in runs else "held"
            signal = Signal("run", True, f"its run is {state}")
        found[run] = LeaseSeen(
            user=own[0].user or "",
            queue=known_as.queue if known_as is not None else "",
            path=known_as.notebook if known_as is not None else "",
            signals=(signal,),
            utilization=sum(known) / len(known) if len(known) == len(own) else None,
            ends_at_s=warm[run].until + clock_s if run in warm else None,
        )
    return found
