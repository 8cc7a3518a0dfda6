"""Decisions in words, made from the decisions and from nothing else."""

from __future__ import annotations

from collections.abc import Iterable

from ..protocol.runs import Reason
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
    Preempt,
    Unready,
    Wait,
)
from .queues.tree import DEFAULT_QUEUE, UNLIMITED
from .workload import GPU


def explain(decision: Decision) -> str | Reason:
    """One sentence for a run that waits, starts or is preempted."""
    if isinstance(decision, Wait):
        return _why_it_waits(decision)
    if isinstance(decision, Preempt):
        return why_preempted(decision, [node for _, node in decision.moves])
    where = ", ".join(dict.fromkeys(node for _, node in decision.ranks))
    if decision.promised:
        return f"starts on {where} when the preempted runs have gone{_BY.get(decision.action, '')}"
    return f"starts on {where}"


def _why_it_waits(wait: Wait) -> str | Reason:
    if isinstance(wait.cause, NeverFits) or (
        isinstance(wait.cause, NodeWanted) and isinstance(wait.cause.lacks, NeverFits)
    ):
        return because(wait.cause)
    queue = "the queue" if wait.queue == DEFAULT_QUEUE else wait.queue
    place = f"{'next' if wait.position == 1 else ordinal(wait.position)} in {queue}"
    if isinstance(wait.cause, NotYet) and wait.cause.ahead:
        return Reason("behind", {"place": place, "user": wait.cause.user, "run": wait.cause.ahead})
    return f"{place}: {because(wait.cause)}"


_BY = {
    "reclaim": " (its queue is below its share)",
    "preempt": " (it has the higher priority)",
    "consolidate": " (others are moved together for it)",
    "allocate": "",
}


def why_preempted(decision: Preempt, hosts: Iterable[str]) -> Reason:
    """The cause; ``hosts``: nodes that the run is moved to, as people call them."""
    facts = {"user": decision.user, "run": decision.beneficiary, "hosts": ", ".join(dict.fromkeys(hosts))}
    return Reason(decision.action, {name: fact for name, fact in facts.items() if fact})


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
        case Unready():
            return "no GPU is held yet: its environment is built on a node with room"
        case OverMax():
            return f"queue {cause.queue} has its maximum of {gpus(cause.max, cause.gpu_type)}"
        case OverUserMax():
            return f"{cause.user or 'its user'} has the most that one user may have in {cause.queue}, {gpus(cause.max)}"
        case OverGuarantee():
            guaranteed = "everything" if cause.guaranteed == UNLIMITED else gpus(cause.guaranteed, cause.gpu_type)
            return f"it cannot be taken back, and queue {cause.queue} is guaranteed {guaranteed} for such runs"
        case NeverFits():
            return f"waits for a node that fits, others may go first: {cause.lack}"
        case NotYet():
            return "others go first"
        case ForAll():
            are = "is" if cause.free == GPU else "are"
            return f"waits for all {gpus(cause.gpus)}: with the {cause.free / GPU:g} that {are} free it would end later"
        case NodeWanted():
            return _node_wanted(cause)


def _node_wanted(cause: NodeWanted) -> str:
    if cause.says:
        return cause.says
    lacks = cause.lacks.lack if isinstance(cause.lacks, NeverFits) else because(cause.lacks)
    return {
        "starting": f"waiting for a node that Ray is starting ({lacks})",
        "asked": f"{lacks}; Ray is asked for a node",
        "refused": f"{lacks}; Ray's autoscaler can start no node that fits, or no more of them",
    }[cause.answer]


def _no_room(cause: NoRoom) -> str:
    each = gpus(cause.gpus_per_rank)
    needs = each if cause.ranks == 1 else f"{cause.ranks} × {each} together"
    scattered = " (not together)" if cause.free >= cause.ranks * cause.gpus_per_rank else ""
    are = "is" if cause.free == GPU else "are"
    kept = f", {cause.kept / GPU:g} {'is' if cause.kept == GPU else 'are'} kept for other cells" if cause.kept else ""
    free = f"{cause.free / GPU:g} of {cause.total / GPU:g} {are} free{scattered}{kept}"
    return f"needs {needs}, {free}{' apart from nodes that it avoids' if cause.is_choosy else ''}"


def gpus(thousandths: int, gpu_type: str = "") -> str:
    """``2000 → '2 GPUs'``; with a type ``2 × h100``."""
    if gpu_type:
        return f"{thousandths / GPU:g} × {gpu_type}"
    return f"{thousandths / GPU:g} GPU{'' if thousandths == GPU else 's'}"


def ordinal(place: int) -> str:
    """``3 → '3rd'``."""
    suffix = {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return f"{place}{'th' if place % 100 in (11, 12, 13) else suffix}"
