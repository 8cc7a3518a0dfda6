"""Expected starts of the runs that wait, and of runs that are only asked about: worked out in a thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

import msgspec

from ...client.cluster_facts import short_type
from ...errors import ImpossibleAskError, OptionError
from ...host.background import BackgroundWork
from ...presentation.wording import reason_words
from ...protocol.rest import DOCUMENT_VERSION, EstimateDocument, EstimateQuestion, SoonerAsk
from ...protocol.runs import Holder, ResourceAsk, RunRequest, RunView, StartEstimate
from ...scheduling.decisions import Wait
from ...scheduling.queues.admission import Admission, admit
from ...scheduling.queues.queues_file import QueuesFile
from ...scheduling.reasons import explain
from ...scheduling.resource_requests import reshaped, to_run
from ...scheduling.run_times import Span
from ...scheduling.start_estimates.alternatives import other_asks
from ...scheduling.start_estimates.estimate import Alternative, Estimate, estimates, joining, sooner, standing
from ...scheduling.start_estimates.expected_run_times import ExpectedRunTimes
from ...scheduling.start_estimates.nearest import possible_ask
from ...scheduling.state import ClusterSnapshot
from ...scheduling.workload import Node, RankState, Run
from ...settings.built_in import BUILT_IN
from ...units import sum_gpus
from ..queues_file_watch import QueueRules
from ..runs.live_runs import RunTable
from ..runs.record import RunRecord
from .estimate_questions import EstimateQuestions
from .gangs import check_gang
from .parts import part_of_user
from .run_queue import RunQueue

#: waiting runs that are looked at; who is behind so many others is told no time
_MOST_WAITING: int = BUILT_IN["estimated_runs"].default
#: after a change, and between two times of working it out at least: also so many times as long as that takes
_SOON_S, _PAUSE_S, _PAUSES = 0.2, 1.0, 50.0
#: an estimate is told anew when it has changed by so much
_WORTH_TELLING, _WORTH_TELLING_S = 0.1, 5.0
_ASKED = "asked"


class StartEstimates:
    """Tells waiting runs when they will start. Methods are called on the gateway's loop and never block it for long."""

    def __init__(self, runs: RunTable, queue: RunQueue, rules: QueueRules) -> None:
        self._runs = runs
        self._queue = queue
        self._rules = rules
        self._spawn = BackgroundWork().spawn
        self._due: asyncio.TimerHandle | None = None
        self._rests_until_s = 0.0
        self._is_telling = self._is_working = False
        #: something changed meanwhile
        self._is_stale = False
        self._questions = EstimateQuestions()
        #: counted: what was answered before one is no answer after it
        self._changes = 0

    # --- those that wait

    def note_change(self) -> None:
        """Something has changed that may bring starts nearer, or put them off."""
        if self._is_telling:  # it is what this tells
            return
        self._changes += 1
        if self._is_working:
            self._is_stale = True
        elif self._due is None and self._queue.has_waiting:
            loop = asyncio.get_running_loop()
            self._due = loop.call_later(max(_SOON_S, self._rests_until_s - time.monotonic()), self._begin)

    def _begin(self) -> None:
        self._due = None
        self._is_working, self._is_stale = True, False
        self._spawn(self._work_out())

    async def _work_out(self) -> None:
        began_s, now_s = time.monotonic(), time.time()
        try:
            records = self._queue.waiting()[:_MOST_WAITING]
            snapshot = self._snapshot({record.run for record in records})
            expected = self._expected_run_times(snapshot, now_s)
            found = await self._questions.in_thread(estimates, snapshot, expected)
        finally:
            self._is_working = False
            took_s = time.monotonic() - began_s
            self._rests_until_s = time.monotonic() + max(_PAUSE_S, _PAUSES * took_s)
        self._tell(records, found, now_s)
        if self._is_stale:
            self.note_change()

    def _tell(self, records: list[RunRecord], found: dict[str, Estimate], now_s: float) -> None:
        self._is_telling = True
        holders = _Holders(self._runs.live())
        try:
            for record in records:
                estimate, held = found.get(record.run), holders.of_what(record.request.ask)
                start = None if estimate is None else self._estimate(estimate, held, now_s)
                if record.run in self._queue and _is_news(record.view.start, start, now_s):
                    self._runs.expect_start(record, start)
        finally:
            self._is_telling = False

    def _estimate(self, estimate: Estimate, holders: list[Holder], now_s: float) -> StartEstimate | None:
        times = (estimate.starts_in_s, estimate.at_least_s, estimate.at_most_s)
        if times[0] is None and times[2] is None:
            return StartEstimate(holders=holders) if holders else None
        at, earliest, latest = (None if in_s is None else now_s + in_s for in_s in times)
        return StartEstimate(at, earliest, latest, self._user_of(estimate.after), holders)

    def _user_of(self, run: str) -> str:
        record = self._runs.get(run)
        return "" if record is None else record.view.user

    # --- those that are asked about

    async def estimate_of(self, user: str, question: EstimateQuestion) -> EstimateDocument:
        """When a run would start that asks for this, what would start sooner, and its price.

        Raises :class:`OptionError` and :class:`ImpossibleAskError` as its submission would.
        """
        check_gang(question.ask)
        file, nodes = self._rules.file, self._queue.inventory.snapshot().nodes
        asked = part_of_user(file, user, _request(question), nodes)
        question = msgspec.structs.replace(question, ask=asked.ask)
        admitted = admit(file, user, asked)
        key = msgspec.msgpack.encode((self._changes, question))
        found = await self._questions.answer(user, key, lambda: self._look_ahead(user, question, admitted))
        price = file.prices.of_ask(asked.ask.gpus, asked.ask.gpu_type or "", admitted.timeout_s)
        return msgspec.structs.replace(found, price=price)

    async def _look_ahead(self, user: str, question: EstimateQuestion, admitted: Admission) -> EstimateDocument:
        now_s, waiting = time.time(), self._queue.waiting()
        run = to_run(
            _ASKED,
            question.ask,
            queue=admitted.queue,
            user=user,
            priority=admitted.priority,
            submitted_at=now_s,
            campaign=_ASKED,
            limit_s=admitted.timeout_s,
            restartable=admitted.restartable,
        )
        snapshot = self._snapshot({record.run for record in waiting[:_MOST_WAITING]})
        ask = possible_ask(question.ask, run, snapshot.nodes, gpu_types(snapshot.nodes))
        run, task = reshaped(run, ask), question.name or f"{question.notebook}#{question.cell}" * bool(question.cell)
        length, rank = self._queue.inventory.run_times.of_new(run, ask.gpus, ask.gpu_type or "", task, now_s)
        if len(waiting) > _MOST_WAITING:  # the place only: that is as dear as a submission
            placed = [record.run for record in waiting if record.view.queue == run.queue and record.view.position]
            wait = joining(self._queue.inventory.scheduler.state, run, length, rank, placed, now_s)
            return self._document(admitted, Estimate(run.run, 0.0 if wait is None else None), wait)
        snapshot = replace(snapshot, runs=(*snapshot.runs, run))
        expected = self._expected_run_times(snapshot, now_s)
        expected = replace(
            expected, lengths={**expected.lengths, _ASKED: length}, ranks={**expected.ranks, _ASKED: rank}
        )
        case = _Case(snapshot, expected, run, ask, _elsewhere(self._rules.file, run, _request(question)))
        return self._document(admitted, *await self._questions.in_thread(case.look))

    async def estimate_of_run(self, record: RunRecord) -> EstimateDocument:
        """The same for a run that waits."""
        key = msgspec.msgpack.encode((self._changes, record.run))
        return await self._questions.answer(record.view.user, key, lambda: self._look_ahead_of(record))

    async def _look_ahead_of(self, record: RunRecord) -> EstimateDocument:
        view, request, waiting = record.view, record.request, self._queue.waiting()
        snapshot = self._snapshot({each.run for each in waiting[:_MOST_WAITING]})
        run = next((run for run in snapshot.runs if run.run == record.run and not _has_begun(run)), None)
        admitted = Admission(view.queue, view.priority_value, request.timeout_s, request.keep_s, view.restartable)
        if run is None:  # too many are ahead of it, or it has begun
            place = view.position or 0 if record.run in self._queue else 0
            return EstimateDocument(DOCUMENT_VERSION, view.queue, view.priority_value, place, view.reason)
        expected = self._expected_run_times(snapshot, time.time())
        elsewhere = _elsewhere(self._rules.file, run, request)
        case = _Case(snapshot, expected, run, request.ask, elsewhere, has_all=len(waiting) <= _MOST_WAITING)
        document = self._document(admitted, *await self._questions.in_thread(case.look))
        if view.position is None:
            return document
        return msgspec.structs.replace(document, position=view.position, reason=view.reason)

    def _document(
        self, admitted: Admission, estimate: Estimate, wait: Wait | None, others: Iterable[Alternative] = ()
    ) -> EstimateDocument:
        return EstimateDocument(
            DOCUMENT_VERSION,
            admitted.queue,
            admitted.priority,
            0 if wait is None else wait.position,
            "" if wait is None else reason_words(explain(wait)),
            estimate.starts_in_s,
            estimate.at_least_s,
            estimate.at_most_s,
            self._user_of(estimate.after),
            [SoonerAsk(each.change, each.starts_in_s) for each in others if each.starts_in_s is not None],
        )

    # --- both

    def _snapshot(self, waiting: set[str]) -> ClusterSnapshot:
        """All that is held, and these of the runs that wait."""
        snapshot = self._queue.inventory.snapshot()
        return replace(snapshot, runs=tuple(run for run in snapshot.runs if run.run in waiting or _has_begun(run)))

    def _expected_run_times(self, snapshot: ClusterSnapshot, now_s: float) -> ExpectedRunTimes:
        run_times, remaining, lengths = self._queue.inventory.run_times, dict[str, Span](), dict[str, Span]()
        for run in snapshot.runs:
            if not _has_begun(run):
                lengths[run.run] = run_times.length(run, now_s)
            elif run.started_at is not None:
                remaining[run.run] = run_times.rest(run, now_s)
        ranks = {
            run: run_times.rank(each, now_s) for run, each in ((r.run, r) for r in snapshot.runs) if run in lengths
        }
        return ExpectedRunTimes(now_s, remaining, lengths, ranks)


class _Holders:
    """Those who hold GPUs now; which of them a run waits for is a matter of the GPU type that it asks for."""

    def __init__(self, records: Iterable[RunRecord]) -> None:
        self._holding = [r.view for r in records if r.view.gpus and r.view.granted_at and r.state.holds_gpu]
        self._known: dict[str, list[Holder]] = {}

    def of_what(self, ask: ResourceAsk) -> list[Holder]:
        """The holders of what ``ask`` wants, most GPUs first; none for a CPU stage."""
        if not ask.gpus:
            return []
        wanted = ask.gpu_type or ""
        if wanted not in self._known:
            self._known[wanted] = self._of_type(wanted)
        return self._known[wanted]

    def _of_type(self, wanted: str) -> list[Holder]:
        held: dict[str, list[RunView]] = {}
        for view in self._holding:
            if wanted.lower() in view.gpu_name.lower() or view.simulated:
                held.setdefault(view.user, []).append(view)
        found = [
            Holder(user, sum_gpus(view.gpus for view in views), min(view.granted_at or 0.0 for view in views))
            for user, views in held.items()
        ]
        return sorted(found, key=lambda holder: (-holder.gpus, holder.since))


@dataclass(frozen=True)
class _Case:
    """All that a thread needs to answer for one run."""

    snapshot: ClusterSnapshot
    expected: ExpectedRunTimes
    run: Run
    ask: ResourceAsk
    #: the run as other queues would admit it
    elsewhere: list[Run]
    #: all that wait are in the snapshot, so it can be told what other asks would bring
    has_all: bool = True

    def look(self) -> tuple[Estimate, Wait | None, list[Alternative]]:
        """Its estimate, its place and reason, and what would start sooner."""
        name = self.run.run
        estimate = estimates(self.snapshot, self.expected, (name,)).get(name, Estimate(name))
        wait = standing(self.snapshot, self.expected, name)
        if not self.has_all or (estimate.starts_in_s is not None and estimate.starts_in_s < 1):
            return estimate, wait, []
        types = gpu_types(self.snapshot.nodes)
        families = other_asks(self.ask, self.run, gpu_types=types, elsewhere=self.elsewhere)
        return estimate, wait, sooner(self.snapshot, self.expected, self.run, families)


def gpu_types(nodes: Iterable[Node]) -> list[str]:
    """Types of GPU as one writes them behind ``--gpu-type``."""
    return sorted({short_type(node.gpu_type) for node in nodes if node.gpu_type})


def _request(asked: EstimateQuestion) -> RunRequest:
    return RunRequest(
        "",
        "",
        asked.ask,
        b"",
        queue=asked.queue,
        priority=asked.priority,
        timeout_s=asked.timeout_s,
        keep_s=asked.keep_s,
        keep_auto=asked.keep_auto,
        restartable=asked.restartable,
    )


def _elsewhere(file: QueuesFile, run: Run, request: RunRequest) -> list[Run]:
    """The run in each other queue that would admit its request."""
    found = []
    for queue in file.queues_of(run.user):
        if queue != run.queue:
            with suppress(OptionError, ImpossibleAskError):
                terms = admit(file, run.user, msgspec.structs.replace(request, queue=queue))
                moved = replace(run, queue=queue, priority=terms.priority, limit_s=terms.timeout_s)
                found.append(replace(moved, restartable=terms.restartable))
    return found


def _has_begun(run: Run) -> bool:
    return any(rank.state is not RankState.QUEUED for rank in run.ranks)


def _is_news(before: StartEstimate | None, now: StartEstimate | None, now_s: float) -> bool:
    """Tell if an estimate differs so much from the one that was told that it is worth a word."""
    if before is None or now is None:
        return before is not now
    pairs = ((before.at, now.at), (before.earliest, now.earliest), (before.latest, now.latest))
    is_other = (before.after, before.holders) != (now.after, now.holders)
    return is_other or any(_differ(old, new, now_s) for old, new in pairs)


def _differ(old: float | None, new: float | None, now_s: float) -> bool:
    if old is None or new is None:
        return old is not new
    return abs(new - old) > max(_WORTH_TELLING_S, _WORTH_TELLING * (new - now_s))
