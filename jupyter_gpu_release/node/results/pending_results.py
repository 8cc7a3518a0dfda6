"""Results that the store does not have yet, on the agent's side: memory budget, adoption by the next agent, end.

The bytes are in a persister's memory or in the spool, never here (except small ones on their first try). So the
agent may die: the next one finds the records in the spool and goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from ...errors import GpuReleaseError, RunCancelledError, RunLostError, StoreError, StoreSilentError
from ...host import process_control
from ...host.threads import Acting, StoreThreads
from ...protocol.cell import Graph
from ...protocol.node import AgentConfig, AttemptId, StartOrder
from ...protocol.runs import ErrorInfo, Outcome, PersistWait
from ...protocol.wire import decode
from ...store.files import make_private_folder
from ...store.layout import VALUES_FILE, of_attempt
from ...units import format_bytes
from ..ipc.frames import SpoolConfig
from .mover import start_mover
from .persister import SPILL_SIGNAL
from .spool import (
    BackOff,
    SpoolEntry,
    SpoolRecord,
    default_spool,
    short_address,
    spool_entries,
    wait_after_failure,
    write_values,
)

_MOST_NAMED = 8


@dataclass(frozen=True)
class Settlement:
    """``durable`` (with the file's digest), ``lost`` or ``given up`` (with the reason)."""

    state: str
    digest: str = ""
    reason: str = ""


def settled_outcome(attempt_id: AttemptId, outcome: Outcome, settlement: Settlement) -> Outcome:
    """The run's outcome once its results are durable, lost or given up."""
    values = outcome.values
    if settlement.state == "durable":
        if values is not None:
            name = of_attempt(VALUES_FILE, attempt_id.attempt)
            where = {"file": name} if values.file else {"stored_as": name}
            values = Graph(values.stream, values.buffers, digest=settlement.digest, **where)
        return msgspec.structs.replace(outcome, values=values)
    text = f"results of run {attempt_id.run} ({describe_results(outcome)}) are {settlement.state}: {settlement.reason}"
    if values is not None and values.file:
        values = None
    outcome = msgspec.structs.replace(outcome, values=values, results=outcome.results if values is not None else [])
    if outcome.error is not None:
        return msgspec.structs.replace(outcome, notes=[*outcome.notes, text])
    if settlement.state == "lost":
        error = ErrorInfo(RunLostError.__name__, text, code=RunLostError.code, hint="run the cell again")
        return msgspec.structs.replace(outcome, status="lost", error=error)
    error = ErrorInfo(RunCancelledError.__name__, text, code=RunCancelledError.code)
    return msgspec.structs.replace(outcome, status="interrupted", error=error)


def _acting() -> Acting:
    from ...store.private_stores import acting

    return acting


def _separate(store: Path, spool: Path) -> None:
    """Have a folder for each user in the spool, which they may pass."""
    from ...store.private_stores import open_to_users, separate_users

    separate_users(store)
    separate_users(spool)
    spool.parent.chmod(0o711)
    open_to_users(spool)


def _bind(line: socket.socket, path: Path) -> None:
    with short_address(path) as address:
        path.unlink(missing_ok=True)
        line.bind(address)


def describe_results(outcome: Outcome) -> str:
    """``model, history and 3 more; 1.2 GiB``."""
    names = [value.name for value in outcome.results]
    listed = ", ".join(names[:_MOST_NAMED]) or "no names"
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"{listed}{more}; {format_bytes(sum(value.bytes for value in outcome.results))}"


def choose_runs_to_spill(sizes: Mapping[AttemptId, int], budget: int) -> list[AttemptId]:
    """The fewest of the runs (the largest ones) that must leave memory so that the rest is within ``budget`` bytes."""
    total = sum(sizes.values())
    chosen = []
    for run, size in sorted(sizes.items(), key=lambda item: -item[1]):
        if total <= budget:
            break
        chosen.append(run)
        total -= size
    return chosen


log = logging.getLogger(__name__)
OnWait = Callable[[PersistWait], None]
_TICK_S = 1.0
#: a small result that is not on the store after this is spilled
_SMALL_S = 2.0
_MEMORY_SHARE = 0.25
_DATAGRAM = 1 << 20
_READ_AT_ONCE = 64
#: after so many at once: whoever sends without end gets no more of the agent's time
_PAUSE_S = 0.1


class PendingResult:
    """One run whose results are on their way; ``on_wait`` hears why they are not durable yet."""

    def __init__(self, entry: SpoolEntry, waiting: SpoolRecord, on_wait: OnWait) -> None:
        self.entry = entry
        self.waiting = waiting
        self.on_wait = on_wait
        self.settled: asyncio.Future[Settlement] = asyncio.get_event_loop().create_future()
        self.watch: int | None = None
        self.is_told_to_spill = False
        #: a try to write small results that the store has not answered
        self.trying: asyncio.Future[str] | None = None

    def settle(self, settlement: Settlement) -> None:
        """End it, one way or the other; later ways do not count."""
        if not self.settled.done():
            self.settled.set_result(settlement)


class PendingResults:
    """All kept results of one node; every method runs on the agent's event loop."""

    def __init__(self, config: AgentConfig, node: str) -> None:
        #: makes work of what is to be done for the owner of a path; None: all of it is this user's
        self.acting = _acting() if config.as_owners else None
        self.threads = StoreThreads(acting=self.acting)
        root = Path(config.spool or default_spool()) / socket.gethostname()
        make_private_folder(root)
        self._root = root
        self._as_owners = config.as_owners
        if config.as_owners:
            _separate(Path(config.store), root)
        self._node = node
        self._budget = config.persist_memory_bytes or int(process_control.machine_bytes() * _MEMORY_SHARE)
        notify = f"{config.runtime}/kept-{node[:12]}.sock"
        self.order = SpoolConfig(str(root), notify, node, config.persist_bytes_per_s, config.store, config.store_id)
        self.order.expect_store()
        self._markers = {process_control.CLUSTER_MARKER: config.cluster, process_control.NODE_MARKER: node}
        self._kept: dict[AttemptId, PendingResult] = {}
        #: by the folder of the spool that they move from
        self._movers: dict[str, subprocess.Popen[bytes]] = {}
        self._starting: dict[str, asyncio.Future[subprocess.Popen[bytes]]] = {}
        self._ticking: asyncio.Task[None] | None = None
        #: user (0: of this process) → by which theirs are heard
        self._lines: dict[int, socket.socket] = {}
        self._hear(0)

    def order_for(self, order: StartOrder) -> SpoolConfig:
        """Where the run's results wait; raises :class:`StoreError` where its owner has no folder, and can get none."""
        owner = order.owner
        if not order.as_owner or owner is None:
            return self.order
        from ...store.private_stores import make_own_folder

        make_own_folder(self._root, owner.uid, owner.gid)
        self._hear(owner.uid)
        return self._config_of(owner.uid, owner.gid)

    def _config_of(self, uid: int, gid: int) -> SpoolConfig:
        from ...store.private_stores import own_folder

        spool, store = own_folder(self._root, uid), own_folder(Path(self.order.store), uid)
        return msgspec.structs.replace(self.order, spool=str(spool), store=str(store), uid=uid, gid=gid)

    def _entry(self, attempt_id: AttemptId, folder: str) -> SpoolEntry:
        if not self._as_owners:
            return SpoolEntry(self._root, attempt_id)
        from ...store.private_stores import own_folder, owner_of

        uid = owner_of(Path(folder)) or 0
        return SpoolEntry(own_folder(self._root, uid) if uid else self._root, attempt_id, uid=uid)

    # ---------------------------------------------------------------------- results of this agent's runs
    def add_persister(self, attempt_id: AttemptId, folder: str, pid: int, on_wait: OnWait) -> None:
        """Look after the results that a rank has left to the persister ``pid``.

        ``on_wait`` is called on the agent's event loop, now or later, whenever the reason changes why they are not
        durable yet.
        """
        entry = self._entry(attempt_id, folder)
        run, attempt = attempt_id.run, attempt_id.attempt
        record = entry.read_record() or SpoolRecord(run, self._node, folder, 0)
        record = msgspec.structs.replace(record, run=run, attempt=attempt, node=self._node, folder=folder, pid=pid)
        kept = self._keep(PendingResult(entry, record, on_wait))
        if record.waits_for is not None:
            on_wait(record.waits_for)
        entry.claim()
        self._watch(kept, pid)

    def reported_outcome(self, attempt_id: AttemptId) -> Outcome | None:
        """Return what the rank said of a run whose supervisor died without a word; None when no results are kept."""
        kept = self._kept.get(attempt_id)
        return (kept.entry.read_outcome() or kept.waiting.outcome) if kept is not None else None

    def note_released(self, attempt_id: AttemptId, outcome: Outcome) -> None:
        """Write down how the run went, as its ranks are gone: the next agent may have to tell it."""
        kept = self._kept.get(attempt_id)
        if kept is None or (outcome.values is not None and not outcome.values.file):
            return
        with contextlib.suppress(StoreError):  # the local disk is full: then only this agent knows
            kept.entry.write_outcome(outcome)

    async def wait_until_settled(self, attempt_id: AttemptId) -> Settlement:
        """Wait until the results of a run are durable, lost or given up."""
        kept = self._kept.get(attempt_id)
        if kept is None:
            return Settlement("lost", reason="the process that kept them was never heard of")
        return await asyncio.shield(kept.settled)

    async def save_small_results(
        self, attempt_id: AttemptId, folder: str, outcome: Outcome, on_wait: OnWait
    ) -> Settlement:
        """Write results that came inline to the store, however long it takes."""
        assert outcome.values is not None
        values, back_off = outcome.values, BackOff()
        size = len(values.stream) + sum(map(len, values.buffers))
        record = SpoolRecord(attempt_id.run, self._node, folder, size, attempt=attempt_id.attempt)
        kept = self._keep(PendingResult(self._entry(attempt_id, folder), record, on_wait))
        while not kept.settled.done():
            problem = await self._try_small(kept, values)
            if problem is None:
                break
            wait, pause_s = await self._waits(record.target, size, problem, back_off)
            self._take_in(msgspec.structs.replace(kept.waiting, waits_for=wait))
            if await self._spill_small(kept, values, outcome):
                break
            await asyncio.wait([kept.settled], timeout=pause_s)
        return await asyncio.shield(kept.settled)

    async def _waits(
        self, target: Path, size: int, problem: StoreError | str, back_off: BackOff
    ) -> tuple[PersistWait, float]:
        """Like :func:`.wait_after_failure`; a store that hangs is not asked how full it is."""
        if not isinstance(problem, str):
            with contextlib.suppress(StoreSilentError):
                return await self.threads.run(
                    wait_after_failure, target, size, problem, "memory", back_off, at=target.parent, limit_s=_SMALL_S
                )
        return wait_after_failure(target, size, str(problem), "memory", back_off)

    async def _try_small(self, kept: PendingResult, values: Graph) -> StoreError | str | None:
        target = kept.waiting.target
        if kept.trying is None:  # else the last try waits for the store still
            kept.trying = self.threads.begin(write_values, target, values.stream, values.buffers, at=target.parent)
        trying = kept.trying
        await asyncio.wait([trying], timeout=_SMALL_S)
        if not trying.done():
            return f"no answer within {_SMALL_S:g} s"
        kept.trying = None
        try:
            digest = trying.result()
        except StoreError as error:
            return error
        kept.settle(Settlement("durable", digest))
        return None

    async def _spill_small(self, kept: PendingResult, values: Graph, outcome: Outcome) -> bool:
        entry, waiting = kept.entry, kept.waiting
        wait = msgspec.structs.replace(waiting.waits_for, kept="disk") if waiting.waits_for is not None else None
        try:
            entry.write_outcome(outcome)
            entry.claim()
            digest = await asyncio.to_thread(entry.spill_values, values.stream, values.buffers)
            spilled = msgspec.structs.replace(waiting, state="spilled", spilled_digest=digest, waits_for=wait)
            entry.write_record(spilled, durable=True)
        except StoreError:
            return False
        self._take_in(spilled)
        return True

    # -------------------------------------------------------------------------------------------- endings
    def give_up_results(self, attempt_id: AttemptId, reason: str) -> bool:
        """Drop the results of a run; False when none are kept (they are durable by now)."""
        kept = self._kept.get(attempt_id)
        if kept is None or kept.settled.done():
            return False
        if kept.watch is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(kept.watch, signal.SIGKILL)
        kept.settle(Settlement("given up", reason=reason))
        kept.entry.remove_files()
        return True

    def forget_attempt(self, attempt_id: AttemptId) -> None:
        """The gateway has recorded the end of an attempt."""
        kept = self._kept.pop(attempt_id, None)
        if kept is not None:
            self._unwatch(kept)
            kept.entry.remove_files()

    def spill_all(self) -> list[int]:
        """The cluster ends: have all persisters spill; returns their process ids."""
        pids = [kept.waiting.pid for kept in self._kept.values() if kept.watch is not None]
        for kept in self._kept.values():
            if kept.watch is not None:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(kept.watch, signal.SIGTERM)
        return pids

    def close(self) -> None:
        """Let go of socket and watches; what is kept stays in the spool and with its persisters."""
        for kept in self._kept.values():
            self._unwatch(kept)
        for line in self._lines.values():
            asyncio.get_event_loop().remove_reader(line)
            line.close()
        self._lines.clear()
        if self._ticking is not None:
            self._ticking.cancel()

    # ------------------------------------------------------------------------------------------- adoption
    def adopt_results(
        self, alive: frozenset[str], on_wait: Callable[[AttemptId, PersistWait], None]
    ) -> list[SpoolRecord]:
        """Take over what an earlier agent of this host looked after.

        Parameters
        ----------
        alive
            Nodes with agents of their own: theirs stays theirs.
        on_wait
            Called with the attempt, on the agent's event loop, whenever the reason changes why its results are not
            durable.
        """
        found = []
        for entry in self._entries():
            waiting = entry.read_record()
            if (
                waiting is None
                or not self._is_its_own(entry, waiting)
                or (waiting.node != self._node and waiting.node in alive)
                or not entry.claim()
            ):
                continue
            kept = self._keep(PendingResult(entry, waiting, partial(on_wait, waiting.attempt_id)))
            found.append(waiting)
            if waiting.state == "memory" and process_control.is_persister(waiting.pid):
                self._watch(kept, waiting.pid)
            else:
                self._take_in(waiting)
                if waiting.state == "memory":
                    kept.settle(Settlement("lost", reason="the process that kept them was killed"))
        return found

    # ---------------------------------------------------------------------------------------- the inside
    def _entries(self) -> list[SpoolEntry]:
        found = spool_entries(self._root)
        if self._as_owners:
            from ...store.private_stores import own_folders

            for uid, folder in own_folders(self._root):
                found += spool_entries(folder, uid=uid)
        return found

    def _is_its_own(self, entry: SpoolEntry, waiting: SpoolRecord) -> bool:
        """Tell if a record, which a user may have written, speaks of its run and of its user's store."""
        if not self._as_owners:
            return True
        from ...store.private_stores import owner_of

        folder = Path(waiting.folder)
        return (
            waiting.attempt_id == entry.attempt_id
            and waiting.run == folder.name
            and owner_of(folder) == (entry.uid or None)
        )

    def _keep(self, kept: PendingResult) -> PendingResult:
        self._hear(kept.entry.uid)
        self._kept[kept.waiting.attempt_id] = kept
        if self._ticking is None or self._ticking.done():
            self._ticking = asyncio.get_event_loop().create_task(self._tick())
        return kept

    def _hear(self, uid: int) -> None:
        """Hear what persisters and movers of a user (0: of this process) say, by a socket that nobody else reaches."""
        if uid in self._lines:
            return
        path = (self._config_of(uid, 0) if uid else self.order).socket
        line = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        bind = partial(_bind, line, path)
        try:
            (self.acting(path, bind) if self.acting is not None else bind)()
        except (OSError, StoreError) as error:  # the local disk is full: records are read at each tick
            log.warning("the words of persisters are not heard: %s", error)
            line.close()
            return
        self._lines[uid] = line
        self._listen(uid)

    def _listen(self, uid: int) -> None:
        line = self._lines.get(uid)
        if line is not None:
            asyncio.get_event_loop().add_reader(line, self._receive, uid)

    def _receive(self, uid: int) -> None:
        """Read what has come, and pause where more has come than persisters and movers say."""
        line = self._lines.get(uid)
        if line is None:
            return
        for _ in range(_READ_AT_ONCE):
            try:
                data = line.recv(_DATAGRAM)
            except BlockingIOError:
                return
            with contextlib.suppress(msgspec.MsgspecError):
                told = decode(data, SpoolRecord)
                kept = self._kept.get(told.attempt_id)
                if kept is not None and kept.entry.uid == uid:
                    self._take_in(told)
        if asyncio.get_event_loop().remove_reader(line):
            asyncio.get_event_loop().call_later(_PAUSE_S, self._listen, uid)

    def _take_in(self, waiting: SpoolRecord) -> None:
        """Take in what a persister or the mover says of its run."""
        kept = self._kept.get(waiting.attempt_id)
        if kept is None or kept.settled.done():
            return
        known = kept.waiting
        kept.waiting = msgspec.structs.replace(waiting, node=known.node, folder=known.folder, pid=known.pid)
        if waiting.outcome is None:
            kept.waiting = msgspec.structs.replace(kept.waiting, outcome=known.outcome)
        if waiting.state == "durable":
            kept.settle(Settlement("durable", waiting.digest))
            return
        if waiting.waits_for is not None and waiting.waits_for != known.waits_for:
            kept.on_wait(waiting.waits_for)
        if waiting.state == "spilled":
            self._ensure_mover(kept.entry)
        else:
            self._hold_budget()

    def _hold_budget(self) -> None:
        live = [kept for kept in self._kept.values() if kept.watch is not None and not kept.settled.done()]
        sizes = {kept.waiting.attempt_id: kept.waiting.bytes for kept in live if kept.waiting.state == "memory"}
        for attempt_id in choose_runs_to_spill(sizes, self._budget):
            kept = self._kept[attempt_id]
            if not kept.is_told_to_spill and kept.watch is not None:
                kept.is_told_to_spill = True
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(kept.watch, SPILL_SIGNAL)

    def _watch(self, kept: PendingResult, pid: int) -> None:
        try:
            kept.watch = os.pidfd_open(pid)
            if kept.entry.uid and process_control.user_of(pid) != kept.entry.uid:
                raise ProcessLookupError(pid)  # a user's word: no process of others is watched, or signalled
        except OSError:  # it has ended already
            if kept.watch is not None:
                os.close(kept.watch)
                kept.watch = None
            self._on_end(kept)
            return
        asyncio.get_event_loop().add_reader(kept.watch, self._on_end, kept)

    def _unwatch(self, kept: PendingResult) -> None:
        if kept.watch is not None:
            asyncio.get_event_loop().remove_reader(kept.watch)
            os.close(kept.watch)
            kept.watch = None

    def _on_end(self, kept: PendingResult) -> None:
        """A persister is gone: what it said last, or left in its record, tells whether it was done."""
        self._unwatch(kept)
        self._receive(kept.entry.uid)
        if kept.waiting.state == "memory":
            self._take_in(kept.entry.read_record() or kept.waiting)
        if kept.waiting.state == "memory":
            kept.settle(Settlement("lost", reason="the process that kept them was killed"))

    def _ensure_mover(self, entry: SpoolEntry) -> None:
        order = self._config_of(entry.uid, os.stat(entry.folder.parent).st_gid) if entry.uid else self.order
        mover = self._movers.get(order.spool)
        if order.spool not in self._starting and (mover is None or mover.poll() is not None):
            started = self._starting[order.spool] = self.threads.begin(start_mover, order, self._markers)
            started.add_done_callback(partial(self._on_started, order.spool))

    def _on_started(self, spool: str, started: asyncio.Future[subprocess.Popen[bytes]]) -> None:
        del self._starting[spool]
        if (error := started.exception()) is None:
            self._movers[spool] = started.result()
        else:
            log.warning("results that were spilled are not moved yet: %s", error)  # tried again at the next tick

    async def _tick(self) -> None:
        """While something is kept: read records that we were not told of, keep the mover alive."""
        while any(not kept.settled.done() for kept in self._kept.values()):
            await asyncio.sleep(_TICK_S)
            for kept in [kept for kept in self._kept.values() if not kept.settled.done()]:
                told = kept.entry.read_record()
                if told is not None:
                    with contextlib.suppress(GpuReleaseError, OSError):
                        self._take_in(told)
