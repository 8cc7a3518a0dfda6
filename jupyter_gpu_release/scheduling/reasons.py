"""Decisions in words, made from the decisions and from nothing else."""

from __future__ import annotations

from .decisions import (
    Away,
    Cause,
    Coming,
    Decision,
    ForAll,
    NeverFits,
    NoCpus,
    NodeWanted,
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
    """One sentence for whoever waits, starts or is preempted."""
    if isinstance(decision, Wait):
        return _why_it_waits(decision)
    if isinstance(decision, Yield):
        return _why_it_yields(decision)
    where = ", ".join(dict.fromkeys(node for _, node in decision.ranks))
    if decision.promised:
        return f"starts on {where} when those who yield have gone{_BY.get(decision.action, '')}"
    return f"starts on {where}"


def _why_it_waits(wait: Wait) -> str:
    if isinstance(wait.cause, NeverFits) or (
        isinstance(wait.cause, NodeWanted) and isinstance(wait.cause.lacks, NeverFits)
    ):
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
    to = ", ".join(dict.fromkeys(node for _, node in decision.moves))
    return f"{'moves to ' + to if to else 'is preempted'}: {why_preempted(decision)}"


def why_preempted(decision: Yield) -> str:
    """The cause, without what follows from it."""
    whose = f"{decision.user}'s run" if decision.user else decision.beneficiary
    return {
        "reclaim": f"{whose} takes back what its queue is due",
        "preempt": f"{whose} has the higher priority in this queue",
        "consolidate": f"{whose} fits when it is moved",
    }[decision.action]


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
            return f"queue {cause.queue} has its maximum of {gpus(cause.max, cause.gpu_type)}"
        case OverUserMax():
            return f"{cause.user or 'its user'} has the most that one user may have in {cause.queue}, {gpus(cause.max)}"
        case OverGuarantee():
            guaranteed = "everything" if cause.guaranteed == UNLIMITED else gpus(cause.guaranteed, cause.gpu_type)
            return f"it cannot be taken back, and queue {cause.queue} is guaranteed {guaranteed} for such runs"
        case NeverFits():
            return f"others go first until a node that fits is up: {cause.lack}"
        case NotYet():
            return _not_yet(cause)
        case ForAll():
            are = "is" if cause.free == GPU else "are"
            return f"waits for all {gpus(cause.gpus)}: with the {cause.free / GPU:g} that {are} free it would end later"
        case NodeWanted():
            return _node_wanted(cause)


def _node_wanted(cause: NodeWanted) -> str:
    lacks = cause.lacks.lack if isinstance(cause.lacks, NeverFits) else because(cause.lacks)
    return {
        "starting": f"waiting for a node that Ray is starting ({lacks})",
        "asked": f"{lacks}; Ray is asked for a node",
        "refused": f"{lacks}; Ray's autoscaler can start no node that fits, or no more of them",
    }[cause.answer]


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
    free = f"{cause.free / GPU:g} of {cause.total / GPU:g} {are} free{scattered}{kept}"
    return f"needs {needs}, {free}{' apart from where it was lost' if cause.is_choosy else ''}"


def gpus(thousandths: int, gpu_type: str = "") -> str:
    """``2000 → '2 GPUs'``; with a type ``2 × h100``."""
    if gpu_type:
        return f"{thousandths / GPU:g} × {gpu_type}"
    return f"{thousandths / GPU:g} GPU{'' if thousandths == GPU else 's'}"


def ordinal(place: int) -> str:
    """``3 → '3rd'``."""
    suffix = {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place}{'th' if place % 100 in (11, 12, 13) else suffix}"
