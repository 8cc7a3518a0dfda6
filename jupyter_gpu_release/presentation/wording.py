"""The words for states and people, the same in cells, lines, rows, tables and the sidebar; sentences made of them.

``labextension/src/labels.ts`` is the twin; ``tests/presentation/words.json`` holds both to it. Programs get the states
themselves (``protocol/states.py``).
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from typing import TYPE_CHECKING

from ..protocol.environments import LACKS, Origin
from ..protocol.runs import KeptLease, PersistWait, Reason
from ..protocol.states import RunState
from ..units import format_bytes, format_count, format_gpu_hours, format_seconds, round_number, sum_gpus
from .plain_text import without_backticks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..protocol.environments import Plan, PlannedPackage
    from ..protocol.rest import EstimateDocument, GpuRow, RunError, RunRow, SoonerAsk, StatusDocument, Usage
    from ..protocol.runs import Attempt, Run, RunView

#: of an environment, in a receipt, and in the reason why a run waits
_MOST_PACKAGES, _MOST_WAITED_FOR = 6, 4
RUN_WORDS = {
    "submitted": "queued",
    "queued": "queued",
    "starting": "starting",
    "running": "running",
    "yielding": "being preempted",
    "releasing": "releasing",
    "persisting": "persisting",
    "succeeded": "succeeded",
    "failed": "failed",
    "cancelled": "cancelled",
    "lost": "lost",
}
GPU_WORDS = {
    "free": "free",
    "running": "running",
    "warm": "warm",
    "idle-kernel": "idle kernel",
    "unattributed": "unattributed",
    "drained": "drained",
}


#: reasons that name somebody. ``who``: ``you`` or a name; ``whose``: that one's run
_REASONS = {
    "cancelled": "cancelled by {who}",
    "pruned": "pruned: other trials do better",
    "asked": "asked by {who}",
    "behind": "{place}: what is free is kept for {whose} ahead of it, which would start later",
    "reclaim": "{whose} takes back what its queue is due",
    "preempt": "{whose} has the higher priority in this queue",
    "consolidate": "{whose} fits when it is moved",
}
#: what follows where there is such a fact
_FURTHER = {"hosts": " to {hosts}", "results": " before its results ({results}) were durable: they are given up"}


def run_word(state: str, code: str = "") -> str:
    """The word for a run's state; a state of a newer gateway is its own word. ``code``: of the run's cause."""
    is_pruned = code == "pruned" and state == "cancelled"
    return code if is_pruned else RUN_WORDS.get(state, state)


def word_of(run: Run) -> str:
    """The word for the state of a run."""
    return run_word(run.state, run.cause.code if run.cause is not None else "")


def state_words(run: Run) -> str:
    """``lost: its node died``; a reason that names the state stands alone: ``cancelled by you``."""
    if run.cause is not None and run.cause.code == word_of(run):
        return run.reason
    return ": ".join(filter(None, (word_of(run), run.reason)))


def cancel_words(before: RunRow, after: RunRow) -> str:
    """Say what a cancellation does to a run; ``after``: what the gateway has answered."""
    if RunState.of(before.state).is_terminal:
        return f"{before.run} is over already: {run_word(before.state)}."
    if before.state == RunState.PERSISTING.word:
        return f"{before.run}: {after.reason or 'its results are being given up'}."
    if after.granted_at is None:
        return f"{before.run} is taken out of the queue: it had not begun."
    return f"{before.run} is being ended: its cell is interrupted, what it made so far comes back."


def gpu_word(state: str) -> str:
    """The word for a GPU's state."""
    return GPU_WORDS.get(state, state)


def place_words(place: int | None) -> str:
    """A place in the queue: ``place 2``; empty: there is none."""
    return f"place {place}" if place else ""


def person(user: str, me: str) -> str:
    """The name of somebody, for ``me``."""
    return "you" if user and user == me else user


def reason_words(reason: str | Reason, me: str = "") -> str:
    """A reason as it is told to ``me``: what they did themselves is ``by you``, their run another one of theirs."""
    if isinstance(reason, str):
        return reason
    user = reason.facts.get("user", "")
    whose = "another run of yours" if user and user == me else f"{user}'s run" if user else reason.facts.get("run", "")
    words = _REASONS[reason.code] + "".join(more for fact, more in _FURTHER.items() if fact in reason.facts)
    return words.format_map(defaultdict(str, reason.facts, who=person(user, me), whose=whose))


def reason_for(run: Run, me: str) -> str:
    """Its reason as it is told to ``me``. Reasons of a newer version are as that has worded them."""
    return run.reason if run.cause is None or run.cause.code not in _REASONS else reason_words(run.cause, me)


def kept_words(kept: KeptLease) -> str:
    """``kept for 30 s (until 14:03:10)``."""
    if kept.auto:
        return f"kept until somebody waits, at most {format_seconds(kept.for_s)} (until {format_clock(kept.until)})"
    most = ", the longest here" if kept.capped else ""
    return f"kept for {format_seconds(kept.for_s)}{most} (until {format_clock(kept.until)})"


def gpu_state(gpu: GpuRow, now_s: float) -> str:
    """A GPU's state with its countdown: ``warm, 24 s left``."""
    if gpu.warm_until is None:
        return gpu_word(gpu.state)
    left_s = round_number(gpu.warm_until - now_s)
    left_s -= left_s % 60 if left_s >= 60 else 0
    return f"{gpu_word(gpu.state)}, {f'{format_seconds(left_s)} left' if left_s >= 1 else 'ending'}"


def format_drained(status: StatusDocument) -> str:
    """GPUs that are nobody's and get no runs, for the line that counts; empty where there are none."""
    drained = sum(gpu.state == "drained" for node in status.nodes for gpu in node.gpus)
    return f", {drained} drained" if drained else ""


def held_by(status: StatusDocument) -> list[str]:
    """Holders of the GPUs that others wait for: ``you hold 1 GPU for 3 min``, by how many they hold."""
    held: dict[str, list[tuple[float, float]]] = {}
    for row in status.runs:
        if RunState.of(row.state).holds_gpu and row.gpus:
            held.setdefault(row.user, []).append((row.gpus, row.held_s if row.since_s is None else row.since_s))
    counts = {user: sum_gpus(gpus for gpus, _ in runs) for user, runs in held.items()}
    by_count = sorted(counts.items(), key=lambda entry: -entry[1])
    return [_holds(user, gpus, max(seconds for _, seconds in held[user]), status.user) for user, gpus in by_count]


def usage_words(usage: Usage) -> str:
    """GPU-hours of an account: ``2.3 h held, 1.1 h used, 5 h saved (others used 2 h)``."""
    held, used, saved = map(format_gpu_hours, (usage.held_s, usage.used_s, usage.saved_s))
    others = f" (others used {format_gpu_hours(usage.others_s)})" if usage.others_s else ""
    return f"{held} held, {used} used, {saved} saved{others}"


def stored_words(stored_bytes: int | None) -> str:
    """The bytes that runs of who asks take of the store; empty where that is nothing, or not known."""
    return f"your runs take {format_bytes(stored_bytes)} of the store" if stored_bytes else ""


def describe_pause(past: Attempt, me: str) -> str:
    """Why a run goes on later: ``preempted for ann at epoch 37``, ``node gpu3 is gone: again from epoch 37``."""
    if past.status == "preempted" and past.was_saved and not past.lost_s:
        whose = "another run of yours" if past.user == me else past.user
        why = f" ({past.reason})" if past.reason and not past.user else ""
        return f"preempted{f' for {whose}' if whose else ''} at {past.place}{why}"
    why = "it did not stop in time" if past.status == "preempted" else past.reason or "it was lost"
    return f"{why}: again from {past.place or 'the beginning'}"


def describe_lost(granted_at: float | None, *, is_accepted: bool = True) -> str:
    """The fate of a run whose gateway cannot be reached; ``granted_at``: when it got its GPUs, if it did."""
    if not is_accepted:
        return "the run is submitted when it is back"
    return "the run keeps its place in the queue" if granted_at is None else "the run goes on if the cluster does"


def describe_pauses(view: RunView) -> list[str]:
    """For each attempt before the last: why it ended, how long the next was waited for, what was done again, and on
    which GPU where that is of another type.
    """
    nexts = [*((past.granted_at, past.gpu_name) for past in view.attempts[1:]), (view.granted_at, view.gpu_name)]
    said = []
    for past, (again_at, gpu_name) in zip(view.attempts, nexts, strict=False):
        other = f", went on with {gpu_name}" if gpu_name and past.gpu_name and gpu_name != past.gpu_name else ""
        waited = f", waited {format_seconds(max(0.0, again_at - past.gone_at))}" if again_at is not None else ""
        lost = f", {format_seconds(past.lost_s)} of work done again" if past.lost_s else ""
        said.append(f"{describe_pause(past, view.user)}{waited}{lost}{other}")
    return said


def describe_environment(plan: Plan, seconds: float) -> str:
    """Say what was built for a run: ``packages that the cluster lacks: einops 0.8.1 · ready in 1.9 s``."""
    if not seconds:
        return ""
    if plan.interpreter:
        count = format_count(len(plan.packages), "package")
        return f"environment for Python {plan.python}: {count} · ready in {format_seconds(seconds)}"
    lacks = all(each.reason == LACKS for each in plan.packages)
    named = ", ".join(map(_package_words, plan.packages[:_MOST_PACKAGES]))
    more = len(plan.packages) - _MOST_PACKAGES
    rest = f" and {more} more" if more > 0 else ""
    what = "that the cluster lacks" if lacks else "that the cluster lacks or has otherwise"
    return f"packages {what}: {named}{rest} · ready in {format_seconds(seconds)}"


def describe_building(plan: Plan, fetched: int | None) -> str:
    """Say why a run waits whose environment is built. ``fetched``: packages that the slowest node has, if known."""
    count = format_count(len(plan.packages), "package")
    done = f"{fetched} of {count}" if fetched is not None else count
    names = ", ".join(f"{each.name} {each.version}" for each in plan.packages[:_MOST_WAITED_FOR])
    more = " …" if len(plan.packages) > _MOST_WAITED_FOR else ""
    return f"no GPU is held yet: building its environment: {done} ({names}{more})"


def _package_words(package: PlannedPackage) -> str:
    if package.origin is Origin.EDITABLE:
        return f"{package.name} (editable, {format_count(package.files, 'file')})"
    return f"{package.name} {package.version}"


def holders_of_view(view: RunView, now_s: float) -> str:
    """Those who hold what a run waits for, in one line: ``ann holds 3 GPUs for 12 min, and 2 others``."""
    holders = [] if view.start is None else view.start.holders
    said = [_holds(each.user, each.gpus, _settled(now_s - each.since), view.user) for each in holders[:_SHOWN_HOLDERS]]
    more = len(holders) - len(said)
    return ", ".join(said) + (f", and {format_count(more, 'other')}" if more > 0 else "")


def _holds(user: str, gpus: float, seconds: float, me: str) -> str:
    who = person(user, me)
    since = f" for {format_seconds(seconds)}" if seconds else ""
    return f"{who} {'hold' if who == 'you' else 'holds'} {format_count(gpus, 'GPU')}{since}"


def _settled(seconds: float) -> float:
    """In steps, as a line that differs each time it is looked at never comes to rest: 10 s, then minutes."""
    return max(0.0, seconds) // 10 * 10 if seconds < 60 else seconds // 60 * 60


_SHOWN_HOLDERS = 2
_TITLE_LETTERS = 80


#: a text that stands alone, such as a docstring
_LONE_TEXT = re.compile(r"^(\"{3}|'{3}).*?\1", re.DOTALL | re.MULTILINE)
#: ``model.fit(X, y)``, ``loss = train(model)``; not ``model.train()``, a switch
_TRAINS = re.compile(r"(?!def |class |async )[^#]*?(?:\b|_)(?:fit|train)\w*\((?!\s*\))")
#: ``results = []``, ``epochs = 3``: what comes before the work
_PREPARES = re.compile(
    r"[\w.]+ *= *(\[\]|\{\}|\(\)|(list|dict|set)\(\)|[-+\d][\w.+-]*|None|True|False|'[^']*'|\"[^\"]*\") *(#.*)?$"
)


def run_title(name: str, code: str, call: str = "") -> str:
    """A run's name, else the comment that its code begins with, the call that trains, or the first line that does.

    ``call``: of a launched function; it stands for the function's name, not for one that somebody chose.
    """
    if name and call.startswith(f"{name}("):
        return call
    title = name or _title_of([line.strip() for line in _LONE_TEXT.sub("", code).splitlines()])
    return title if name or len(title) <= _TITLE_LETTERS else f"{title[: _TITLE_LETTERS - 1]}…"


def _title_of(lines: list[str]) -> str:
    said = [line for line in lines if line and not line.startswith("%")]
    if said and said[0].startswith("#") and (comment := said[0].lstrip("#% ").removeprefix("@title").strip()):
        return comment
    steps = [line for line in said if not line.startswith("#")]
    trains = next((line for line in steps if _TRAINS.match(line)), "")
    others = [line for line in steps if not line.startswith(("import ", "from "))] or steps
    return trains or next((line for line in others if not _PREPARES.match(line)), "".join(others[:1]))


def error_words(error: RunError) -> str:
    """An exception in a line; only our own mark code in what they say."""
    said = without_backticks(error.evalue) if error.code else error.evalue
    return ": ".join(filter(None, (error.ename, said)))


def name_of(row: RunRow) -> str:
    """The words by which a list names a run: its name, with a function's arguments, else its title, else its file."""
    is_call = row.title.startswith(f"{row.name}(")
    return row.title if is_call else row.name or row.title or row.notebook.rpartition("/")[2]


def run_origin(program: str, notebook: str, number: int) -> str:
    """``digits.ipynb [3]``, ``papermill digits.ipynb [3]``, ``script fit.py``, ``terminal [3]``."""
    file = notebook.rsplit("/", 1)[-1]
    return " ".join(filter(None, [program, file, f"[{number}]" if number and program != "script" else ""]))


_HALF_A_DAY_S = 12 * 3600


def format_clock(at_s: float) -> str:
    """``14:03:10 CET``, in local time, which is said: the reader's may be another. With the day if it is not near."""
    day = "" if abs(at_s - time.time()) < _HALF_A_DAY_S else "%Y-%m-%d "
    return time.strftime(f"{day}%H:%M:%S %Z", time.localtime(at_s))


def moments_of(view: RunView) -> tuple[float, ...]:
    """The moments (unix seconds) that a run's line and receipt tell as times."""
    until = None if view.kept is None else view.kept.until
    next_try = None if view.waits_for is None else next_try_of(view.waits_for)
    return tuple(at_s for at_s in (until, next_try) if at_s is not None)


_KEPT = {
    "memory": "kept in the node's memory",
    "disk": "kept on the node's own disk",
    "gone": "kept by a node that is away",
}


def describe_wait(wait: PersistWait) -> str:
    """One line: path, bytes needed, bytes free, why not yet, where they are kept, when the next try is.

    Examples
    --------
    ``1 GiB of results cannot be written to /store/runs/…/values.graph (No space left on device, 8 MiB free); kept in
    the node's memory, next try at 14:03:12``
    """
    return _with_next_try(wait_words(wait), next_try_of(wait))


def wait_of_row(row: RunRow) -> str:
    """The same from a list, in the reader's zone."""
    return _with_next_try(row.waits_for, row.next_try_at)


def next_try_of(wait: PersistWait) -> float | None:
    """When the next try begins, if one failed and another is to come."""
    return wait.next_try_at if wait.reason and wait.kept != "gone" else None


def _with_next_try(words: str, at_s: float | None) -> str:
    return words if at_s is None else f"{words}, next try at {format_clock(at_s)}"


def wait_words(wait: PersistWait) -> str:
    """The line without its time: who reads it may be in another zone than who writes it."""
    size = format_bytes(wait.bytes)
    if wait.kept == "gone":
        return f"{size} of results for {wait.path} are {_KEPT['gone']} ({wait.reason})"
    if not wait.reason:
        return f"writing {size} to {wait.path}"
    free = "" if wait.free_bytes is None else f", {format_bytes(wait.free_bytes)} free"
    return f"{size} of results cannot be written to {wait.path} ({wait.reason}{free}); {_KEPT.get(wait.kept, '')}"


#: bounds that are nearer than this part of the estimate say nothing
_CLOSE = 0.25


def about(seconds: float) -> str:
    """``237 → 'about 4 min'``: as exact as an estimate is; halves go up, as in the sidebar."""
    if seconds < 60:
        return f"about {max(1, int(seconds + 0.5) if seconds < 10 else 5 * int(seconds / 5 + 0.5))} s"
    if seconds < 90 * 60:
        return f"about {int(seconds / 60 + 0.5)} min"
    if seconds < 36 * 3600:
        return f"about {int(seconds / 3600 + 0.5)} h"
    return f"about {int(seconds / 86400 + 0.5)} days"


def starts_in(seconds: float) -> str:
    """``'now'``, ``'in about 4 min'``."""
    return "now" if seconds < 1 else f"in {about(seconds)}"


def describe_start(
    in_s: float | None, at_least_s: float | None, at_most_s: float | None, after: str = "", me: str = ""
) -> str:
    """``starts in about 4 min (2 to 9 min), when ann's run has ended``; empty where nothing is known.

    ``after``: the user whose run ends right before; ``me``: who reads this.
    """
    if in_s is None:
        if at_most_s is not None:
            return f"starts within {about(at_most_s)}"
        return "" if not at_least_s else f"starts in {about(at_least_s)} at the earliest"
    whose = "your own run" if after and after == me else f"{after}'s run"
    if in_s < 1:  # it waits: those before it are due to end, or have taken longer than was expected
        most = f"within {about(at_most_s)}" if at_most_s is not None and at_most_s >= 1 else ""
        if after:
            return f"starts as soon as {whose} has ended{f', {most}' if most else ''}"
        return f"starts {most or 'any moment'}"
    then = f", when {whose} has ended" if after else ""
    return f"starts in {about(in_s)}{_bounds(in_s, at_least_s, at_most_s)}{then}"


def _bounds(in_s: float, at_least_s: float | None, at_most_s: float | None) -> str:
    is_early = at_least_s is not None and at_least_s < in_s * (1 - _CLOSE)
    is_late = at_most_s is None or at_most_s > in_s * (1 + _CLOSE)
    if not (is_early or is_late):
        return ""
    least = _bare(in_s if at_least_s is None else at_least_s)
    if at_most_s is None:
        return f" ({least} at the earliest, or much later)"
    most = _bare(at_most_s)
    number, _, unit = least.partition(" ")
    return f" ({number if most.endswith(f' {unit}') else least} to {most})"


def _bare(seconds: float) -> str:
    return about(seconds).removeprefix("about ")


def start_of_view(view: RunView, now_s: float) -> str:
    """The sentence for the line below a cell."""
    start = view.start
    if start is None:
        return ""
    left = [None if at is None else max(0.0, at - now_s) for at in (start.at, start.earliest, start.latest)]
    return describe_start(left[0], left[1], left[2], start.after, view.user)


def start_of_row(row: RunRow, me: str) -> str:
    """The sentence for a list of those who wait."""
    return describe_start(row.start_estimate_s, row.start_at_least_s, row.start_at_most_s, row.start_after, me)


def describe_estimate(estimate: EstimateDocument, me: str) -> str:
    """When a run would start that is not sent yet, what would be sooner, and the price."""
    price = priced_words(estimate)
    if estimate.starts_in_s is not None and estimate.starts_in_s < 1:
        return f"it would start at once{price}"
    when = describe_start(estimate.starts_in_s, estimate.at_least_s, estimate.at_most_s, estimate.after, me)
    starts = f"it would start{when.removeprefix('starts')}" if when else "nobody knows when it would start"
    sooner = describe_sooner(estimate.sooner)
    return f"{estimate.reason}; {starts}{f'; sooner: {sooner}' if sooner else ''}{price}"


def priced_words(estimate: EstimateDocument) -> str:
    """``; price: 5 EUR an hour``, to stand behind another sentence; empty where there is none."""
    return f"; price: {estimate.price}" if estimate.price else ""


def describe_sooner(asks: Iterable[SoonerAsk]) -> str:
    """``--gpus 1 (now), --gpu-type a100 (in about 4 min)``."""
    return ", ".join(f"{ask.change} ({starts_in(ask.starts_in_s)})" for ask in asks)
