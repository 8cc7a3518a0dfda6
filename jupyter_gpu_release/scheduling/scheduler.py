"""``Scheduler``: one working state for a gateway's life, and the rules around its passes: kept GPUs, and ``--wait``.

Pure: it is told what there is and asked what is to be done; what follows of that it is told again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..units import format_seconds
from .decisions import Expire, Grant, Grow, MakeRoom, NoRoom, Preempt, Promise, Release, Start, Wait
from .nodes import Group
from .resource_requests import parts_on, slots
from .schedule import run_actions, waits
from .state import ClusterSnapshot, Job, RunTimes, State
from .warm_leases import Asker, HeldLease, KeepTerms, Recall, Warm, own_lease, recall
from .workload import Rank, RankState, Run, in_thousandths

#: actions that preempt others
_MAKE_ROOM = frozenset({"consolidate", "reclaim", "preempt"})
#: GPUs that are being given back are waited for by runs that may not wait, at most so long
_GIVING_BACK_S = 2.0


@dataclass
class Decisions:
    """Decisions of one pass; ``waits`` is empty where nobody asked for it."""

    releases: list[Release] = field(default_factory=list)
    grants: list[Grant] = field(default_factory=list)
    promises: list[Promise] = field(default_factory=list)
    #: who is preempted for whom; carried out as a whole or not at all, and told by :meth:`Scheduler.promise`
    rooms: list[MakeRoom] = field(default_factory=list)
    #: further ranks for elastic runs
    grows: list[Grow] = field(default_factory=list)
    expired: list[Expire] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    #: when the next ``--wait`` or the time of the next warm lease is over
    next_end_s: float | None = None


class Scheduler:
    """Runs that wait and leases that are held; decides who gets what next."""

    def __init__(self, snapshot: ClusterSnapshot, run_times: RunTimes | None = None) -> None:
        self.state = State(snapshot, run_times)
        self._askers: dict[str, Asker] = {}
        #: those that may not wait for ever
        self._limited: dict[str, float] = {}
        #: session → its waiting runs
        self._of_session: dict[str, dict[str, None]] = {}
        self._held: dict[str, HeldLease] = {}
        #: the names under which the state knows leases: those of their runs, where these do not wait again already
        self._keys: dict[str, str] = {}
        self._warm: dict[str, tuple[HeldLease, KeepTerms]] = {}
        #: places kept for runs; of those that are to move, but run elsewhere so far, they are taken from the nodes
        self._promised: dict[str, tuple[tuple[int, str], ...]] = {}
        #: leases of which nobody knows when they are free
        self._stuck: dict[str, HeldLease] = {}
        self._moving: dict[str, tuple[Run, tuple[tuple[int, str], ...]]] = {}

    # --- told by whoever keeps it

    def submit(self, run: Run, asker: Asker) -> None:
        """A run waits."""
        self._askers[run.run] = asker
        if asker.wait_s is not None:
            self._limited[run.run] = run.submitted_at + asker.wait_s
        if asker.session:
            self._of_session.setdefault(asker.session, {})[run.run] = None
        for lease in (
            [lease for lease, key in self._keys.items() if key == run.run] if run.run in self.state.jobs else []
        ):
            self._leave(lease)
            self._enter(self._held[lease], f"lease {lease}")
        self.state.submit(run)
        self._vacate(run.run)
        self.state.promise(run.run, self._there(self._promised.get(run.run, ())))

    def remove(self, run: str) -> None:
        """A run waits no longer (nothing happens where it did not)."""
        asker = self._askers.pop(run, None)
        if asker is None:
            return
        self._limited.pop(run, None)
        self._promised.pop(run, None)
        if asker.session:
            of_session = self._of_session[asker.session]
            del of_session[run]
            if not of_session:
                del self._of_session[asker.session]
        self.state.end(run)

    def hold(self, held: HeldLease) -> None:
        """A lease is held, on other terms than before perhaps. Nodes that are gone are left out."""
        self.drop(held.lease)
        self._held[held.lease] = held
        if held.terms is not None:
            self._warm[held.lease] = held, held.terms
        self._count_again(held)

    def drop(self, lease: str) -> None:
        """A lease is gone."""
        if self._held.pop(lease, None) is not None:
            self._warm.pop(lease, None)
            self._leave(lease)

    def make_room(self, room: MakeRoom) -> None:
        """All were asked who are to be preempted: what the run is to have is kept for it, and for those who leave only
        some ranks, or go on elsewhere, what they go on with.
        """
        self.promise(room.run, room.ranks)
        for asked in room.preempts:
            stays = self._places_of(asked.run)
            for index in asked.ranks:
                stays.pop(index, None)
            if stays or asked.moves:
                self.promise(asked.run, (stays | dict(asked.moves)).items())

    def grow(self, grow: Grow) -> None:
        """An elastic run was preempted: what it has and what it is to get are kept for it."""
        self.promise(grow.run, (self._places_of(grow.run) | dict(grow.ranks)).items())

    def _places_of(self, run: str) -> dict[int, str]:
        job = self.state.jobs.get(run)
        return {} if job is None else {index: place for index, place in enumerate(job.places) if place}

    def promise(self, run: str, ranks: Iterable[tuple[int, str]], shape: Run | None = None) -> None:
        """Keep places (index, node) for a run, whoever else waits, until it starts or :meth:`unpromise` is called.

        One that still runs is to go on there once it waits again; ``shape``: one that does neither.
        """
        self.unpromise(run)
        self._promised[run] = tuple(ranks)
        shape = self.state.jobs[run].run if run in self.state.jobs else shape
        if run in self._askers:
            self.state.promise(run, self._there(self._promised[run]))
        elif shape is not None:
            self._moving[run] = shape, self._there(self._promised[run])
            self._take_for(*self._moving[run], 1)

    def unpromise(self, run: str) -> None:
        """Keep no places for a run any more: whoever was to be preempted for it is not, or it is over."""
        self._vacate(run)
        if self._promised.pop(run, None) is not None:
            self.state.promises.pop(run, None)

    @property
    def promised(self) -> Mapping[str, tuple[tuple[int, str], ...]]:
        """Places that are kept, by run."""
        return self._promised

    @property
    def moving(self) -> Mapping[str, Run]:
        """Runs for which places are kept, and that do not wait (yet)."""
        return {run: shape for run, (shape, _) in self._moving.items()}

    def _vacate(self, run: str) -> None:
        if run in self._moving:
            self._take_for(*self._moving.pop(run), -1)

    def _take_for(self, run: Run, ranks: Iterable[tuple[int, str]], sign: int) -> None:
        there = replace(run, run=f"{run.run} elsewhere")
        for rank, node in ranks:
            self.state.nodes.hold(there, rank, node, sign)

    def _there(self, ranks: Iterable[tuple[int, str]]) -> tuple[tuple[int, str], ...]:
        return tuple((index, node) for index, node in ranks if node in self.state.nodes.by_name)

    def _enter(self, held: HeldLease, key: str) -> None:
        if held.is_stuck:
            self._stuck[held.lease] = held
            self._lose(held, 1)
            return
        nodes = [node for node in _places(held, held.run) if node in self.state.nodes.by_name]
        if nodes:
            state = RankState.YIELDING if held.is_coming else RankState.RUNNING
            more = 0 if held.is_coming or held.terms is not None else held.wanted_ranks - len(nodes)
            ranks = (*(Rank(state, node, held.gpu) for node in nodes), *(Rank(),) * max(0, more))
            least = min(held.run.min_ranks, len(nodes)) if held.wanted_ranks else len(nodes)
            self._keys[held.lease] = key
            self.state.submit(replace(held.run, run=key, ranks=ranks, min_ranks=least, started_at=held.started_at))

    def _lose(self, held: HeldLease, sign: int) -> None:
        for slot in held.slots:
            if slot.node in self.state.nodes.by_name:
                self.state.nodes.lose(held.run, slot, sign, held.gpu)

    def _leave(self, lease: str) -> None:
        if lease in self._stuck:
            self._lose(self._stuck.pop(lease), -1)
        key = self._keys.pop(lease, None)
        if key is not None:
            self.state.end(key)

    # --- asked

    def decide(self, now_s: float, paused: Collection[str] = (), *, with_waits: bool = True) -> Decisions:
        """Decide; what is known stays as it is. ``paused``: runs that keep their place, and take part in nothing else.

        Own kernels' leases come first: a run does not wait behind anybody for what is kept for it.
        """
        found = Decisions()
        left = self._end_warm(found, now_s)
        taken: dict[str, HeldLease] = {}
        try:
            self._hand_over(found, taken, left, paused)
            left = [(lease, terms) for lease, terms in left if lease.lease not in taken]
            self._pass(found, taken, left, paused, now_s, with_waits=with_waits)
        finally:
            self.state.undo()
            for lease in taken.values():
                self._count_again(lease)
        return found

    def _pass(
        self,
        found: Decisions,
        taken: dict[str, HeldLease],
        warm: Warm,
        paused: Collection[str],
        now_s: float,
        *,
        with_waits: bool,
    ) -> None:
        self.state.has_kept = bool(warm)
        starts = list(self._starts(found, run_actions(self.state, now_s), paused, now_s))
        promised = self._kept_promises(found, paused)
        for start in starts:
            job = self.state.jobs[start.run]
            if start.run in paused:
                continue
            if start.promised:
                promised.append(job)
                if start.action not in _MAKE_ROOM:  # of the others those have to go first who are asked just now
                    found.promises.append(Promise(start.run, slots(job.run, start.ranks)))
            else:
                found.grants.append(Grant(start.run, slots(job.run, start.ranks)))
        soon = {job.run.run for job in promised} | self._recall(found, taken, warm, paused, now_s)
        self._expire(found, soon, [start.run for start in starts if start.run in paused], now_s)
        found.next_end_s = self._next_end_s(found, soon, warm, now_s)
        if with_waits:
            found.waits = list(self._waits(found, warm, promised, now_s))

    def _starts(
        self, found: Decisions, decided: Iterable[Start | Preempt], paused: Collection[str], now_s: float
    ) -> Iterator[Start]:
        """One start for each run that waits, with all ranks that it gets; what is for others is noted in ``found``."""
        starts: dict[str, Start] = {}
        preempts: list[Preempt] = []
        for each in decided:
            if isinstance(each, Preempt):
                preempts.append(each)
                continue
            if each.action in _MAKE_ROOM:
                self._note_room(found, each, preempts, paused, now_s)
                preempts = []
            if each.run not in self._askers:
                self._note_growth(found, each)
            elif each.run not in starts:
                starts[each.run] = each
            elif not each.promised and not starts[each.run].promised:
                starts[each.run] = replace(starts[each.run], ranks=(*starts[each.run].ranks, *each.ranks))
        yield from starts.values()

    def _note_room(
        self, found: Decisions, start: Start, preempts: Sequence[Preempt], paused: Collection[str], now_s: float
    ) -> None:
        """Nobody is preempted for a run that could not start then, or that holds a lease already."""
        run = start.run
        if run in self._askers and run not in paused and not self._is_over(run, now_s):
            placement = slots(self.state.jobs[run].run, start.ranks)
            found.rooms.append(MakeRoom(run, start.ranks, placement, start.action, tuple(preempts)))

    def _note_growth(self, found: Decisions, start: Start) -> None:
        lease = next((lease for lease, key in self._keys.items() if key == start.run), None)
        if lease is None or start.promised:
            return
        before = next((grow for grow in found.grows if grow.lease == lease), None)
        ranks = (*(before.ranks if before else ()), *start.ranks)
        found.grows = [grow for grow in found.grows if grow is not before]
        placement = slots(self.state.jobs[start.run].run, ranks)
        found.grows.append(Grow(self._held[lease].run.run, lease, ranks, placement))

    def _kept_promises(self, found: Decisions, paused: Collection[str]) -> list[Job]:
        """Runs whose places are kept until those have gone who are preempted for them."""
        jobs = [self.state.jobs[run] for run in self.state.promises if run not in paused]
        waiting = [job for job in jobs if RankState.PROMISED in job.states]
        for job in waiting:
            ranks = [(at, job.places[at]) for at, state in enumerate(job.states) if state is RankState.PROMISED]
            found.promises.append(Promise(job.run.run, slots(job.run, ranks)))
        return waiting

    def _end_warm(self, found: Decisions, now_s: float) -> Warm:
        over = [lease for lease, terms in self._warm.values() if terms.until_s <= now_s]
        found.releases += [Release(lease.lease, "its time is over") for lease in over]
        return [(lease, terms) for lease, terms in self._warm.values() if terms.until_s > now_s]

    def _hand_over(self, found: Decisions, taken: dict[str, HeldLease], warm: Warm, paused: Collection[str]) -> None:
        """Give runs what their own kernels keep for them, the oldest first."""
        sessions = {terms.session for _, terms in warm}
        runs = [run for session in sessions for run in self._of_session.get(session, ()) if run not in paused]
        # what is kept only while nobody waits is for who came first
        warm = [each for each in warm if not each[1].auto or not self._do_others_wait(each[1].session)]
        for job in sorted((self.state.jobs[run] for run in runs), key=lambda job: (job.run.submitted_at, job.ordinal)):
            left = [(lease, terms) for lease, terms in warm if lease.lease not in taken]
            lease = own_lease(self.state, job, self._askers[job.run.run].session, left)
            if lease is not None:
                self._grant(found, taken, job, lease)

    def _grant(self, found: Decisions, taken: dict[str, HeldLease], job: Job, lease: HeldLease) -> None:
        """Give a run a lease that is kept, as it is: until the pass is over, it is the run that holds it."""
        found.grants.append(Grant(job.run.run, lease.slots, lease.lease))
        taken[lease.lease] = lease
        self._leave(lease.lease)
        for index, node in enumerate(_places(lease, job.run)):
            self.state.place(job, index, node, RankState.GRANTED)

    def _count_again(self, lease: HeldLease) -> None:
        run = lease.run.run
        self._enter(lease, f"lease {lease.lease}" if run in self.state.jobs else run)

    def _do_others_wait(self, session: str) -> bool:
        return len(self._askers) > len(self._of_session.get(session, ()))

    def _recall(
        self, found: Decisions, taken: dict[str, HeldLease], warm: Warm, paused: Collection[str], now_s: float
    ) -> set[str]:
        """Let blocked runs take back what is kept; tells for which of them that will be enough."""
        soon: set[str] = set()
        left = {lease.lease: (lease, terms) for lease, terms in warm}
        for job, groups in list(self.state.blocked.values()) if left else ():
            if job.held or job.run.run in paused:
                continue
            asker = self._askers[job.run.run]
            recalled = recall(self.state, job, groups, asker, list(left.values()))
            if recalled.whole is not None:
                self._grant(found, taken, job, recalled.whole)
                del left[recalled.whole.lease]
            elif recalled.given_up and self._may_recall(recalled, job.run.run, now_s):
                found.releases += recalled.releases(job.run.user)
                for lease in recalled.given_up:
                    del left[lease.lease]
                if recalled.is_enough:
                    soon.add(job.run.run)
        if left:
            found.grants = [self._on_own(grant, left) for grant in found.grants]
        return soon

    def _on_own(self, grant: Grant, left: dict[str, tuple[HeldLease, KeepTerms]]) -> Grant:
        """Let a run that starts in any case do so on what its own kernel keeps, if nobody else was given that."""
        asker, job = self._askers[grant.run], self.state.jobs[grant.run]
        lease = None if grant.lease else own_lease(self.state, job, asker.session, list(left.values()))
        if lease is None:
            return grant
        del left[lease.lease]
        return Grant(grant.run, lease.slots, lease.lease)

    def _may_recall(self, recalled: Recall, run: str, now_s: float) -> bool:
        """Tell if the run will still be there when it gets what is given up for it."""
        return not self._is_over(run, now_s - _GIVING_BACK_S if recalled.is_enough else now_s)

    def _is_over(self, run: str, now_s: float) -> bool:
        return run in self._limited and now_s >= self._limited[run]

    def _expire(self, found: Decisions, soon: Collection[str], served: Collection[str], now_s: float) -> None:
        """End the waiting of runs whose time is over; those that will start in a moment have that long."""
        granted = {grant.run for grant in found.grants} | set(served)
        for run in self._limited:
            if run not in granted and self._is_over(run, now_s - self._respite_s(run, soon)):
                found.expired.append(Expire(run, self._expired(run)))

    def _respite_s(self, run: str, soon: Collection[str]) -> float:
        """Time beyond ``--wait`` for a run that will start in a moment, or when others were preempted for it."""
        if run not in soon:
            return 0.0
        graces = (queue.grace_s for queue in self.state.tree.queues.values()) if run in self.state.promises else ()
        return _GIVING_BACK_S + max(graces, default=0.0)

    def _next_end_s(self, found: Decisions, soon: Collection[str], warm: Warm, now_s: float) -> float | None:
        """The next end. What is over is not looked at again: the run was granted, or will be when its pause ends."""
        gone = {grant.run for grant in found.grants}
        waits = [end_s + self._respite_s(run, soon) for run, end_s in self._limited.items() if run not in gone]
        ends = [*waits, *(terms.until_s for _, terms in warm)]
        return min((end_s for end_s in ends if end_s > now_s), default=None)

    def _expired(self, run: str) -> str:
        what = "GPU is" if self.state.jobs[run].run.gpus_per_rank else "cores are"
        wait_s = self._askers[run].wait_s
        if not wait_s:
            return f"no {what} free now, and it may not wait (--wait 0)"
        return f"no {what.split()[0]} within {format_seconds(wait_s)} (--wait)"

    def _waits(self, found: Decisions, warm: Warm, promised: Sequence[Job], now_s: float) -> Iterator[Wait]:
        gone = {grant.run for grant in found.grants} | {expiry.run for expiry in found.expired}
        heads = {job.run.run: groups for job, groups in self.state.heads}
        place: dict[str, int] = {}
        for wait in waits(self.state, now_s, promised):
            if wait.run in gone:
                continue
            place[wait.queue] = place.get(wait.queue, 0) + 1
            cause = wait.cause
            if isinstance(cause, NoRoom) and wait.run in heads:
                cause = replace(cause, kept=self._kept(warm, heads[wait.run]))
            yield Wait(wait.run, wait.queue, place[wait.queue], cause)

    def _kept(self, warm: Warm, groups: Sequence[Group]) -> int:
        """Thousandths that are kept on the nodes which a run waits for."""
        nodes = self.state.nodes
        slots_kept = [slot for lease, _ in warm for slot in lease.slots if slot.node in nodes.by_name]
        return sum(in_thousandths(slot.gpus) for slot in slots_kept if nodes.group(slot.node) in groups)


def _places(lease: HeldLease, run: Run) -> list[str]:
    """The node of each rank."""
    return [slot.node for slot in lease.slots for _ in range(parts_on(run, slot))]
