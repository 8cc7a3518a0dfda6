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
from ...host.background import BackgroundWork
from ...host.gpu_reader import GpuReader
from ...host.gpus import Nvml
from ...host.process_control import machine_bytes
from ...protocol.config import UnixUser
from ...protocol.environments import (
    BuildReport,
    ClusterPackages,
    EnvironmentRow,
    PackagesAnswer,
    Plan,
    Question,
    Versions,
)
from ...protocol.events import Event
from ...protocol.lineage import Environment
from ...protocol.node import (
    AGENT_PROTOCOL,
    AgentConfig,
    AttemptId,
    GpuInfo,
    GrantNotice,
    JoinOrder,
    NodeAgentApi,
    NodeInfo,
    NodeRun,
    PrepareOrder,
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
from ...settings.built_in import BUILT_IN
from ...store.identity import read_identity
from ...store.run_folders import probe_store
from ..gang.layout import NodeLocation
from ..results.pending_results import PendingResults
from .environments import NodeEnvironments
from .fork_server import EarlyServer
from .fork_servers import ForkServers
from .gpu_ids import gpu_ids, visible_to
from .gpu_use import UseMeter
from .packages import Packages, missing_packages
from .probe import probe
from .recorder import Reporter
from .remote_ranks import RankForwarders, RemoteRankListener
from .run import AdoptedRun, RunOnNode
from .store_watch import StoreWatch

#: part of the machine's memory that cells may use at most, and what this node's own processes take
USABLE: float = BUILT_IN["memory_share"].default
_OWN_BYTES: int = BUILT_IN["node_memory_bytes"].default
#: of what cells may use, the least that a run gets by default
LEAST_SHARE = 0.05


def default_memory_bytes(order: StartOrder, gpus: int, cpus: int) -> int:
    """A default limit in bytes, so that no cell takes the others down: the run's share of a node with so many."""
    part = order.gpus / gpus if order.gpus and gpus else min(1.0, (order.cpus or 1) / max(cpus, 1))
    return int(usable_bytes(machine_bytes()) * max(part, LEAST_SHARE))


def usable_bytes(memory_bytes: int) -> float:
    """Memory that all cells of a node with so much may use: above it the system would end something of the node."""
    return max(memory_bytes / 2, min(memory_bytes * USABLE, memory_bytes - _OWN_BYTES))


_END_S = 2.0


def watch_raylet(on_gone: Callable[[], None]) -> None:
    """Have ``on_gone`` called when the raylet, this process's parent, is gone."""
    asyncio.get_event_loop().add_reader(os.pidfd_open(os.getppid()), on_gone)


def end_node_processes(node: str, environments: NodeEnvironments, pending: PendingResults) -> None:
    """End everything of this node but what keeps results; does not return."""
    deadline = time.monotonic() + _END_S
    spilling = frozenset(pending.spill_all())
    environments.kill_all()  # supervisors get SIGTERM by it, end their descendants, then themselves
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

    def __init__(self, runtime: str, node: str, on_told: Callable[[AttemptId, list[str]], bool]) -> None:
        self._on_told = on_told
        #: told of before the order came
        self._early: dict[AttemptId, list[str]] = {}
        path = Path(grant_socket(runtime, node))
        path.unlink(missing_ok=True)
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._sock.bind(str(path))
        path.chmod(0o600)
        asyncio.get_event_loop().add_reader(self._sock, self._hear)

    def pop_early_grant(self, attempt_id: AttemptId) -> list[str] | None:
        """The accelerators of an attempt whose order comes only now; None when they are not known yet."""
        return self._early.pop(attempt_id, None)

    def _hear(self) -> None:
        with contextlib.suppress(BlockingIOError, msgspec.MsgspecError):
            while True:
                told = decode(self._sock.recv(1 << 16), GrantNotice)
                if not self._on_told(told.attempt_id, told.gpu_ids):
                    self._early = {**dict(list(self._early.items())[-_MOST_EARLY:]), told.attempt_id: told.gpu_ids}


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
#: ranks are killed within milliseconds; a node that has not done so after this is in trouble
_LEFT_S = 10.0
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
        self._runs: dict[AttemptId, RunOnNode | AdoptedRun] = {}
        self._ungranted: dict[AttemptId, RunOnNode] = {}
        #: attempts that are being ended
        self._ending: set[AttemptId] = set()
        self._spawn = BackgroundWork().spawn
        self._reporter = Reporter(self._config, self._node, self._incarnation)
        self._store = StoreWatch(self._config.store, self._pending.acting)
        self._packages = Packages()
        self._servers = ForkServers(self._config, self._node, gpus=self._gpu_total, early=early)
        marks = Path(self._config.runtime) / f"begun-{self._node[:8]}"
        marks.mkdir(mode=0o700, exist_ok=True)
        self._where = NodeLocation(address=ray.util.get_node_ip_address(), marks=str(marks))
        self._remote_ranks = RemoteRankListener(self._where.address, self._gang_of)
        self._environments = NodeEnvironments(self._config, self._node, self._servers)
        self._forwarders = RankForwarders(self._environments.standing_servers, self._where.address, self._meter)
        watch_raylet(self._on_raylet_gone)
        self._adopt()
        self._grant_listener = GrantListener(self._config.runtime, self._node, self._on_told)
        self._lease_worker = LeaseWorker(self._config.runtime, self._node)
        self._spawn(self._reporter.send_forever())
        self._spawn(self._servers.prepared.watch_forever())
        self._spawn(self._environments.collect_forever())
        self._spawn(self._warm_up())

    # ------------------------------------------------------------------------- Ray's methods
    async def hello(self) -> Packed[NodeInfo]:
        """Facts about this node."""
        await self._environments.look()
        return pack(msgspec.structs.replace(self._info(), now_s=time.time()))

    async def start(self, order: Packed[StartOrder]) -> None:
        """Carry out an order; returns when accepted, a second time for the same attempt does nothing.

        Older attempts are ended first. Ranks get ready at once; the cell begins when its accelerators are known.
        """
        found = unpack(order, StartOrder)
        await self._end_older(found.attempt_id)
        self._take(found)

    def _take(self, order: StartOrder) -> None:
        attempt_id = order.attempt_id
        if attempt_id in self._runs:
            return
        if attempt_id in self._ungranted:  # ordered by a gateway that died before it was granted
            if order.gpu_ids is not None:
                self._grant(attempt_id, order.gpu_ids)
            return
        run = self._ungranted[attempt_id] = self._made(order)
        self._spawn(self._carry_out(run))
        ids = order.gpu_ids if order.gpu_ids is not None else self._grant_listener.pop_early_grant(attempt_id)
        if ids is not None:
            self._grant(attempt_id, ids)

    async def _end_older(self, attempt_id: AttemptId) -> None:
        """Return when no process of an older attempt is left, nor of a try at this one that is being ended.

        Raises :class:`ClusterError` when that takes long.
        """
        known = {*self._runs, *self._ungranted, *self._forwarders.by_attempt}
        if any(attempt_id.is_before(other) for other in known):
            raise ClusterError(f"a later attempt of run {attempt_id.run} is on this node already")
        for older in [other for other in known if other.is_before(attempt_id) or other in self._ending & {attempt_id}]:
            log.info("what is left of attempt %s is ended, since attempt %s is to begin", older, attempt_id)
            try:
                await asyncio.wait_for(self._end_attempt(older), _LEFT_S)
            except TimeoutError:
                raise ClusterError(f"an earlier attempt of run {older.run} has not ended on this node yet") from None
            if older != attempt_id:
                (Path(self._where.marks) / str(older)).unlink(missing_ok=True)

    async def _end_attempt(self, attempt_id: AttemptId) -> None:
        """End an attempt that nobody wants, with its results; returns when none of its processes is left."""
        self._ending.add(attempt_id)
        try:
            if not self._forget_unbegun(attempt_id) and (found := self._runs.get(attempt_id)) is not None:
                found.signal_ranks("kill", "lost")
                await found.released.wait()
                self._pending.give_up_results(attempt_id, "nobody waits for them any more")
                self._runs.pop(attempt_id, None)
                self._pending.forget_attempt(attempt_id)
            await self._forwarders.end_ranks(attempt_id)
        finally:
            self._ending.discard(attempt_id)

    async def grant(self, attempt_id: Packed[AttemptId], gpu_ids: list[str]) -> None:
        """The attempt's accelerators; does nothing when they are known already."""
        found = unpack(attempt_id, AttemptId)
        if (forwarder := self._forwarders.by_attempt.get(found)) is not None:
            forwarder.grant(gpu_ids)
            return
        self._grant(found, gpu_ids)
        if found not in self._runs:
            raise ClusterError(f"run {found.run} is not known on this node (its agent was started anew)")

    async def abandon(self, attempt_id: Packed[AttemptId]) -> None:
        """Nobody wants it: forget it; if it may have begun, it is ended, and its results are dropped."""
        found = unpack(attempt_id, AttemptId)
        self._forwarders.abandon(found)
        if not self._forget_unbegun(found):
            self._spawn(self._end_attempt(found))

    async def forget_unbegun(self, attempt_id: Packed[AttemptId]) -> bool:
        """Forget an attempt that no process has been told to begin; False: it may have begun, or is not known."""
        return self._forget_unbegun(unpack(attempt_id, AttemptId))

    def _forget_unbegun(self, attempt_id: AttemptId) -> bool:
        self._grant_listener.pop_early_grant(attempt_id)
        found = self._ungranted.pop(attempt_id, None)
        if found is not None:
            found.abandon()
            return True
        granted = self._runs.get(attempt_id)
        if isinstance(granted, RunOnNode) and granted.withdraw():
            del self._runs[attempt_id]
            return True
        return False

    async def open_rank_listener(self) -> tuple[str, int]:
        """Address and port at which other nodes lend their ranks to gangs that this one leads."""
        return await self._remote_ranks.listen()

    async def start_remote_ranks(self, order: Packed[JoinOrder]) -> None:
        """Lend ranks to a gang; returns when accepted."""
        join = unpack(order, JoinOrder)
        await self._end_older(join.attempt_id)
        await self._forwarders.wait_until_left(join.attempt_id)
        forwarder = self._forwarders.new_forwarder(join)
        if forwarder is not None:
            self._spawn(self._forwarders.run_to_end(join.attempt_id, forwarder))
            ids = join.gpu_ids if join.gpu_ids is not None else self._grant_listener.pop_early_grant(join.attempt_id)
            if ids is not None:
                forwarder.grant(ids)

    async def has_remote_ranks(self, attempt_id: Packed[AttemptId]) -> bool:
        """Tell if ranks are lent to this gang."""
        return unpack(attempt_id, AttemptId) in self._forwarders.by_attempt

    async def end_remote_ranks(self, attempt_id: Packed[AttemptId]) -> None:
        """The attempt is over: returns when none of its processes is left here."""
        await self._end_attempt(unpack(attempt_id, AttemptId))

    async def lose_member(self, attempt_id: Packed[AttemptId], node: str) -> None:
        """A node that lends ranks to a gang led here is gone."""
        found = self._gang_of(unpack(attempt_id, AttemptId))
        if found is not None:
            found.gang.lose_node(node)

    async def has_begun(self, attempt_id: Packed[AttemptId]) -> bool:
        """Tell if an attempt was granted here, or began in an earlier life of this agent (its processes are gone)."""
        found = unpack(attempt_id, AttemptId)
        return found in self._runs or (Path(self._where.marks) / str(found)).exists()

    async def signal(self, attempt_id: Packed[AttemptId], name: str, reason: str = "interrupted") -> None:
        """``interrupt`` or ``kill`` an attempt; unknown ones are ignored (they have ended)."""
        found = self._runs.get(unpack(attempt_id, AttemptId))
        if found is not None:
            found.signal_ranks(name, reason)

    async def step_aside(self, attempt_id: Packed[AttemptId]) -> bool:
        """Have a restartable run stop at its next safe point; False: it cannot (any more)."""
        found = self._gang_of(unpack(attempt_id, AttemptId))
        return found is not None and found.preempt()

    async def answer_rank(self, attempt_id: Packed[AttemptId], rank: int, body: bytes) -> None:
        """The kernel's :class:`.Answer` to a rank that has asked; unknown attempts are ignored."""
        if (found := self._gang_of(unpack(attempt_id, AttemptId))) is not None:
            found.gang.answer_rank(rank, body)

    async def runs(self) -> Packed[list[NodeRun]]:
        """All attempts that are not forgotten yet, orders that wait for their GPUs, and ranks that are lent."""
        ordered = [msgspec.structs.replace(run.view(), phase="ordered") for run in self._ungranted.values()]
        lent = [NodeRun(attempt_id, "running", is_lent=True) for attempt_id in self._forwarders.by_attempt]
        return pack([*(run.view() for run in self._runs.values()), *ordered, *lent])

    async def events(self, attempt_id: Packed[AttemptId], after: int) -> Packed[list[Event]]:
        """Events above ``after``, from the run's log."""
        found = self._runs.get(unpack(attempt_id, AttemptId))
        return pack(await self._pending.threads.run(found.events_after, after, at=Path(found.folder)) if found else [])

    async def forget_runs(self, attempt_ids: Packed[list[AttemptId]]) -> None:
        """The gateway has recorded the end of these attempts."""
        for attempt_id in unpack(attempt_ids, list[AttemptId]):
            found = self._runs.get(attempt_id)
            if found is not None and found.phase == "final":
                del self._runs[attempt_id]
                self._pending.forget_attempt(attempt_id)
            (Path(self._where.marks) / str(attempt_id)).unlink(missing_ok=True)

    async def give_up_results(self, attempt_id: Packed[AttemptId], reason: str) -> bool:
        """Drop results that are not durable yet; False: there are none."""
        return self._pending.give_up_results(unpack(attempt_id, AttemptId), reason)

    async def keep_results(self, attempt_id: Packed[AttemptId], folder: str, outcome: Packed[Outcome]) -> None:
        """Make small results durable that the gateway has and an earlier agent did not come to write."""
        found = unpack(attempt_id, AttemptId)
        if found not in self._runs:
            self._take_over(found, folder, unpack(outcome, Outcome))

    async def missing_imports(self, names: list[str]) -> list[str]:
        """Return the top-level packages of ``names`` that are not installed here."""
        return missing_packages(names)

    async def prepare(self, order: Packed[PrepareOrder]) -> None:
        """Have modules imported for cells that are to come."""
        await self._servers.prepared.prepare(unpack(order, PrepareOrder))

    async def end_session(self, session: str) -> None:
        """A kernel has ended."""
        self._servers.prepared.end_session(session)

    async def environment(self, imports: list[str]) -> Packed[Environment]:
        """The packages that these imports mean here, with those that they require."""
        return pack(await asyncio.to_thread(self._packages.environment, imports))

    async def installed_packages(self, pythons: list[str]) -> Packed[ClusterPackages]:
        """Packages that are installed here, and in these other Pythons."""
        return pack(await self._environments.packages_with(pythons))

    async def check_environment(self, plan: Packed[Plan]) -> Packed[PackagesAnswer]:
        """Tell if its packages can be had."""
        return pack(await self._environments.check(unpack(plan, Plan)))

    async def resolve_packages(self, question: Packed[Question]) -> Packed[Versions]:
        """Versions of packages for an environment."""
        return pack(await self._environments.resolve(unpack(question, Question)))

    async def build_environment(
        self, plan: Packed[Plan], wheels: list[bytes], owner: Packed[UnixUser] | None = None
    ) -> Packed[BuildReport]:
        """Build it if it is not there, and start its fork server."""
        user = unpack(owner, UnixUser) if owner is not None else None
        return pack(await self._environments.build(unpack(plan, Plan), wheels, user))

    async def list_environments(self) -> Packed[list[EnvironmentRow]]:
        """List the environments that are ready."""
        return pack(await self._environments.list_environments())

    async def remove_environment(self, digest: str) -> bool:
        """Remove one that nobody uses."""
        return await self._environments.remove(digest)

    async def count_fetched(self, plan: Packed[Plan]) -> int:
        """Count its packages that are here."""
        return await self._environments.count_fetched(unpack(plan, Plan))

    async def stop_build(self, digest: str) -> None:
        """Nobody waits for it any more."""
        await self._environments.stop_build(digest)

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
        asked, environments = unpack(order, ProbeOrder), self._environments
        report, store_id, problem, pythons, owned = await asyncio.gather(
            probe(asked),
            self._read_store_id(),
            environments.find_problem(),
            environments.try_pythons(asked.pythons),
            environments.owned_versions(asked.owned),
        )
        return pack(
            msgspec.structs.replace(
                report,
                driver_cuda=self._reader.driver_cuda,
                store_id=store_id,
                environments_problem=problem,
                pythons=pythons,
                owned=owned,
            )
        )

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
            outcome = self._pending.reported_outcome(waiting.attempt_id)
            if outcome is not None:
                self._take_over(waiting.attempt_id, waiting.folder, outcome)

    def _on_wait(self, attempt_id: AttemptId, wait: PersistWait) -> None:
        adopted = self._runs.get(attempt_id)
        if isinstance(adopted, AdoptedRun):
            adopted.on_wait(wait)

    def _take_over(self, attempt_id: AttemptId, folder: str, outcome: Outcome) -> None:
        adopted = AdoptedRun(attempt_id, folder, outcome, self._pending, self._reporter.report)
        self._runs[attempt_id] = adopted
        self._spawn(adopted.run_to_end())

    def _on_told(self, attempt_id: AttemptId, gpu_ids: list[str]) -> bool:
        if (forwarder := self._forwarders.by_attempt.get(attempt_id)) is not None:
            forwarder.grant(gpu_ids)
            return True
        self._grant(attempt_id, gpu_ids)
        return attempt_id in self._runs

    def _grant(self, attempt_id: AttemptId, gpu_ids: list[str]) -> None:
        found = self._ungranted.get(attempt_id)
        if found is not None and found.grant(gpu_ids):
            self._runs[attempt_id] = self._ungranted.pop(attempt_id)

    def _made(self, order: StartOrder) -> RunOnNode:
        if not order.memory_bytes:
            order = msgspec.structs.replace(
                order, memory_bytes=default_memory_bytes(order, self._gpu_total, self._cpu_total)
            )
        owner = order.owner if order.as_owner else None
        servers = self._environments.standing_servers(order.environment, owner)
        return RunOnNode(order, servers, self._meter, self._pending, self._reporter.report, self._where)

    def _gang_of(self, attempt_id: AttemptId) -> RunOnNode | None:
        found = self._ungranted.get(attempt_id) or self._runs.get(attempt_id)
        return found if isinstance(found, RunOnNode) else None

    async def _carry_out(self, run: RunOnNode) -> None:
        await run.run_to_end()
        attempt_id = run.order.attempt_id
        if self._ungranted.get(attempt_id) is run:  # else it was ordered anew meanwhile
            del self._ungranted[attempt_id]
        if run.unbegun and self._runs.get(attempt_id) is run:
            del self._runs[attempt_id]
            self._reporter.report(RunUnbegun(attempt_id, run.unbegun))

    async def _warm_up(self) -> None:
        """Introduce this node; one that can start no cells takes no runs (``trouble``), and tries again."""
        await asyncio.gather(self._see_to_servers(), self._environments.look())
        await self._store.ask_store()
        self._spawn(self._store.watch_forever())
        await self._read_gpus()
        await self._reporter.listen(self)
        await self._reporter.report_node(pack(self._info()))
        if not self._config.simulated:
            self._spawn(self._watch_gpus())
        while True:  # what was in the way at some later time may be gone, too
            await asyncio.sleep(_AGAIN_S)
            if self._servers.trouble:
                await self._see_to_servers()

    async def _see_to_servers(self) -> None:
        try:
            await self._servers.current_server()
        except (GpuReleaseError, OSError) as error:
            log.error("this node takes no runs: %s", error)

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
            node=self._node,
            host=socket.gethostname(),
            incarnation=self._incarnation,
            python=platform.python_version(),
            version=__version__,
            gpus=self._gpus(),
            memory_bytes=process_control.machine_bytes(),
            cpus=self._cpu_total,
            simulated=self._config.simulated,
            versions={"ray": ray.__version__, "driver": self._reader.driver},
            notes=self._notes(),
            has_lease_worker=self._lease_worker.has_worker,
            trouble=self._store.trouble or self._servers.trouble,
            protocol=AGENT_PROTOCOL,
            prepared=self._servers.prepared.info,
            max_prepared=self._config.max_prepared,
            prepared_gone=self._servers.prepared.gone,
            packages=self._environments.packages,
            environment_bytes=self._environments.memory_bytes,
        )

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
        end_node_processes(self._node, self._environments, self._pending)
