"""From one order to its ranks' orders, and from the ranks' outcomes back to one. Pure, but for the free port."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence

import msgspec

from ..core.messages import Outcome
from ..core.node_messages import StartOrder
from .frames import RankOrder
from .spool import KeepOrder


def rank_orders(order: StartOrder, keep: KeepOrder) -> list[RankOrder]:
    """One order per rank."""
    port = _free_port() if order.ranks > 1 else 0
    return [
        RankOrder(
            run=order.run, payload=order.payload, folder=order.folder, rank=rank, ranks=order.ranks,
            simulated=order.simulated, master_port=port,
            memory_bytes=order.memory_bytes, cpus=order.cpus, timeout_s=order.timeout_s, grace_s=order.grace_s,
            keep=keep,
        )
        for rank in range(order.ranks)
    ]  # fmt: skip


def shares(gpu_ids: Sequence[str], ranks: int) -> list[list[str]]:
    """The GPUs of each rank: dealt out evenly, in order."""
    share = len(gpu_ids) // max(ranks, 1)
    return [list(gpu_ids[rank * share : (rank + 1) * share]) for rank in range(ranks)]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def merge(outcomes: Mapping[int, Outcome]) -> Outcome:
    """Rank 0's outcome with the gang's times; another rank's failure becomes the run's when rank 0 has none."""
    first = outcomes[0]
    failed = [rank for rank, outcome in sorted(outcomes.items()) if outcome.status not in ("ok", "interrupted")]
    changes: dict[str, object] = {
        "ended_s": max((o.ended_s for o in outcomes.values() if o.ended_s), default=first.ended_s),
        "released_s": max((o.released_s for o in outcomes.values() if o.released_s), default=None),
        "tracked": list({file: None for _, outcome in sorted(outcomes.items()) for file in outcome.tracked}),
    }
    if failed and 0 not in failed:
        culprit = outcomes[failed[0]]
        error = culprit.error
        if error is not None and culprit.status == "died":  # the values are rank 0's
            text = f"rank {failed[0]}: {error.evalue.removesuffix('; its names are gone')}"
            error = msgspec.structs.replace(error, evalue=text)
        changes |= {"status": culprit.status, "error": error}
        changes["notes"] = [*first.notes, *culprit.notes, f"rank {failed[0]} of {len(outcomes)} failed"]
    return msgspec.structs.replace(first, **changes) if len(outcomes) > 1 else first
