"""The node agent: a detached Ray actor, one per node. Owns fork servers and the runs on this node."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import platform
import secrets
import socket
import time
from pathlib import Path

import msgspec
import psutil
import ray

from .. import __version__
from ..core.messages import AgentConfig, GpuInfo, NodeInfo, StartOrder, decode, encode
from ..errors import ClusterError, GpuReleaseError
from ..storage.runs import probe_store
from . import memory, process
from .fork_servers import ForkServers
from .gpu_use import UseMeter
from .gpus import Nvml, simulated_gpus
from .node_run import RunOnNode
from .reporter import Reporter


class NodeAgent:
    """Every argument and result is a msgpack record of core.messages."""

    def __init__(self, config: bytes) -> None:
        self._config = decode(config, AgentConfig)
        context = ray.get_runtime_context()
        self._node: str = context.get_node_id()
        self._incarnation = secrets.token_hex(8)
        Path(self._config.runtime).mkdir(mode=0o700, parents=True, exist_ok=True)
        # whatever an earlier agent of this node left behind
        process.end_marked(process.NODE_MARKER, self._node)
        self._nvml = Nvml()
        self._meter = UseMeter(self._nvml)
        self._runs: dict[str, RunOnNode] = {}
        self._prepared: dict[str, RunOnNode] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._reporter = Reporter(self._config, self._node, self._incarnation)
        self._problem = ""
        self._gpu_total, self._cpu_total = _resources(self._node)
        self._servers = ForkServers(self._config, self._node, gpus=self._gpu_total)
        self._watch_raylet()
        self._spawn(self._reporter.run())
        self._spawn(self._warm_up())

    # ------------------------------------------------------------------------- Ray's methods
    async def hello(self) -> bytes:
        """Who this node is."""
        return encode(self._info())

    async def prepare(self, order_bytes: bytes) -> None:
        """Get a run's ranks ready while its lease is being made; the cell waits for :meth:`grant`."""
        order = decode(order_bytes, StartOrder)
        if order.run in self._runs or order.run in self._prepared:
            return
        if not order.memory_bytes:
            order = self._with_memory_share(order)
        run = RunOnNode(order, self._servers, self._meter, self._reporter.tell, granted=False)
        self._prepared[order.run] = run
        self._spawn(self._carry_out(run))

    async def grant(self, run: str, *gpu_ids: list[str]) -> None:
        """Let a prepared run begin; returns when accepted, a second time it does nothing.

        ``gpu_ids``: what the lease's tasks on this node told (Ray passes them on without a stop at the gateway).
        """
        found = self._prepared.pop(run, None)
        if found is not None:
            self._runs[run] = found
            found.grant([i for told in gpu_ids for i in told])
        elif run not in self._runs:
            raise ClusterError(f"run {run} was not prepared on this node (its agent was started anew)")

    async def abandon(self, run: str) -> None:
        """A prepared run will not begin here."""
        found = self._prepared.pop(run, None)
        if found is not None:
            found.abandon()

    async def signal(self, run: str, name: str, reason: str = "interrupted") -> None:
        """``interrupt`` or ``kill`` a run; unknown runs are ignored (they have ended)."""
        found = self._runs.get(run)
        if found is not None:
            found.signal(name, reason)

    async def runs(self) -> bytes:
        """list[NodeRun]: all runs not yet forgotten."""
        return encode([run.view() for run in self._runs.values()])

    async def events(self, run: str, after: int) -> bytes:
        """list[Event] above ``after``, from the run's log."""
        found = self._runs.get(run)
        return encode(await asyncio.to_thread(found.events, after) if found else [])

    async def forget(self, run: str) -> None:
        """The gateway has recorded the end of this run."""
        found = self._runs.get(run)
        if found is not None and found.phase == "final":
            del self._runs[run]

    async def missing_imports(self, names: list[str]) -> list[str]:
        """Which top-level packages of ``names`` are not installed here."""
        importlib.invalidate_caches()
        return [name for name in names if not _is_importable(name)]

    async def gpus(self) -> bytes:
        """list[GpuInfo] with memory and utilisation now."""
        return encode(await asyncio.to_thread(self._gpus))

    async def probe_store(self, path: str) -> str:
        """Write and read the store from this node: empty when well, else the error."""
        try:
            await asyncio.to_thread(probe_store, Path(path))
        except GpuReleaseError as error:
            return str(error)
        return ""

    # ----------------------------------------------------------------------------- the inside
    async def _carry_out(self, run: RunOnNode) -> None:
        await run.carry_out()
        self._prepared.pop(run.order.run, None)  # when it was never granted

    async def _warm_up(self) -> None:
        try:
            await self._servers.start().ready()
        except GpuReleaseError as error:
            self._problem = str(error)
        await self._reporter.introduce(encode(self._info()))

    def _info(self) -> NodeInfo:
        return NodeInfo(
            node=self._node, host=socket.gethostname(), incarnation=self._incarnation,
            python=platform.python_version(), version=__version__, gpus=self._gpus(),
            memory_bytes=memory.machine_bytes(), cpus=self._cpu_total, simulated=self._config.simulated,
            versions={"ray": ray.__version__, "driver": self._nvml.driver_version()}, notes=self._notes(),
        )  # fmt: skip

    def _notes(self) -> list[str]:
        return [*self._servers.notes, *([self._problem] if self._problem else [])]

    def _gpus(self) -> list[GpuInfo]:
        return simulated_gpus(self._gpu_total) if self._config.simulated else self._nvml.gpus()

    def _with_memory_share(self, order: StartOrder) -> StartOrder:
        """A default limit: the run's share of the node, so that one cell cannot take the others down."""
        if order.gpus and self._gpu_total:
            share = order.gpus / self._gpu_total
        else:
            share = min(1.0, (order.cpus or 1) / max(self._cpu_total, 1))
        limit = int(memory.machine_bytes() * memory.USABLE * max(share, memory.LEAST_SHARE))
        return msgspec.structs.replace(order, memory_bytes=limit)

    def _watch_raylet(self) -> None:
        """The raylet's end must be ours and our ranks': Ray alone does not see to that (measured: 75 s later alive)."""
        loop = asyncio.get_event_loop()
        raylet = os.pidfd_open(os.getppid())
        loop.add_reader(raylet, self._on_raylet_gone)

    def _on_raylet_gone(self) -> None:
        for run in self._runs.values():
            run.signal("kill", "lost")
        deadline = time.monotonic() + 2.0
        me = psutil.Process()
        self._servers.kill_all()  # supervisors get SIGTERM by it, end their descendants, then themselves
        psutil.wait_procs(me.children(recursive=True), timeout=max(0.0, deadline - time.monotonic()))
        process.end_marked(process.NODE_MARKER, self._node)
        os._exit(1)

    def _spawn(self, work: object) -> None:
        task: asyncio.Task[None] = asyncio.get_event_loop().create_task(work)  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _is_importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _resources(node: str) -> tuple[int, int]:
    """GPUs and CPUs that Ray counts on this node."""
    for entry in ray.nodes():
        if entry["NodeID"] == node:
            resources = entry["Resources"]
            return int(resources.get("GPU", 0)), int(resources.get("CPU", 0)) or os.cpu_count() or 1
    return 0, os.cpu_count() or 1
