"""One run on this node, also one taken over."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from ...errors import GpuReleaseError
from ...protocol.events import Event
from ...protocol.fetch import FETCH, NEXT
from ...protocol.node import (
    AttemptId,
    NodeMessage,
    NodeRun,
    RunAsks,
    RunPhase,
    RunSaved,
    RunStays,
    RunWaits,
    StartOrder,
)
from ...protocol.runs import Outcome, PersistWait, Save
from ...store.event_log import read_unforged
from ...store.layout import RunPaths
from ..gang.layout import NodeLocation
from ..ipc.frames import Command, Output, Stay, died_outcome
from ..results.pending_results import PendingResults, settled_outcome
from .fork_servers import ForkServers
from .gang_run import GangRun, UnbegunError
from .gpu_use import UseMeter
from .part_use import WARN, PartUse
from .recorder import Recorder

log = logging.getLogger(__name__)
#: a prepared run that is not granted after this never will be: its gateway is gone
_GRANT_S = 60.0
#: of a cell that does not come to its first statement because its processes are killed
_TRIES = 3


class RunOnNode:
    """Carries out one :class:`StartOrder`; ``tell`` gets the messages for the gateway, in order."""

    def __init__(
        self,
        order: StartOrder,
        servers: ForkServers,
        meter: UseMeter | None,
        pending: PendingResults,
        tell: Callable[[NodeMessage], None],
        where: NodeLocation = NodeLocation(),  # noqa: B008 - frozen
    ) -> None:
        self.order = order
        self.waits_for: PersistWait | None = None
        self._pending = pending
        self._granted: asyncio.Future[bool] = asyncio.get_event_loop().create_future()
        if order.gpu_ids is not None:
            self._granted.set_result(True)
        self.phase = "starting"
        self.outcome: Outcome | None = None
        self._servers = servers
        self._meter = meter
        self._tell_gateway = tell
        self._host = where.host
        paths = RunPaths(Path(order.folder), order.attempt)
        self._recorder = Recorder(order.attempt_id, paths, tell, pending.threads)
        self._where = where
        self.gang = GangRun(order, pending.order_for(order), self, where)
        self._part = PartUse(order.part_bytes, self._processes) if order.is_part else None
        self._at_s = time.time()
        #: none of its processes is left
        self.released = asyncio.Event()
        #: why it can begin again elsewhere: nothing of it has begun, and nothing is left
        self.unbegun = ""
        #: the latest of this attempt
        self._save: Save | None = None
        #: why it can never be preempted
        self.stays = ""
        #: the gateway has taken it back before it began: it is forgotten here, and tells nothing any more
        self._is_withdrawn = False
        #: from here on it is not taken back
        self._has_outcome = False

    @property
    def folder(self) -> str:
        """The run's folder on the store."""
        return self.order.folder

    def view(self) -> NodeRun:
        """This run for a gateway that was started anew."""
        return NodeRun(
            self.order.attempt_id,
            self.phase,
            self._recorder.count,
            self._at_s,
            self.outcome,
            self.waits_for,
            self._save,
        )

    def events_after(self, after: int) -> list[Event]:
        """Recorded events above ``after``, and those that the store has refused so far."""
        return self._recorder.events_after(after)

    # ------------------------------------------------------------------------------ the run's life
    def grant(self, gpu_ids: list[str]) -> bool:
        """The lease is there, with these accelerators: the cell may run. False: it was given up before."""
        if not self._granted.done():
            self.order = msgspec.structs.replace(self.order, gpu_ids=gpu_ids)
            self._granted.set_result(True)
        return self._granted.result()

    def abandon(self) -> None:
        """The lease will not be granted: end what was prepared, without a word."""
        if not self._granted.done():
            self._granted.set_result(False)

    def withdraw(self) -> bool:
        """Like :meth:`abandon`, also when it is granted; False: it may have begun, and goes on."""
        if self.phase != "starting" or self._has_outcome or not self.gang.withdraw():
            return False
        self._is_withdrawn = True
        return True

    def signal_ranks(self, name: str, status: str) -> None:
        """``interrupt`` or ``kill`` all ranks (remembered when they are still being started)."""
        self.gang.signal_ranks(Command(name, status))

    def preempt(self) -> bool:
        """Have a restartable run stop at its next safe point; False: it cannot, or has ended."""
        if not self.order.restartable or self.stays or self.phase not in ("starting", "running"):
            return False
        self.gang.preempt()
        return True

    async def run_to_end(self) -> None:
        """Run from the order to the durable end; never raises."""
        recording = asyncio.create_task(self._recorder.run_forever())
        try:
            if self.order.attempt:
                await self._recorder.go_on_after(self.order.after_event)
            if await self._until_released():
                await self._finish()
        except Exception as error:  # a fault of ours must not keep GPUs, nor a kernel waiting
            log.exception("run %s could not be carried out", self.order.run)
            if not self._is_withdrawn:
                self._end_at_once(error)
        finally:
            self.released.set()
            recording.cancel()

    def _end_at_once(self, error: Exception) -> None:
        text = f"this node ({self._host}) could not carry the run out: {type(error).__name__}: {error}"
        hint = "run the cell again; the node agent's log has the details, please report them"
        if self.outcome is None:
            self.outcome = died_outcome("lost", "NodeError", text, code="lost", hint=hint)
        else:
            self.outcome = msgspec.structs.replace(self.outcome, notes=[*self.outcome.notes, text])
        if self.phase not in ("released", "final"):
            self.outcome = msgspec.structs.replace(self.outcome, released_s=time.time())
            self._phase("released", time.time())
        self._phase("final", time.time())

    async def _until_released(self) -> bool:
        """Returns False when the run was not granted, or has not begun: then there is nothing to finish."""
        try:
            outcome = await self._until_ended()
        except GpuReleaseError as error:
            outcome = died_outcome("error", type(error).__name__, error.message, code=error.code, hint=error.hint)
            if self._is_withdrawn or await self._until_granted() is None:
                return False
        except UnbegunError as error:
            self.unbegun = "" if self._is_withdrawn else str(error)
            return False
        except OSError as error:
            outcome = died_outcome("died", "NodeError", f"the rank could not be started: {error}")
        if outcome is None or self._is_withdrawn:
            return False
        self._has_outcome = True
        if self._meter is not None:
            await self._meter.wait_until_clear(self.order)
        await self._released(outcome)
        return True

    async def _until_ended(self) -> Outcome | None:
        """A cell whose processes were killed before it began is begun again: on the same GPUs, nobody need know."""
        for tries_left in reversed(range(_TRIES)):
            outcome: Outcome | None = None
            try:
                outcome = await self.gang.run_to_end(self._servers, self._until_granted)
            except OSError as error:  # the fork server died, or could not make a process
                if self.order.gang.members and not self.gang.has_begun:
                    raise UnbegunError(f"ranks on {self._host} could not be made: {error}") from error
                if not tries_left or self.gang.has_begun:
                    raise
            else:
                if outcome is None or not tries_left or not self.gang.is_cut_off_early:
                    return outcome
            if self._is_withdrawn:
                return None
            if not self._servers.is_standing:  # another takes seconds: no GPU is held for so long
                self._servers.start_soon()
                raise UnbegunError(f"the process on {self._host} that cells are forked from has ended")
            log.warning("run %s is begun anew: its processes were killed before its first statement", self.order.run)
            self.gang = GangRun(self.order, self._pending.order_for(self.order), self, self._where)
        return outcome

    async def _until_granted(self) -> list[str] | None:
        await asyncio.wait([self._granted], timeout=_GRANT_S)
        self.abandon()  # no grant that comes from now on counts, and each that has come does
        return (self.order.gpu_ids or []) if self._granted.result() else None

    # ------------------------------------------------------------------- what the processes tell
    def on_output(self, output: Output, marks: dict[str, object]) -> None:
        """Record it."""
        self._recorder.add_output(output, marks)
        if output.kind in (FETCH, NEXT):
            self._tell_gateway(RunAsks(self.order.attempt_id, int(str(marks.get("rank", 0)))))

    def on_running(self, at_s: float) -> None:
        """The cell begins."""
        if self.phase == "starting":
            if self._meter is not None:
                loop = asyncio.get_running_loop()
                self._meter.begin_sampling(
                    self.order, self._part, lambda word: loop.call_soon_threadsafe(self._on_over, word)
                )
            self._phase("running", at_s)

    def _processes(self) -> set[int]:
        return self.gang.processes()

    def _on_over(self, word: str) -> None:
        """It uses more than its part of a GPU: it is told so, then interrupted, and keeps what it has made."""
        assert self._part is not None
        if word == WARN:
            self.on_stuck(self._part.warning())
        elif self.phase == "running":
            self.signal_ranks("interrupt", "interrupted")

    def on_ended(self, at_s: float) -> None:
        """The cell's last statement has ended."""
        self._phase("ended", at_s)

    def on_persister(self, pid: int) -> None:
        """Look after the process that writes the results."""
        self._pending.add_persister(self.order.attempt_id, self.order.folder, pid, self._on_wait)

    def on_stuck(self, text: str) -> None:
        """Say it where it is read: under the cell, and in the log of the node."""
        log.error("run %s: %s", self.order.run, text)
        self._recorder.add_output(Output(time.time(), "stream", {"name": "stderr", "text": text + "\n"}), {})

    def on_saved(self, save: Save) -> None:
        """Should it be killed, it goes on from there."""
        self._save = save
        self._tell_gateway(RunSaved(self.order.attempt_id, save))

    def on_stay(self, stay: Stay) -> None:
        """It goes on, and the gateway looks for another."""
        if not stay.of_size:
            self.stays = "" if stay.for_now else stay.reason
        self._tell_gateway(RunStays(self.order.attempt_id, stay.reason, stay.for_now, stay.of_size))

    def on_unreported(self, rank: int) -> Outcome:
        """The outcome of a rank whose supervisor died; its results may be with their persister already."""
        found = self._pending.reported_outcome(self.order.attempt_id) if rank == 0 else None
        end = "its names are gone" if self.gang.has_begun else "it had not begun"
        lost = (
            f"the cell's processes on {self._host} were killed, by the system's out-of-memory killer or from outside; "
            + end
        )
        hint = "run the cell again; `jupyter gpu doctor` looks at the node"
        return found or died_outcome("lost", "CellProcessDied", lost, code="lost", hint=hint)

    # ------------------------------------------------------------------------------------ the end
    async def _released(self, outcome: Outcome) -> None:
        use = await self._meter.end_sampling(self.order) if self._meter is not None else None
        if use is not None:
            outcome = msgspec.structs.replace(outcome, gpu_use=use)
        if self._part is not None:
            outcome = msgspec.structs.replace(outcome, notes=[*outcome.notes, *self._part.notes()])
        if outcome.released_s is None:
            outcome = msgspec.structs.replace(outcome, released_s=time.time())
        if outcome.imported:
            learned = self._servers.prepared.learn(self.order.user, self.order.session, outcome.imported)
            outcome = msgspec.structs.replace(outcome, notes=[*outcome.notes, *learned])
        if self._recorder.problem:
            outcome = msgspec.structs.replace(outcome, notes=[*outcome.notes, self._recorder.problem])
        self.outcome = outcome
        self._pending.note_released(self.order.attempt_id, outcome)
        # the last output comes before the release, but a slow store must not hold a GPU
        await self._recorder.write_pending_soon()
        self._phase("released", outcome.released_s or time.time())
        if self.waits_for is not None:
            self._tell_gateway(RunWaits(self.order.attempt_id, self.waits_for))

    def _on_wait(self, wait: PersistWait) -> None:
        self.waits_for = wait
        if wait.reason:
            self._recorder.release_log()
        if self.phase == "released":  # the word that GPUs wait for comes first: each message waits for the one before
            self._tell_gateway(RunWaits(self.order.attempt_id, wait))

    async def _finish(self) -> None:
        """Wait until the results are durable, then say so."""
        assert self.outcome is not None
        attempt_id, values = self.order.attempt_id, self.outcome.values
        if values is not None:
            if values.file:
                settlement = await self._pending.wait_until_settled(attempt_id)
            else:
                settlement = await self._pending.save_small_results(
                    attempt_id, self.order.folder, self.outcome, self._on_wait
                )
            self.outcome = settled_outcome(attempt_id, self.outcome, settlement)
        problem = self._recorder.problem
        await self._recorder.write_pending()
        await self._recorder.close_log()
        if problem != self._recorder.problem:  # the store works again, or has begun to hang
            notes = [note for note in self.outcome.notes if note != problem]
            notes += [self._recorder.problem] if self._recorder.problem else []
            self.outcome = msgspec.structs.replace(self.outcome, notes=notes)
        self._recorder.end_recording()
        self._phase("final", time.time())

    def _phase(self, phase: str, at_s: float) -> None:
        self.phase, self._at_s = phase, at_s
        if phase == "released":
            self.released.set()
        self._tell_gateway(RunPhase(self.order.attempt_id, phase, at_s, self.outcome))


class AdoptedRun:
    """Like a :class:`.RunOnNode` that has been released."""

    def __init__(
        self,
        attempt_id: AttemptId,
        folder: str,
        outcome: Outcome,
        pending: PendingResults,
        tell: Callable[[NodeMessage], None],
    ) -> None:
        self.attempt_id = attempt_id
        self.phase = "released"
        self.released = asyncio.Event()
        self.released.set()
        self.outcome = outcome
        self.waits_for: PersistWait | None = None
        self.folder = folder
        self._pending = pending
        self._tell = tell
        self._at_s = time.time()

    def view(self) -> NodeRun:
        """This run for the gateway. Its last event's number is in the log."""
        return NodeRun(self.attempt_id, self.phase, 0, self._at_s, self.outcome, self.waits_for)

    def events_after(self, after: int) -> list[Event]:
        """Recorded events above ``after``."""
        return list(read_unforged(RunPaths(Path(self.folder)).events, after))

    def signal_ranks(self, name: str, status: str) -> None:
        """Nothing runs any more: results are given up by :meth:`.PendingResults.give_up_results` only."""

    async def run_to_end(self) -> None:
        """Report it as released, then its end."""
        self._phase("released")
        values = self.outcome.values
        if values is not None and not values.file:
            settlement = await self._pending.save_small_results(
                self.attempt_id, self.folder, self.outcome, self.on_wait
            )
        else:
            settlement = await self._pending.wait_until_settled(self.attempt_id)
        self.outcome = settled_outcome(self.attempt_id, self.outcome, settlement)
        self._phase("final")

    def on_wait(self, wait: PersistWait) -> None:
        """Tell the gateway why the results are not durable yet."""
        self.waits_for = wait
        self._tell(RunWaits(self.attempt_id, wait))

    def _phase(self, phase: str) -> None:
        self.phase, self._at_s = phase, time.time()
        self._tell(RunPhase(self.attempt_id, phase, self._at_s, self.outcome))
