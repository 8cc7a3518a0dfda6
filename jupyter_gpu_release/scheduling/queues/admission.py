"""Admission of a run: its queue, priority and limits; every refusal says what this user may have instead."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from msgspec.structs import replace

from ...errors import ConflictError, ImpossibleAskError, OptionError
from ...protocol.runs import RunRequest
from ...settings.built_in import BUILT_IN
from ...units import format_count, format_seconds
from ..reasons import gpus
from ..workload import GPU, in_thousandths
from .gpu_types import key, named_types, type_among
from .queues_file import QueuesFile
from .tree import UNLIMITED, Queue

_LEAST_PART: int = in_thousandths(BUILT_IN["least_gpu_part"].default)


@dataclass(frozen=True)
class Admission:
    """Terms on which a run was taken in."""

    queue: str
    #: value of ``--priority``
    priority: int
    timeout_s: float | None
    keep_s: float
    restartable: bool = False


def admit(file: QueuesFile, user: str, request: RunRequest) -> Admission:
    """Find the terms of a new run.

    Without ``--timeout`` it may run as long as its queue allows, and ``--keep auto`` is cut to that as well. It is
    restartable if it asks for that, or its queue says so and it can be.

    Raises
    ------
    OptionError
        No such queue, or it is not this user's; more than the queue allows.
    ImpossibleAskError
        More GPUs than the run could ever have there.
    """
    _check_positive("--timeout", request.timeout_s)
    _check_positive("--rank-timeout", request.rank_timeout_s)
    queue = file.queue_for(user, request.queue or None)
    priority = file.priority_for(queue, request.priority)
    above = [file.tree.queues[name] for name in file.tree.paths[queue]]
    can_be = not request.ask.ps and not request.ask.evaluator
    if request.restartable is None:
        request = replace(request, restartable=can_be and file.tree.queues[queue].is_restartable)
    _check_gpus(file, user, queue, above, request)
    longest_s = min((each.max_timeout_s for each in above if each.max_timeout_s is not None), default=None)
    _check_time("--timeout", request.timeout_s, longest_s, queue)
    most_s = min((each.max_keep_s for each in above if each.max_keep_s is not None), default=None)
    if not request.keep_auto:
        _check_time("--keep", request.keep_s, most_s, queue)
    timeout_s = longest_s if request.timeout_s is None else request.timeout_s
    keep_s = request.keep_s if most_s is None else min(request.keep_s, most_s)
    return Admission(queue, priority, timeout_s, keep_s, bool(request.restartable))


def check_count(file: QueuesFile, queue: str, own: Collection[str]) -> None:
    """Refuse a run whose user has as many in the queue, or below one above it, as one user may have.

    ``own``: the queues of the user's runs that are not over.
    """
    for above in (file.tree.queues[name] for name in file.tree.paths[queue]):
        count = sum(above.name in file.tree.paths.get(other, ()) for other in own)
        if above.max_runs_per_user is not None and count >= above.max_runs_per_user:
            raise ConflictError(
                f"you have {format_count(count, 'run')} in queue {above.name}, the most that one user may have there",
                hint="wait until one is over, or cancel one",
            )


def check_moved(file: QueuesFile, user: str, request: RunRequest, queue: str) -> None:
    """Refuse, as :func:`admit` would, a run that waits and goes to another queue because its own is gone.

    Its priority is cut by whoever moves it, and its limits of time stay those that it was taken in with.
    """
    allowed = str(file.ceiling(queue))
    admit(file, user, replace(request, queue=queue, priority=allowed, timeout_s=None, rank_timeout_s=None, keep_s=0.0))


def _check_positive(option: str, asked_s: float | None) -> None:
    """Refuse 0, which nodes would take for no limit at all."""
    if asked_s is not None and asked_s <= 0:
        raise OptionError(f"{option} 0: a run needs time", hint=f"leave {option} out, or write {option} 10m")


def _check_time(option: str, asked_s: float | None, most_s: float | None, queue: str) -> None:
    if asked_s is not None and most_s is not None and asked_s > most_s:
        most = format_seconds(most_s)
        raise OptionError(
            f"{option} {format_seconds(asked_s)}: queue {queue} allows at most {most}",
            hint=f"write {option} {most.replace(' min', 'm').replace(' ', '')}" if most_s else f"leave {option} out",
        )


def _check_gpus(file: QueuesFile, user: str, queue: str, above: list[Queue], request: RunRequest) -> None:
    """Refuse what no end of other runs would make room for; of a gang that may begin with fewer GPUs these count."""
    ask, is_fixed = request.ask, not request.restartable
    asked, kind = ask.gpus if ask.min_gpus is None else min(ask.min_gpus, ask.gpus), ask.gpu_type or ""
    limits = list(_limits(file, above, kind, is_fixed=is_fixed))
    wanted = in_thousandths(asked)
    most, why = min(limits, default=(wanted, ""), key=lambda limit: limit[0])
    if wanted <= most:
        return
    ways = [f"ask for --gpus {_largest(most)}" if most >= _LEAST_PART else "ask for --gpus 0 (a CPU stage)"]
    if is_fixed and wanted <= most_gpus(file, queue, kind, is_fixed=False):
        ways.append("give the cell --restartable")
    others = [name for name in file.queues_of(user) if name != queue]
    others = [name for name in others if wanted <= most_gpus(file, name, kind, is_fixed=is_fixed)]
    ways += [f"--queue {' or '.join(others)}"] if others else []
    raise ImpossibleAskError(f"asks for {gpus(wanted)}, and {why}", hint=", or ".join(ways))


def _largest(most: int) -> str:
    """Whole GPUs of so many thousandths, or a part of one."""
    return str(most // GPU) if most >= GPU else f"{most * 100 // GPU / 100:g}"


def _limits(file: QueuesFile, above: list[Queue], gpu_type: str, *, is_fixed: bool) -> Iterator[tuple[int, str]]:
    """The most that one run can have by each rule, in thousandths, and the rule in words; ``is_fixed``: it cannot be
    taken back.
    """
    is_by_type = any(queue.max_of or queue.guaranteed_of for queue in above)
    wanted = type_among(gpu_type, named_types(file.tree.queues.values())) if is_by_type else ""
    for queue in above:
        if queue.max is not None:
            yield queue.max, f"queue {queue.name} has at most {gpus(queue.max)}"
        for kind, most in queue.max_of:
            if wanted == key(kind):
                yield most, f"queue {queue.name} has at most {gpus(most, kind)}"
        if is_fixed and not file.policy.non_restartable_over_guarantee:
            own = [(most, gpus(most, kind)) for kind, most in queue.guaranteed_of if wanted == key(kind)]
            if queue.guaranteed != UNLIMITED and not own:
                own = [(queue.guaranteed, gpus(queue.guaranteed))]
            for most, words in own:
                what = f"queue {queue.name} is guaranteed {words}"
                yield most, f"{what}, more than which no run gets that cannot be taken back"
        if queue.max_gpus_per_user is not None:
            yield queue.max_gpus_per_user, f"one user has at most {gpus(queue.max_gpus_per_user)} in queue {queue.name}"


def most_gpus(file: QueuesFile, queue: str, gpu_type: str, *, is_fixed: bool) -> float:
    """The most that one run can have in a queue, in thousandths."""
    above = [file.tree.queues[name] for name in file.tree.paths[queue]]
    return min((most for most, _ in _limits(file, above, gpu_type, is_fixed=is_fixed)), default=float("inf"))
