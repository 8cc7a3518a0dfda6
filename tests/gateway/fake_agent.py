"""A node agent for tests: a real Ray actor that keeps the protocol but runs no cell.

The cell's source is a script, one word a line: ``print N`` (N events in one batch), ``trickle N`` (N events, one
report each), ``hold`` (until the file ``go`` is in the run folder, or a signal), ``stubborn`` (until killed),
``values N`` (N bytes inline), ``ask N`` (as rank N, for a name of the kernel; until the file ``answer-N`` is there),
``rounds N`` (each until the file ``round-K`` is there: on notice it is saved and ends, and goes on with the next),
``deaf`` (until the file ``hears`` is there), ``save`` (without notice), ``stays`` (it cannot be saved from now on),
``fail``, ``late`` (final only once the file ``durable`` is there).
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from pathlib import Path

import msgspec
import ray

from jupyter_gpu_release._version import __version__
from jupyter_gpu_release.errors import ClusterError
from jupyter_gpu_release.node.agent.recorder import Reporter
from jupyter_gpu_release.protocol.cell import CellPayload, Graph
from jupyter_gpu_release.protocol.config import UnixUser
from jupyter_gpu_release.protocol.environments import (
    BuildReport,
    ClusterPackages,
    EnvironmentRow,
    Installed,
    PackagesAnswer,
    Plan,
    Question,
    Versions,
)
from jupyter_gpu_release.protocol.events import Event
from jupyter_gpu_release.protocol.fetch import FETCH
from jupyter_gpu_release.protocol.lineage import Environment
from jupyter_gpu_release.protocol.node import (
    AGENT_PROTOCOL,
    AgentConfig,
    AttemptId,
    GpuInfo,
    JoinOrder,
    NodeAgentApi,
    NodeInfo,
    NodeRun,
    PrepareOrder,
    ProbeOrder,
    ProbeReport,
    RunAsks,
    RunEvents,
    RunPhase,
    RunSaved,
    RunStays,
    StartOrder,
)
from jupyter_gpu_release.protocol.runs import ErrorInfo, Outcome, Save, ValueInfo
from jupyter_gpu_release.protocol.wire import Packed, decode, pack, unpack
from jupyter_gpu_release.store.event_log import EventWriter, read_events
from jupyter_gpu_release.store.files import write_atomic
from jupyter_gpu_release.store.layout import RunPaths


class Run:
    def __init__(self, order: StartOrder, tell: object, mark: Path) -> None:
        self.order = order
        #: says that it has begun, to the next agent too
        self._mark = mark
        self.phase = "starting"
        self.outcome: Outcome | None = None
        paths = RunPaths(Path(order.folder), order.attempt)
        earlier = read_events(paths.events, order.after_event) if order.attempt else ()
        self.count = max([order.after_event, *(event.n for event in earlier)])
        self.signalled = ""
        #: it is being preempted
        self.preempts = False
        self.is_ended = False
        self._save = order.save
        self._is_saved = False
        self._stays = self._is_deaf = False
        self._tell = tell
        self._folder = Path(order.folder)
        self._log = EventWriter(paths.own_events)
        #: none of its processes is left
        self.released = asyncio.Event()
        self._values: Graph | None = None
        self._error: ErrorInfo | None = None
        self._started_s = time.time()
        self._late = False

    async def carry_out(self) -> None:
        source = decode(self.order.payload, CellPayload).source
        self._mark.touch()
        self._report("running")
        for line in source.splitlines():
            if (self.signalled and not line.startswith("stubborn")) or self._is_saved:
                break
            if line.startswith("#"):
                continue
            word, _, number = line.partition(" ")
            await getattr(self, f"_do_{word}")(int(number or 0))
        status = "interrupted" if self.signalled else "error" if self._error else "ok"
        status = "preempted" if self._is_saved or self.is_ended else status
        ended_s = time.time()
        self._report("ended")
        values = self._save.values if self._is_saved else self._values
        self.outcome = Outcome(
            values=values,
            results=[ValueInfo("x", "bytes", len(values.stream))] if values else [],
            status=status,
            error=self._error,
            started_s=self._started_s,
            ended_s=ended_s,
            released_s=time.time(),
            notes=[f"signal {self.signalled}"] if self.signalled else [],
            save=msgspec.structs.replace(self._save, values=None) if self._is_saved else None,
        )
        self._report("released")
        if self._late:
            await self._until("durable")
        self._report("final")

    async def _do_print(self, number: int) -> None:
        self._emit(number)

    async def _do_trickle(self, number: int) -> None:
        for _ in range(number):
            self._emit(1)
            await asyncio.sleep(0.002)

    async def _do_hold(self, _: int) -> None:
        await self._until("go")

    async def _do_stubborn(self, _: int) -> None:
        while self.signalled != "kill":
            await asyncio.sleep(0.005)

    async def _do_values(self, number: int) -> None:
        self._values = Graph(stream=b"v" * number)

    async def _do_rounds(self, number: int) -> None:
        for this in range(int(self._save.place.split()[1]) if self._save else 1, number + 1):
            self._emit(1)
            while not ((self._folder / f"round-{this}").exists() or self.signalled or self._is_to_stop()):
                await asyncio.sleep(0.005)
            if self.signalled:
                return
            if self._is_to_stop():
                self._save, self._is_saved = self._saved(this + 1), True
                return

    async def _do_save(self, number: int) -> None:
        self._save = self._saved(number or 1)
        self._tell(RunSaved(self.order.attempt_id, self._save))

    def _is_to_stop(self) -> bool:
        return self.preempts and (not self._is_deaf or (self._folder / "hears").exists())

    def _saved(self, next_round: int) -> Save:
        number = self._save.number + 1 if self._save else 1
        values = Graph(stream=f"before round {next_round}".encode())
        return Save(
            number, self.order.attempt, time.time(), f"round {next_round}", 3, values, [ValueInfo("x", "int", 3)]
        )

    async def _do_deaf(self, _: int) -> None:
        """Hears notices once the file ``hears`` is there."""
        self._is_deaf = True

    async def _do_stays(self, _: int) -> None:
        self._stays = True

    def step_aside(self) -> bool:
        if not self.order.restartable or self._stays:
            self._tell(RunStays(self.order.attempt_id, "cannot be moved: `sock` is an open socket"))
            return False
        self.preempts = True
        return True

    async def _do_ask(self, rank: int) -> None:
        self._event(FETCH, {"name": "big", "ask": 1, "rank": rank})
        self._tell(RunAsks(self.order.attempt_id, rank))
        await self._until(f"answer-{rank}")

    async def _do_late(self, _: int) -> None:
        self._late = True

    async def _do_fail(self, _: int) -> None:
        self._error = ErrorInfo("ZeroDivisionError", "division by zero", ["traceback"])

    async def _until(self, name: str) -> None:
        while not (self._folder / name).exists() and not self.signalled:
            await asyncio.sleep(0.005)

    def _emit(self, number: int) -> None:
        events = []
        for _ in range(number):
            self.count += 1
            events.append(Event(self.count, time.time(), "stream", {"name": "stdout", "text": f"line {self.count}\n"}))
        self._log.write(events)
        self._tell(RunEvents(self.order.attempt_id, events))

    def _event(self, kind: str, data: dict[str, object]) -> None:
        self.count += 1
        events = [Event(self.count, time.time(), kind, data)]
        self._log.write(events)
        self._tell(RunEvents(self.order.attempt_id, events))

    def _report(self, phase: str) -> None:
        self.phase = phase
        if phase == "released":
            self.released.set()
        self._tell(RunPhase(self.order.attempt_id, phase, time.time(), self.outcome))

    def view(self) -> NodeRun:
        is_own = self._save is not None and self._save.attempt == self.order.attempt
        save = self._save if is_own else None
        return NodeRun(self.order.attempt_id, self.phase, self.count, time.time(), self.outcome, save=save)


class StandInAgent(NodeAgentApi):
    """The methods of the contract; of a gang over nodes only the first one does anything."""

    def __init__(self, config: bytes) -> None:
        self._config = decode(config, AgentConfig)
        self._node = ray.get_runtime_context().get_node_id()
        self._incarnation = secrets.token_hex(4)
        self._runs: dict[AttemptId, Run] = {}
        self._ordered: dict[AttemptId, StartOrder] = {}
        self._lent: set[AttemptId] = set()
        self._tasks: list[asyncio.Task] = []
        self._reporter = Reporter(self._config, self._node, self._incarnation)
        self._marks = Path(self._config.runtime) / "begun"
        self._marks.mkdir(parents=True, exist_ok=True)
        (Path(self._config.runtime) / "agent.pid").write_text(str(os.getpid()))
        self._spawn(self._reporter.send_forever())
        self._spawn(self._introduce())

    async def _introduce(self) -> None:
        await self._reporter.listen(self)
        await self._reporter.report_node(pack(self._info()))

    def _spawn(self, work: object) -> None:
        self._tasks.append(asyncio.get_event_loop().create_task(work))

    def _info(self) -> NodeInfo:
        return NodeInfo(
            node=self._node,
            host=os.uname().nodename,
            incarnation=self._incarnation,
            python="3",
            version=__version__,
            gpus=self._gpus(),
            memory_bytes=8 << 30,
            cpus=2,
            simulated=True,
            protocol=AGENT_PROTOCOL,
        )

    def _gpus(self) -> list[GpuInfo]:
        return [GpuInfo(str(i), "Simulated H100", f"GPU-{i}", 80 << 30, 0, 0.0, True) for i in range(4)]

    async def hello(self) -> Packed[NodeInfo]:
        return pack(self._info())

    async def prepare(self, order: Packed[PrepareOrder]) -> None:
        """Everything is there."""

    async def end_session(self, session: str) -> None:
        """Nothing was prepared."""

    async def installed_packages(self, pythons: list[str]) -> Packed[ClusterPackages]:
        return pack(ClusterPackages(Installed("3", "here", {}, [])))

    async def check_environment(self, plan: Packed[Plan]) -> Packed[PackagesAnswer]:
        return pack(PackagesAnswer())

    async def resolve_packages(self, question: Packed[Question]) -> Packed[Versions]:
        return pack(Versions())

    async def build_environment(
        self, plan: Packed[Plan], wheels: list[bytes], owner: Packed[UnixUser] | None = None
    ) -> Packed[BuildReport]:
        return pack(BuildReport())

    async def list_environments(self) -> Packed[list[EnvironmentRow]]:
        return pack([])

    async def remove_environment(self, digest: str) -> bool:
        return False

    async def count_fetched(self, plan: Packed[Plan]) -> int:
        return 0

    async def stop_build(self, digest: str) -> None:
        """It builds nothing."""

    async def environment(self, imports: list[str]) -> Packed[Environment]:
        return pack(Environment("3"))

    async def start(self, order: Packed[StartOrder]) -> None:
        found = unpack(order, StartOrder)
        await self._end_older(found.attempt_id)
        if found.attempt_id in self._runs:
            return
        if found.gpu_ids is None:
            self._ordered.setdefault(found.attempt_id, found)
        else:
            self._ordered.pop(found.attempt_id, None)
            self._begin(found)

    async def _end_older(self, attempt_id: AttemptId) -> None:
        known = {*self._runs, *self._ordered, *self._lent}
        if any(attempt_id.is_before(other) for other in known):
            raise ClusterError(f"a later attempt of run {attempt_id.run} is on this node already")
        for older in [other for other in known if other.is_before(attempt_id)]:
            await self._end_attempt(older)
            (self._marks / str(older)).unlink(missing_ok=True)

    async def _end_attempt(self, attempt_id: AttemptId) -> None:
        self._lent.discard(attempt_id)
        if self._ordered.pop(attempt_id, None) is None and (run := self._runs.get(attempt_id)) is not None:
            run.signalled = "kill"
            await run.released.wait()
            self._runs.pop(attempt_id, None)

    async def grant(self, attempt_id: Packed[AttemptId], gpu_ids: list[str]) -> None:
        found = unpack(attempt_id, AttemptId)
        if found in self._lent or found in self._runs:
            return
        if found not in self._ordered:
            raise ClusterError(f"run {found.run} is not known on this node (its agent was started anew)")
        self._begin(msgspec.structs.replace(self._ordered.pop(found), gpu_ids=gpu_ids))

    def _begin(self, order: StartOrder) -> None:
        self._runs[order.attempt_id] = run = Run(order, self._reporter.report, self._marks / str(order.attempt_id))
        self._spawn(run.carry_out())

    async def has_begun(self, attempt_id: Packed[AttemptId]) -> bool:
        found = unpack(attempt_id, AttemptId)
        return found in self._runs or (self._marks / str(found)).exists()

    async def forget_unbegun(self, attempt_id: Packed[AttemptId]) -> bool:
        return self._ordered.pop(unpack(attempt_id, AttemptId), None) is not None

    async def abandon(self, attempt_id: Packed[AttemptId]) -> None:
        self._spawn(self._end_attempt(unpack(attempt_id, AttemptId)))

    async def open_rank_listener(self) -> tuple[str, int]:
        """A gang over nodes is one script, on its first node: nobody calls here."""
        return "127.0.0.1", 1

    async def start_remote_ranks(self, order: Packed[JoinOrder]) -> None:
        """It lends ranks that do nothing."""
        found = unpack(order, JoinOrder)
        await self._end_older(found.attempt_id)
        self._lent.add(found.attempt_id)

    async def has_remote_ranks(self, attempt_id: Packed[AttemptId]) -> bool:
        return unpack(attempt_id, AttemptId) in self._lent

    async def end_remote_ranks(self, attempt_id: Packed[AttemptId]) -> None:
        await self._end_attempt(unpack(attempt_id, AttemptId))

    async def lose_member(self, attempt_id: Packed[AttemptId], node: str) -> None:
        """No rank of a gang does anything elsewhere."""

    async def give_up_results(self, attempt_id: Packed[AttemptId], reason: str) -> bool:
        return False

    async def keep_results(self, attempt_id: Packed[AttemptId], folder: str, outcome: Packed[Outcome]) -> None:
        """It does not come to write them either."""

    async def signal(self, attempt_id: Packed[AttemptId], name: str, reason: str = "interrupted") -> None:
        run = self._runs.get(unpack(attempt_id, AttemptId))
        if run is not None and run.signalled != "kill":  # an interrupt before it may come behind it
            run.is_ended = reason == "preempted"
            run.signalled = name

    async def step_aside(self, attempt_id: Packed[AttemptId]) -> bool:
        run = self._runs.get(unpack(attempt_id, AttemptId))
        return run is not None and run.step_aside()

    async def answer_rank(self, attempt_id: Packed[AttemptId], rank: int, body: bytes) -> None:
        if (run := self._runs.get(unpack(attempt_id, AttemptId))) is not None:
            write_atomic(Path(run.order.folder) / f"answer-{rank}", [body], durable=False)

    async def runs(self) -> Packed[list[NodeRun]]:
        ordered = [NodeRun(attempt_id, "ordered") for attempt_id in self._ordered]
        lent = [NodeRun(attempt_id, "running", is_lent=True) for attempt_id in self._lent]
        return pack([*(run.view() for run in self._runs.values()), *ordered, *lent])

    async def events(self, attempt_id: Packed[AttemptId], after: int) -> Packed[list[Event]]:
        found = self._runs.get(unpack(attempt_id, AttemptId))
        return pack(list(read_events(RunPaths(Path(found.order.folder)).events, after)) if found else [])

    async def forget_runs(self, attempt_ids: Packed[list[AttemptId]]) -> None:
        for attempt_id in unpack(attempt_ids, list[AttemptId]):
            if attempt_id in self._runs and self._runs[attempt_id].phase == "final":
                del self._runs[attempt_id]
            (self._marks / str(attempt_id)).unlink(missing_ok=True)

    async def missing_imports(self, names: list[str]) -> list[str]:
        return [name for name in names if name.startswith("missing_")]

    async def gpus(self) -> Packed[list[GpuInfo]]:
        return pack(self._gpus())

    async def probe_store(self, path: str) -> str:
        return ""

    async def probe_node(self, order: Packed[ProbeOrder]) -> Packed[ProbeReport]:
        asked = unpack(order, ProbeOrder)
        return pack(ProbeReport(asked.ports, asked.names))
