"""The queue: asks the scheduler whenever something changed, and has its decisions carried out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection
from functools import partial

from ...host.background import BackgroundWork
from ...protocol.states import RunState
from ...scheduling.decisions import LACKS_NODE, Grant, Grow, MakeRoom, Promise, Slot, Wait
from ...scheduling.reasons import explain
from ...scheduling.scheduler import Decisions
from ..cluster.lease import Lease, LeaseTable
from ..cluster.nodes import NodeTable
from ..queues_file_watch import QueueRules
from ..runs.live_runs import RunTable
from ..runs.record import RunRecord
from .inventory import Inventory

log = logging.getLogger(__name__)
_SOON_S = 0.05
#: pause after a decision that failed
_AFTER_FAULT_S = 1.0
#: between two decisions at least, and at least so many times as long as one takes: a long queue must not keep the
#: gateway from everything else
_PAUSE_S, _PAUSES = 0.005, 2.0
#: so many runs are told their places after each decision; of more, each after so many times as long as that takes
_TOLD_ALWAYS, _TOLD_PAUSE_S, _TOLD_PAUSES = 32, 0.25, 20.0


class RunQueue:
    """Runs that wait, by id. The callbacks carry out what was decided: a run is granted slots, its time is over, a warm
    lease is given up, a lease that was offered goes to a run as it is, others are preempted for one, an
    elastic run is asked to grow; or end a run at which the queue itself failed. ``lacking``: nodes that lack what a run
    needs.
    """

    def __init__(
        self,
        runs: RunTable,
        nodes: NodeTable,
        leases: LeaseTable,
        rules: QueueRules,
        on_grant: Callable[[RunRecord, Grant], None],
        on_expire: Callable[[RunRecord, str], None],
        on_release: Callable[[Lease, str], object],
        on_hand_over: Callable[[Lease, RunRecord], None],
        on_fault: Callable[[RunRecord, Exception], None],
        on_make_room: Callable[[MakeRoom], bool],
        on_grow: Callable[[Grow], bool],
        with_answer: Callable[[Wait], Wait],
        lacking: Callable[[RunRecord], Collection[str]],
    ) -> None:
        self.inventory = Inventory(runs.get, nodes, leases, lambda: rules.file, lacking)
        self._runs = runs
        self._leases = leases
        self._on_grant = on_grant
        self._on_expire = on_expire
        self._on_release = on_release
        self._on_hand_over = on_hand_over
        self._on_fault = on_fault
        self._on_make_room = on_make_room
        self._on_grow = on_grow
        #: adds what an autoscaler does about it
        self._with_answer = with_answer
        #: of those that wait, the ones that another node would help
        self._lacking: set[str] = set()
        self._lacks_more = asyncio.Event()
        self._waiting: dict[str, RunRecord] = {}
        self._open = False
        #: put back after others before anybody could be granted
        self._behind: list[RunRecord] = []
        #: runs that keep their place (and what they would get) without being granted
        self._paused: set[str] = set()
        #: leases whose runs are over, and whether they were handed over
        self._offered: dict[str, tuple[Lease, asyncio.Future[bool]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        #: no decision before this (monotonic seconds), and when the next one is due
        self._rests_until_s = self._soon_at_s = 0.0
        self._soon: asyncio.TimerHandle | None = None
        self._spawn = BackgroundWork().spawn
        #: for the run at which decisions fail
        self._is_searching = False
        #: when places are told again (monotonic seconds)
        self._told_again_s = 0.0

    def __contains__(self, run: str) -> bool:
        return run in self._waiting

    @property
    def has_waiting(self) -> bool:
        """Tell if anybody waits."""
        return bool(self._waiting)

    def waiting(self) -> list[RunRecord]:
        """The waiting runs by their places, those without one (yet) by age behind them."""
        return sorted(self._waiting.values(), key=_place)

    def lacking(self) -> list[RunRecord]:
        """Waiting runs that another node would help, by their places."""
        return [record for record in self.waiting() if record.run in self._lacking]

    async def until_more_lack(self, limit_s: float) -> None:
        """Wait until another node would help one more of them, and for those that come with it."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._lacks_more.wait(), limit_s)
            await asyncio.sleep(_SOON_S)
        self._lacks_more.clear()

    def open(self) -> None:
        """Begin to grant (recovery is over)."""
        self._open = True
        if self._behind:
            self._serve_now()
        for record in self._behind:
            if record.run in self._waiting:
                self.inventory.add(record)
        self._behind.clear()
        self.inventory.recovered()
        self.serve()

    def add(self, record: RunRecord) -> None:
        """Have a run wait, or wait on other terms; the next :meth:`serve` decides."""
        self._waiting[record.run] = record
        self.inventory.add(record)

    def tell_again(self, record: RunRecord) -> None:
        """Decide anew about a run that belongs to another kernel now, or to none, if it waits."""
        if record.run in self._waiting:
            self.inventory.add(record)
            self.serve()

    def put_back(self, record: RunRecord, *, after_others: bool = False) -> None:
        """Have a run wait in its old place: not granted before :meth:`resume`, and nobody gets what it would get.

        ``after_others``: but for those who wait already, and get now what is free. No pause keeps them from it.
        """
        if after_others and self._open:
            self._serve_now()
        self._paused.add(record.run)
        if after_others and not self._open:  # not all who wait are known
            self._waiting[record.run] = record
            self._behind.append(record)
        else:
            self.add(record)

    def resume(self, record: RunRecord) -> None:
        """Go on with a run that was put back."""
        self._paused.discard(record.run)
        self.serve()

    def remove(self, record: RunRecord) -> None:
        """Take a run out."""
        self._paused.discard(record.run)
        self._lacking.discard(record.run)
        if self._waiting.pop(record.run, None) is not None:
            self.inventory.remove(record.run)

    def serve(self) -> None:
        """Decide about all that wait (and about what is kept warm) and carry it out: now, or in a moment together
        with what happens until then.
        """
        if time.monotonic() < self._rests_until_s:
            self._serve_at(self._rests_until_s)
        else:
            self._serve_now()

    def _serve_now(self) -> None:
        self._cancel_soon()
        try:
            if self._open:
                self._decide()
        except Exception:  # whoever has told of a change did nothing wrong, and everybody else goes on waiting
            log.exception("the queue could not be decided about: it is again, from what the tables say")
            self.inventory.distrust()
            self._serve_at(time.monotonic() + _AFTER_FAULT_S)
            if not self._is_searching:
                self._is_searching = True
                self._spawn(self._set_aside())
        finally:
            for _, handed in self._offered.values():
                if not handed.done():
                    handed.set_result(False)
            self._offered.clear()

    async def _set_aside(self) -> None:
        """The one run that no decision can be made with fails, and the others are served."""
        try:
            found = await self.inventory.find_fault(time.time(), self._paused)
        finally:
            self._is_searching = False
        if found is not None and found[0] in self._waiting:
            log.error("run %s is why the queue cannot be decided about: it fails, and the others go on", found[0])
            self._fail(*found)
            self.serve()

    def _decide(self) -> None:
        began_s, now_s = time.monotonic(), time.time()
        scheduler = self.inventory.in_step(self._offered)
        for run, fault in self.inventory.take_faults():
            self._fail(run, fault)
        if not (self._waiting or self._leases.warm() or scheduler.state.partial):
            return
        tells = len(self._waiting) <= _TOLD_ALWAYS or began_s >= self._told_again_s
        decided = scheduler.decide(now_s, self._paused, with_waits=tells)
        self._carry_out(decided)
        took_s = time.monotonic() - began_s
        if tells:
            self._told_again_s = time.monotonic() + max(_TOLD_PAUSE_S, _TOLD_PAUSES * took_s)
        else:
            self._rests_until_s = time.monotonic() + max(_PAUSE_S, _PAUSES * took_s)
        self._rests_until_s = max(self._rests_until_s, time.monotonic() + _PAUSE_S)
        self._set_timer(decided.next_end_s, now_s)
        if decided.expired:  # they may have been in others' way
            self._serve_at(self._rests_until_s)

    def _carry_out(self, decided: Decisions) -> None:
        for release in decided.releases:
            lease = self._leases.find(release.lease)
            if lease is not None:
                self._on_release(lease, release.reason)
        for grant in decided.grants:
            self._carry(grant.run, self._on_grant, grant)
        for promise in decided.promises:
            self._keep_promise(promise)
        for room in decided.rooms:
            self._make_room(room)
        for grow in decided.grows:
            self._grow(grow)
        for expiry in decided.expired:
            self._carry(expiry.run, self._on_expire, expiry.reason)
        for wait in decided.waits:
            record = self._waiting.get(wait.run)
            if record is not None:
                self._note_wait(record, wait)

    def _carry(self, run: str, order: Callable[..., None], *facts: object) -> bool:
        """Take a run out and carry out what was decided about it. False: that failed, and it alone fails."""
        record = self._waiting.get(run)
        if record is None:  # it was given something else in the same breath
            return False
        self.remove(record)
        try:
            order(record, *facts)
        except Exception as fault:
            log.exception("what was decided about run %s could not be carried out", run)
            self.inventory.distrust()
            self._on_fault(record, fault)
            self.serve_soon()
            return False
        return True

    def _fail(self, run: str, fault: Exception) -> None:
        record = self._waiting.get(run)
        if record is not None:
            self.remove(record)
            self._on_fault(record, fault)

    def _make_room(self, room: MakeRoom) -> None:
        """Preempt others for a run, and keep their places for it."""
        if room.run not in self._waiting:
            return
        # after a fault those who were asked are preempted, and who is next gets the GPUs
        with self.inventory.guarded(f"others could not be preempted for run {room.run}"):
            if self._on_make_room(room):
                self.inventory.scheduler.make_room(room)
                self.serve_soon()

    def _grow(self, grow: Grow) -> None:
        """Preempt an elastic run to go on with more GPUs, and keep these for it."""
        with self.inventory.guarded(f"run {grow.run} could not be preempted to grow"):
            if self._on_grow(grow):
                self.inventory.scheduler.grow(grow)
                self.serve_soon()

    def take_back(self, *runs: str) -> None:
        """Keep no places for these runs any more: somebody is not preempted after all."""
        for run in runs:
            self.inventory.scheduler.unpromise(run)
        self.serve_soon()

    def _keep_promise(self, promise: Promise) -> None:
        """Hand a lease that was offered over as it is, with no word to Ray, where it has exactly these slots."""
        wanted = _sorted(promise.placement)
        for name, (lease, handed) in self._offered.items():
            if _sorted(lease.slots) == wanted:
                del self._offered[name]
                handed.set_result(self._carry(promise.run, partial(self._on_hand_over, lease)))
                return

    def serve_soon(self) -> None:
        """Like :meth:`serve`, together with what comes until then: nothing became free, only places have changed."""
        self._serve_at(max(self._rests_until_s, time.monotonic() + _SOON_S))

    def _serve_at(self, at_s: float) -> None:
        """Decide then, unless that is to be sooner already. Its own clock: loops' timers come early, or do not say when
        they come.
        """
        if self._soon is None or at_s < self._soon_at_s:
            self._cancel_soon()
            self._soon_at_s = at_s
            delay_s = max(0.0, at_s - time.monotonic())
            self._soon = asyncio.get_running_loop().call_later(delay_s, self._serve_now)

    def _cancel_soon(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None

    async def offer(self, lease: Lease) -> bool:
        """Hand a lease whose run is over to the next run, if that is to have exactly its slots; False: nobody is."""
        if not (self._open and self._waiting):
            return False
        loop = asyncio.get_running_loop()
        handed: asyncio.Future[bool] = loop.create_future()
        self._offered[lease.name] = (lease, handed)
        loop.call_soon(self.serve)
        return await handed

    def leaves(self, lease: Lease) -> bool:
        """Tell if nobody but the kernel that keeps it would get a warm lease (or its GPUs) now."""
        kept = lease.kept
        try:
            decided = self.inventory.in_step(self._offered).decide(time.time(), self._paused, with_waits=False)
        except Exception:
            log.exception("nobody knows who would get lease %s: it is given back", lease.name)
            self.inventory.distrust()
            return False
        if any(release.lease == lease.name for release in decided.releases):
            return False
        taker = next((grant.run for grant in decided.grants if grant.lease == lease.name), None)
        return taker is None or (kept is not None and self._waiting[taker].view.session == kept.session)

    def _note_wait(self, record: RunRecord, wait: Wait) -> None:
        lacks = isinstance(wait.cause, LACKS_NODE)
        if lacks and record.run not in self._lacking:
            self._lacks_more.set()
        (self._lacking.add if lacks else self._lacking.discard)(record.run)
        view, reason = record.view, explain(self._with_answer(wait))
        if (view.position, view.cause or view.reason, record.state) != (wait.position, reason, RunState.QUEUED):
            if view.position is None:
                self._runs.change(record, position=wait.position, reason=reason)
            else:
                self._runs.move(record, wait.position, reason)

    def _set_timer(self, end_s: float | None, now_s: float) -> None:
        """Wake up when the next ``--wait`` is over, or the time of a warm lease, or places are to be told again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        delays = [] if end_s is None else [max(0.0, end_s - now_s) + 0.005]
        if len(self._waiting) > _TOLD_ALWAYS:
            delays.append(max(0.0, self._told_again_s - time.monotonic()) + 0.001)
        if delays:
            self._timer = asyncio.get_running_loop().call_later(min(delays), self.serve)


def _place(record: RunRecord) -> tuple[bool, int, int]:
    position = record.view.position
    return position is None, position or 0, record.ordinal


def _sorted(slots: tuple[Slot, ...]) -> list[tuple[str, float, int]]:
    return sorted((slot.node, slot.gpus, slot.cpus) for slot in slots)
