"""Decisions in words, made from the decisions and from nothing else."""

from __future__ import annotations

from .decisions import (
    Away,
    Cause,
    Coming,
    Decision,
    NeverFits,
    NoCpus,
    NoRoom,
    NotYet,
    OverGuarantee,
    OverMax,
    OverUserMax,
    Wait,
    Yield,
)
from .queues.tree import DEFAULT_QUEUE, UNLIMITED
from .workload import GPU


def explain(decision: Decision) -> str:
    """One sentence for whoever waits, starts or steps aside."""
    if isinstance(decision, Wait):
        return _why_it_waits(decision)
    if isinstance(decision, Yield):
        return _why_it_yields(decision)
    where = ", ".join(dict.fromkeys(node for _, node in decision.ranks))
    if decision.promised:
        return f"starts on {where} when those who yield have gone{_BY.get(decision.action, '')}"
    return f"starts on {where}"


def _why_it_waits(wait: Wait) -> str:
    if isinstance(wait.cause, NeverFits):
        return because(wait.cause)
    queue = "the queue" if wait.queue == DEFAULT_QUEUE else wait.queue
    place = "next" if wait.position == 1 else ordinal(wait.position)
    return f"{place} in {queue}: {because(wait.cause)}"


_BY = {
    "reclaim": " (its queue is below its share)",
    "preempt": " (it has the higher priority)",
    "consolidate": " (others are moved together for it)",
    "allocate": "",
}


def _why_it_yields(decision: Yield) -> str:
    why = {
        "reclaim": f"{decision.beneficiary} takes back what its queue is due",
        "preempt": f"{decision.beneficiary} has the higher priority in this queue",
        "consolidate": f"{decision.beneficiary} fits when it is moved",
    }[decision.action]
    to = ", ".join(dict.fromkeys(node for _, node in decision.moves))
    return f"{'moves to ' + to if to else 'steps aside'}: {why}"


def because(cause: Cause) -> str:
    """The cause of waiting."""
    match cause:
        case NoRoom():
            return _no_room(cause)
        case NoCpus():
            return f"needs {cause.cpus} CPU{'' if cause.cpus == 1 else 's'}, {cause.free} free"
        case Away():
            return cause.reason
        case Coming():
            return "its GPUs are being given back"
        case OverMax():
            return f"queue {cause.queue} has its maximum of {gpus(cause.max)}"
        case OverUserMax():
            return f"{cause.user or 'its user'} has the most that one user may have in {cause.queue}, {gpus(cause.max)}"
        case OverGuarantee():
            guaranteed = "everything" if cause.guaranteed == UNLIMITED else gpus(cause.guaranteed)
            return f"it cannot be taken back, and queue {cause.queue} is guaranteed {guaranteed} for such runs"
        case NeverFits():
            return f"others go first until a node that fits is up: {cause.lack}"
        case NotYet():
            return _not_yet(cause)


def _not_yet(cause: NotYet) -> str:
    if not cause.ahead:
        return "others go first"
    whose = f"{cause.user}'s run ahead of it" if cause.user else cause.ahead
    return f"what is free is kept for {whose}, which would start later"


def _no_room(cause: NoRoom) -> str:
    each = gpus(cause.gpus_per_rank)
    needs = each if cause.ranks == 1 else f"{cause.ranks} × {each} together"
    scattered = " (not together)" if cause.free >= cause.ranks * cause.gpus_per_rank else ""
    are = "is" if cause.free == GPU else "are"
    kept = f", {cause.kept / GPU:g} {'is' if cause.kept == GPU else 'are'} kept for other cells" if cause.kept else ""
    return f"needs {needs}, {cause.free / GPU:g} of {cause.total / GPU:g} {are} free{scattered}{kept}"


def gpus(thousandths: int) -> str:
    """``2000 → '2 GPUs'``."""
    return f"{thousandths / GPU:g} GPU{'' if thousandths == GPU else 's'}"


def ordinal(place: int) -> str:
    """``3 → '3rd'``."""
    suffix = {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place}{'th' if place % 100 in (11, 12, 13) else suffix}"
