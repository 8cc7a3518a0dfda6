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


def leases_of(status: StatusDocument, users: Collection[str]) -> dict[str, LeaseSeen]:
    """Run → lease, of these users alone."""
    runs = {run.run: run for run in status.runs}
    cards = [card for node in status.nodes for card in node.gpus if card.run and card.user in users]
    found: dict[str, LeaseSeen] = {}
    for run in dict.fromkeys(card.run or "" for card in cards):
        own = [card for card in cards if card.run == run]
        known = [card.utilization for card in own if card.utilization is not None]
        signal = Signal("run", False, "nothing runs on it")
        if any(card.state != "warm" for card in own):
            state = runs[run].state if run in runs else "held"
            signal = Signal("run", True, f"its run is {state}")
        found[run] = LeaseSeen(
            user=own[0].user or "",
            queue=runs[run].queue if run in runs else "",
            path=runs[run].notebook if run in runs else "",
            signals=(signal,),
            utilization=sum(known) / len(known) if len(known) == len(own) else None,
        )
    return found
