"""The agent actor; grants, raylet watch, simulated GPUs.

The agent also says which of Ray's workers stays for them (``gateway/cluster/lease_workers.py``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import platform
import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil
import ray

from ..._version import __version__
from ...errors import ClusterError, GpuReleaseError, StoreError
from ...host import process_control
from ...host.gpu_reader import GpuReader
from ...host.gpus import Nvml
from ...host.process_control import machine_bytes
from ...protocol.events import Event
from ...protocol.lineage import Environment
from ...protocol.node import (
    AgentConfig,
    GpuInfo,
    GrantNotice,
    JoinOrder,
    NodeAgentApi,
    NodeInfo,
    NodeRun,
    ProbeOrder,
    ProbeReport,
    RunUnbegun,
    StartOrder,
    early_server_path,
    grant_socket,
    lease_worker_socket,
)
from ...protocol.runs import Outcome, PersistWait
from ...protocol.wire import Packed, decode, pack, unpack
from ...store.identity import read_identity
from ...store.run_folders import probe_store
from ..gang.layout import NodeLocation
from ..results.pending_results import PendingResults
from .early_server import EarlyServer
from .fork_servers import ForkServers
from .gpu_ids import gpu_ids, visible_to
from .gpu_use import UseMeter
from .packages import Packages, missing_packages
from .probe import probe
from .recorder import Reporter
from .remote_ranks import RankForwarders, RemoteRankListener
from .run import AdoptedRun, RunOnNode
from .store_watch import StoreWatch

#: part of the machine's memory that cells may use, and the least share of it that a run gets by default
USABLE = 0.9
LEAST_SHARE = 0.05


def default_memory_bytes(order: StartOrder, gpus: int, cpus: int) -> int:
    """A default limit in bytes, so that no cell takes the others down: the run's share of a node with so many."""
    part = order.gpus / gpus if order.gpus and gpus else min(1.0, (order.cpus or 1) / max(cpus, 1))
    return int(machine_bytes() * USABLE * max(part, LEAST_SHARE))


_END_S = 2.0


def watch_raylet(on_gone: Callable[[], None]) -> None:
    """Have ``on_gone`` called when the raylet, this process's parent, is gone."""
    asyncio.get_event_loop().add_reader(os.pidfd_open(os.getppid()), on_gone)


def end_node_processes(node: str, servers: ForkServers, pending: PendingResults) -> None:
    """End everything of this node but what keeps results; does not return."""
    deadline = time.monotonic() + _END_S
    spilling = frozenset(pending.spill_all())
    servers.kill_all()  # supervisors get SIGTERM by it, end their descendants, then themselves
    children = psutil.Process().children(recursive=True)
    psutil.wait_procs(children, timeout=max(0.0, deadline - time.monotonic()))
    process_control.end_marked(process_control.NODE_MARKER, node, spare=spilling)
    os._exit(1)


def simulated_gpus(ids: list[str]) -> list[GpuInfo]:
    """GPUs that exist in Ray's bookkeeping only."""
    return [GpuInfo(index=index, name="simulated GPU", simulated=True) for index in ids]


def counted_resources(node: str) -> tuple[int, int]:
    """GPUs and CPUs that Ray counts on this node."""
    for entry in ray.nodes():
        if entry["NodeID"] == node:
            resources = entry["Resources"]
            return int(resources.get("GPU", 0)), int(resources.get("CPU", 0)) or os.cpu_count() or 1
    return 0, os.cpu_count() or 1


_MOST_EARLY = 64


class GrantListener:
    """``on_told`` takes in the accelerators of a run, and says whether the run is known here."""

    def __init__(self, runtime: str, node: str, on_told: Callable[[str, list[str]], bool]) -> None:
        self._on_told = on_told
        #: told of before the order came
        self._early: dict[str, list[str]] = {}
        path = Path(grant_socket(runtime, node))
        path.unlink(missing_ok=True)
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._sock.bind(str(path))
        path.chmod(0o600)
        asyncio.get_event_loop().add_reader(self._sock, self._hear)

    def pop_early_grant(self, run: str) -> list[str] | None:
        """The accelerators of a run whose order comes only now; None when they are not known yet."""
        return self._early.pop(run, None)

    def _hear(self) -> None:
        with contextlib.suppress(BlockingIOError, msgspec.MsgspecError):
            while True:
                told = decode(self._sock.recv(1 << 16), GrantNotice)
                if not self._on_told(told.run, told.gpu_ids):
                    self._early = {**dict(list(self._early.items())[-_MOST_EARLY:]), told.run: told.gpu_ids}


class LeaseWorker:
    """Holds on to one worker process: it stays while this connection does, others end as Ray likes."""

    def __init__(self, runtime: str, node: str) -> None:
        self._line: socket.socket | None = None
        path = Path(lease_worker_socket(runtime, node))
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._listener.bind(str(path))
        path.chmod(0o600)
        self._listener.listen()
        asyncio.get_event_loop().add_reader(self._listener, self._take)

    @property
    def has_worker(self) -> bool:
        """Tell if a worker is held."""
        return self._line is not None

    def _take(self) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            line, _ = self._listener.accept()
            if self._line is not None:
                line.close()
                return
            self._line = line
            asyncio.get_event_loop().add_reader(line, self._on_gone)

    def _on_gone(self) -> None:
        """Note the end of a process that never says anything else."""
        if self._line is not None:
            asyncio.get_event_loop().remove_reader(self._line)
            self._line.close()
            self._line = None


log = logging.getLogger(__name__)
#: processes of an earlier agent get so long to go: they may hold gigabytes
_AGENT_END_S = 60.0
#: until a node that can start no cells tries again
_AGAIN_S = 30.0
#: a driver that has not answered after this is in trouble
_READING_S = 1.5
#: between readings of GPUs that nobody asked for
_HEALTH_S = 5.0


class NodeAgent(NodeAgentApi):
    """The agent of one node: a detached Ray actor that holds its runs, its processes and its GPUs."""

    def __init__(self, config: bytes) -> None:
        self._config = decode(config, AgentConfig)
        context = ray.get_runtime_context()
        self._node: str = context.get_node_id()
        self._incarnation = secrets.token_hex(8)
        Path(self._config.runtime).mkdir(mode=0o700, parents=True, exist_ok=True)
        early = EarlyServer.claim(early_server_path(self._config.runtime, self._node))
        spare = process_control.persisters() | ({early.pid} if early is not None else set())
        # whatever an earlier agent of this node left behind
        process_control.end_marked(process_control.NODE_MARKER, self._node, spare=spare, wait_s=_AGENT_END_S)
        self._pending = PendingResults(self._config, self._node)
        self._gpu_total, self._cpu_total = counted_resources(self._node)
        self._gpu_ids = gpu_ids(self._gpu_total, visible_to(os.getppid()))
        self._reader = GpuReader(Nvml(self._gpu_ids))
        self._meter = None if self._config.simulated else UseMeter(self._reader)
        self._runs: dict[str, RunOnNode | AdoptedRun] = {}
        self._ungranted: dict[str, RunOnNode] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._reporter = Reporter(self._config, self._node, self._incarnation)
        self._store = StoreWatch(self._config.store, self._pending.acting)
        self._packages = Packages()
        self._servers = ForkServers(self._config, self._node, gpus=self._gpu_total, early=early)
        marks = Path(self._config.runtime) / f"begun-{self._node[:8]}"
        marks.mkdir(mode=0o700, exist_ok=True)
        self._where = NodeLocation(address=ray.util.get_node_ip_address(), marks=str(marks))
        self._remote_ranks = RemoteRankListener(self._where.address, self._gang_of)
        self._forwarders = RankForwarders(self._servers, self._where.address, self._meter)
        watch_raylet(self._on_raylet_gone)
        self._adopt()
        self._grant_listener = GrantListener(self._config.runtime, self._node, self._on_told)
        self._lease_worker = LeaseWorker(self._config.runtime, self._node)
        self._spawn(self._reporter.send_forever())
        self._spawn(self._warm_up())

    # ------------------------------------------------------------------------- Ray's methods
    async def hello(self) -> Packed[NodeInfo]:
        """Facts about this node."""
        return pack(msgspec.structs.replace(self._info(), now_s=time.time()))

    async def start(self, order: Packed[StartOrder]) -> None:
        """Carry out an order; returns when accepted, a second time for the same run does nothing.

        Ranks get ready at once; the cell begins when the run's accelerators are known.
        """
        self._take(unpack(order, StartOrder))

    def _take(self, order: StartOrder) -> None:
        if order.run in self._runs:
            return
        if order.run in self._ungranted:  # ordered by a gateway that died before it was granted
            if order.gpu_ids is not None:
                self._grant(order.run, order.gpu_ids)
            return
        run = self._ungranted[order.run] = self._made(order)
        self._spawn(self._carry_out(run))
        ids = order.gpu_ids if order.gpu_ids is not None else self._grant_listener.pop_early_grant(order.run)
        if ids is not None:
            self._grant(order.run, ids)

    async def grant(self, run: str, gpu_ids: list[str]) -> None:
        """The run's accelerators; does nothing when they are known already."""
        if (forwarder := self._forwarders.by_run.get(run)) is not None:
            forwarder.grant(gpu_ids)
            return
        if run not in self._ungranted and run not in self._runs:
            raise ClusterError(f"run {run} is not known on this node (its agent was started anew)")
        self._grant(run, gpu_ids)

    async def abandon(self, run: str) -> None:
        """The run's lease came to nothing: forget it; if it may have begun, it is ended."""
        self._forwarders.abandon(run)
        if not await self.forget_unbegun(run) and run in self._runs:
            self._runs[run].signal_ranks("kill", "lost")

    async def forget_unbegun(self, run: str) -> bool:
        """Forget a run that no process has been told to begin; False: it may have begun, or is not known."""
        self._grant_listener.pop_early_grant(run)
        found = self._ungranted.pop(run, None)
        if found is not None:
            found.abandon()
            return True
        granted = self._runs.get(run)
        if isinstance(granted, RunOnNode) and granted.withdraw():
            del self._runs[run]
            return True
        return False

    async def open_rank_listener(self) -> tuple[str, int]:
        """Address and port at which other nodes lend their ranks to gangs that this one leads."""
        return await self._remote_ranks.listen()

    async def start_remote_ranks(self, order: Packed[JoinOrder]) -> None:
        """Lend ranks to a gang; returns when accepted."""
        join = unpack(order, JoinOrder)
        await self._forwarders.wait_until_left(join.run)
        forwarder = self._forwarders.new_forwarder(join)
        if forwarder is not None:
            self._spawn(self._forwarders.run_to_end(join.run, forwarder))
            ids = join.gpu_ids if join.gpu_ids is not None else self._grant_listener.pop_early_grant(join.run)
            if ids is not None:
                forwarder.grant(ids)

    async def has_remote_ranks(self, run: str) -> bool:
        """Tell if ranks are lent to this gang."""
        return run in self._forwarders.by_run

    async def end_remote_ranks(self, run: str) -> None:
        """The gang is over (or its leader is): returns when none of the ranks that were lent is left."""
        await self._forwarders.end_ranks(run)

    async def lose_member(self, run: str, node: str) -> None:
        """A node that lends ranks to a gang led here is gone."""
        found = self._gang_of(run)
        if found is not None:
            found.gang.lose_node(node)

    async def has_begun(self, run: str) -> bool:
        """Tell if a run was granted here, or began in an earlier life of this agent (whose processes are gone)."""
        return run in self._runs or (Path(self._where.marks) / run).exists()

    async def signal(self, run: str, name: str, reason: str = "interrupted") -> None:
        """``interrupt`` or ``kill`` a run; unknown runs are ignored (they have ended)."""
        found = self._runs.get(run)
        if found is not None:
            found.signal_ranks(name, reason)

    async def step_aside(self, run: str, attempt: int) -> bool:
        """Have a restartable run stop at its next safe point; False: it cannot (any more)."""
        found = self._gang_of(run)
        return found is not None and found.order.attempt == attempt and found.ask_to_step_aside()

    async def answer_rank(self, run: str, rank: int, body: bytes) -> None:
        """The kernel's :class:`.Answer` to a rank that has asked; unknown runs are ignored."""
        if (found := self._gang_of(run)) is not None:
            found.gang.answer_rank(rank, body)

    async def runs(self) -> Packed[list[NodeRun]]:
        """All runs that are not forgotten yet."""
        return pack([run.view() for run in self._runs.values()])

    async def events(self, run: str, after: int) -> Packed[list[Event]]:
        """Events above ``after``, from the run's log."""
        found = self._runs.get(run)
        return pack(await self._pending.threads.run(found.events_after, after, at=Path(found.folder)) if found else [])

    async def forget_runs(self, runs: list[str]) -> None:
        """The gateway has recorded the end of these runs."""
        for run in runs:
            found = self._runs.get(run)
            if found is not None and found.phase == "final":
                del self._runs[run]
                self._pending.forget_run(run)
            (Path(self._where.marks) / run).unlink(missing_ok=True)

    async def give_up_results(self, run: str, reason: str) -> bool:
        """Drop a run's results that are not durable yet; False: there are none."""
        return self._pending.give_up_results(run, reason)

    async def keep_results(self, run: str, folder: str, outcome: Packed[Outcome]) -> None:
        """Make small results durable that the gateway has and an earlier agent did not come to write."""
        if run not in self._runs:
            self._take_over(run, folder, unpack(outcome, Outcome))

    async def missing_imports(self, names: list[str]) -> list[str]:
        """Return the top-level packages of ``names`` that are not installed here."""
        return missing_packages(names)

    async def environment(self, imports: list[str]) -> Packed[Environment]:
        """The packages that these imports mean here, with those that they require."""
        return pack(await asyncio.to_thread(self._packages.environment, imports))

    async def gpus(self) -> Packed[list[GpuInfo]]:
        """All GPUs with memory and utilisation now."""
        await self._read_gpus()
        return pack(self._gpus())

    async def probe_store(self, path: str) -> str:
        """Write and read the store from this node: empty when well, else the error."""
        try:
            await self._pending.threads.run(probe_store, Path(path), at=Path(path))
        except GpuReleaseError as error:
            return str(error)
        return ""

    async def probe_node(self, order: Packed[ProbeOrder]) -> Packed[ProbeReport]:
        """The ways to the other nodes, and this one's frameworks and driver."""
        report, store_id = await asyncio.gather(probe(unpack(order, ProbeOrder)), self._read_store_id())
        return pack(msgspec.structs.replace(report, driver_cuda=self._reader.driver_cuda, store_id=store_id))

    async def _read_store_id(self) -> str | None:
        """None: the store cannot be read now, or each user has one."""
        if self._config.as_owners:
            return None
        with contextlib.suppress(StoreError):
            return await self._pending.threads.run(read_identity, Path(self._config.store))
        return None

    # ----------------------------------------------------------------------------- the inside
    def _adopt(self) -> None:
        """Results that an earlier agent of this node (or an earlier cluster) was still keeping."""
        alive = frozenset(entry["NodeID"] for entry in ray.nodes() if entry["Alive"])
        for waiting in self._pending.adopt_results(alive, self._on_wait):
            outcome = self._pending.reported_outcome(waiting.run)
            if outcome is not None:
                self._take_over(waiting.run, waiting.folder, outcome)

    def _on_wait(self, run: str, wait: PersistWait) -> None:
        adopted = self._runs.get(run)
        if isinstance(adopted, AdoptedRun):
            adopted.on_wait(wait)

    def _take_over(self, run: str, folder: str, outcome: Outcome) -> None:
        adopted = self._runs[run] = AdoptedRun(run, folder, outcome, self._pending, self._reporter.report)
        self._spawn(adopted.run_to_end())

    def _on_told(self, run: str, gpu_ids: list[str]) -> bool:
        if (forwarder := self._forwarders.by_run.get(run)) is not None:
            forwarder.grant(gpu_ids)
            return True
        self._grant(run, gpu_ids)
        return run in self._runs

    def _grant(self, run: str, gpu_ids: list[str]) -> None:
        found = self._ungranted.pop(run, None)
        if found is not None:
            self._runs[run] = found
            found.grant(gpu_ids)

    def _made(self, order: StartOrder) -> RunOnNode:
        if not order.memory_bytes:
            order = msgspec.structs.replace(
                order, memory_bytes=default_memory_bytes(order, self._gpu_total, self._cpu_total)
            )
        return RunOnNode(order, self._servers, self._meter, self._pending, self._reporter.report, self._where)

    def _gang_of(self, run: str) -> RunOnNode | None:
        found = self._ungranted.get(run) or self._runs.get(run)
        return found if isinstance(found, RunOnNode) else None

    async def _carry_out(self, run: RunOnNode) -> None:
        await run.run_to_end()
        if self._ungranted.get(run.order.run) is run:  # else it was ordered anew meanwhile
            del self._ungranted[run.order.run]
        if run.unbegun and self._runs.get(run.order.run) is run:
            del self._runs[run.order.run]
            self._reporter.report(RunUnbegun(run.order.run, run.unbegun))

    async def _warm_up(self) -> None:
        """Introduce this node; one that can start no cells takes no runs (``trouble``), and tries again."""
        is_working = await self._can_start_cells()
        await self._store.ask_store()
        self._spawn(self._store.watch_forever())
        await self._read_gpus()
        await self._reporter.listen(self)
        await self._reporter.report_node(pack(self._info()))
        if not self._config.simulated:
            self._spawn(self._watch_gpus())
        while not is_working:
            await asyncio.sleep(_AGAIN_S)
            is_working = await self._can_start_cells()

    async def _can_start_cells(self) -> bool:
        try:
            await self._servers.current_server()
        except (GpuReleaseError, OSError) as error:
            log.error("this node takes no runs: %s", error)
            return False
        return True

    async def _watch_gpus(self) -> None:
        """Have readings that are not old when the gateway asks: it takes GPUs out that are not well."""
        while True:
            await asyncio.sleep(_HEALTH_S)
            await self._read_gpus()

    async def _read_gpus(self) -> None:
        """Have a new reading; a driver that does not answer leaves the last one."""
        if not self._config.simulated and self._reader.silent_s < _READING_S:
            await asyncio.wait([asyncio.wrap_future(self._reader.ask())], timeout=_READING_S)

    def _info(self) -> NodeInfo:
        return NodeInfo(
            node=self._node, host=socket.gethostname(), incarnation=self._incarnation,
            python=platform.python_version(), version=__version__, gpus=self._gpus(),
            memory_bytes=process_control.machine_bytes(), cpus=self._cpu_total, simulated=self._config.simulated,
            versions={"ray": ray.__version__, "driver": self._reader.driver}, notes=self._notes(),
            has_lease_worker=self._lease_worker.has_worker,
            trouble=self._store.trouble or self._servers.trouble,
        )  # fmt: skip

    def _notes(self) -> list[str]:
        silent_s = self._reader.silent_s
        driver = [f"the GPU driver has not answered for {silent_s:.0f} s"] if silent_s > _READING_S else []
        if self._reader.problem and self._gpu_ids:
            driver.append(f"its GPUs cannot be watched: {self._reader.problem}")
        return [*driver, *self._servers.notes]

    def _gpus(self) -> list[GpuInfo]:
        """Those that Ray gives; what else the machine has is not this node's."""
        return simulated_gpus(self._gpu_ids) if self._config.simulated else self._reader.current()

    def _on_raylet_gone(self) -> None:
        for run in self._runs.values():
            run.signal_ranks("kill", "lost")
        end_node_processes(self._node, self._servers, self._pending)

    def _spawn(self, work: object) -> None:
        task: asyncio.Task[None] = asyncio.get_event_loop().create_task(work)  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
