"""The real gateway as a process without Ray: leases are granted at once, nodes mimic the execution of cells.

``python -m benchmarks.broker.simulated_gateway CONFIG NODES GPUS``; the payload of a run is its length in seconds.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from jupyter_gpu_release.gateway.actor import Gateway, end_process
from jupyter_gpu_release.gateway.cluster.agents import AgentFactory
from jupyter_gpu_release.gateway.cluster.lease import Lease
from jupyter_gpu_release.gateway.cluster.placement_groups import RayLeases
from jupyter_gpu_release.gateway.service import GatewayService
from jupyter_gpu_release.protocol.environments import BuildReport, ClusterPackages, Installed, PackagesAnswer, Versions
from jupyter_gpu_release.protocol.lineage import Environment
from jupyter_gpu_release.protocol.node import (
    AGENT_PROTOCOL,
    AttemptId,
    GpuInfo,
    NodeAgentApi,
    NodeInfo,
    NodeReport,
    NodeRun,
    ProbeReport,
    RunPhase,
    StartOrder,
)
from jupyter_gpu_release.protocol.runs import Outcome
from jupyter_gpu_release.protocol.states import LeaseState
from jupyter_gpu_release.protocol.wire import encode, pack, unpack

_CPUS = 64
_MEMORY = 1 << 40


def entry(number: int, gpus: int) -> dict[str, Any]:
    """A node as ``ray.nodes()`` lists it."""
    return {
        "NodeID": f"{number:056x}",
        "Alive": True,
        "NodeManagerHostname": f"node{number}",
        "Resources": {"GPU": float(gpus), "CPU": float(_CPUS), "memory": float(_MEMORY)},
        "Labels": {},
    }


class SimulatedLeases(RayLeases):
    """Grants and frees at once, where Ray takes some ten milliseconds of its own processes' time."""

    entries: ClassVar[list[dict[str, Any]]]
    #: GPUs that are held, as ``(node, number)``
    held: ClassVar[set[tuple[str, int]]] = set()

    def group_name(self, run: str) -> str:
        return f"simulated-{run}"

    def begin_making(self, lease: Lease, runtime: str) -> None:
        """Nothing is to be made."""

    async def finish(self, lease: Lease) -> None:
        lease.gpu_ids = tuple(self._take(slot.node, slot.gpus) for slot in lease.slots)
        lease.state = LeaseState.BUSY

    async def release(self, lease: Lease, totals: dict[str, int], silent: frozenset[str] = frozenset()) -> None:
        lease.state = LeaseState.RELEASING
        for slot, ids in zip(lease.slots, lease.gpu_ids, strict=False):  # none: its run was not granted yet
            self.held.difference_update((slot.node, int(gpu)) for gpu in ids)

    def _take(self, node: str, gpus: int) -> tuple[str, ...]:
        """The first that nobody holds."""
        free = (number for number in count() if (node, number) not in self.held)
        taken = tuple(islice(free, gpus))
        self.held.update((node, number) for number in taken)
        return tuple(map(str, taken))

    async def groups(self, limit_s: float | None = None) -> dict[str, Any]:
        return {}

    async def groups_aside(self) -> dict[str, Any]:
        return {}

    async def nodes(self, limit_s: float | None = None) -> list[dict[str, Any]]:
        return self.entries

    async def external_gpus(self, totals: dict[str, int]) -> dict[str, int] | None:
        return dict.fromkeys(totals, 0)


class SimulatedAgent(NodeAgentApi):
    """The calls of a node agent that a run needs; what it reports goes the way of real reports."""

    def __init__(self, node: str, host: str, gpus: int, report: Callable[[bytes], Awaitable[None]]) -> None:
        self._node = node
        self._host = host
        self._gpus = gpus
        self._report = report
        self._ordered: dict[AttemptId, StartOrder] = {}
        self._runs: dict[AttemptId, RunPhase] = {}
        self._messages: list[RunPhase] = []
        self._sending: set[asyncio.Task[None]] = set()

    def info(self) -> NodeInfo:
        """Facts about the node."""
        gpus = [GpuInfo(str(i), "Simulated H100", f"GPU-{i}", 80 << 30, 0, 0.0, True) for i in range(self._gpus)]
        return NodeInfo(
            node=self._node,
            host=self._host,
            incarnation="1",
            python="3",
            version="",
            gpus=gpus,
            simulated=True,
            memory_bytes=_MEMORY,
            cpus=_CPUS,
            has_lease_worker=True,
            protocol=AGENT_PROTOCOL,
        )

    async def hello(self) -> Any:
        return pack(self.info())

    async def start(self, order: Any) -> None:
        found = unpack(order, StartOrder)
        if found.gpu_ids is None:
            self._ordered[found.attempt_id] = found
        else:
            self._begin(found)

    async def grant(self, attempt_id: Any, gpu_ids: list[str]) -> None:
        if (order := self._ordered.pop(unpack(attempt_id, AttemptId), None)) is not None:
            self._begin(order)

    async def missing_imports(self, names: list[str]) -> list[str]:
        return []

    async def prepare(self, order: Any) -> None:
        """It imports nothing."""

    async def end_session(self, session: str) -> None:
        """It keeps nothing for a kernel."""

    async def has_begun(self, attempt_id: Any) -> bool:
        return unpack(attempt_id, AttemptId) in self._runs

    async def abandon(self, attempt_id: Any) -> None:
        self._ordered.pop(unpack(attempt_id, AttemptId), None)

    async def forget_unbegun(self, attempt_id: Any) -> bool:
        return self._ordered.pop(unpack(attempt_id, AttemptId), None) is not None

    async def open_rank_listener(self) -> tuple[str, int]:
        raise NotImplementedError("it leads no gang over nodes")

    async def start_remote_ranks(self, order: Any) -> None:
        raise NotImplementedError("it lends no ranks")

    async def has_remote_ranks(self, attempt_id: Any) -> bool:
        return False

    async def end_remote_ranks(self, attempt_id: Any) -> None:
        """It lends no ranks."""

    async def lose_member(self, attempt_id: Any, node: str) -> None:
        """It leads no gang over nodes."""

    async def answer_rank(self, attempt_id: Any, rank: int, body: bytes) -> None:
        """Nobody asks."""

    async def events(self, attempt_id: Any, after: int) -> Any:
        return pack([])

    async def give_up_results(self, attempt_id: Any, reason: str) -> bool:
        return False

    async def keep_results(self, attempt_id: Any, folder: str, outcome: Any) -> None:
        """There are none."""

    async def environment(self, imports: list[str]) -> Any:
        return pack(Environment("3"))

    async def signal(self, attempt_id: Any, name: str, reason: str = "interrupted") -> None:
        """Nobody interrupts."""

    async def step_aside(self, attempt_id: Any) -> bool:
        return False

    async def runs(self) -> Any:
        return pack(
            [NodeRun(attempt_id, told.phase, 0, told.at_s, told.outcome) for attempt_id, told in self._runs.items()]
        )

    async def forget_runs(self, attempt_ids: Any) -> None:
        for attempt_id in unpack(attempt_ids, list[AttemptId]):
            self._runs.pop(attempt_id, None)

    async def gpus(self) -> Any:
        return pack(self.info().gpus)

    async def probe_store(self, path: str) -> str:
        return ""

    async def installed_packages(self, pythons: list[str]) -> Any:
        return pack(ClusterPackages(Installed("3", "", {}, [])))

    async def check_environment(self, plan: Any) -> Any:
        return pack(PackagesAnswer(is_ready=True))

    async def resolve_packages(self, question: Any) -> Any:
        return pack(Versions())

    async def build_environment(self, plan: Any, wheels: list[bytes]) -> Any:
        return pack(BuildReport())

    async def list_environments(self) -> Any:
        return pack([])

    async def remove_environment(self, digest: str) -> bool:
        return False

    async def count_fetched(self, plan: Any) -> int:
        return 0

    async def stop_build(self, digest: str) -> None:
        """Nothing is built."""

    async def probe_node(self, order: Any) -> Any:
        return pack(ProbeReport())

    def _begin(self, order: StartOrder) -> None:
        self._tell(RunPhase(order.attempt_id, "running", time.time()))
        asyncio.get_running_loop().call_later(float(order.payload), self._end, order.attempt_id, time.time())

    def _end(self, attempt_id: AttemptId, started_s: float) -> None:
        now_s = time.time()
        outcome = Outcome(status="ok", started_s=started_s, ended_s=now_s, collected_s=now_s, released_s=now_s)
        self._tell(RunPhase(attempt_id, "ended", now_s))
        self._tell(RunPhase(attempt_id, "final", now_s, outcome))

    def _tell(self, message: RunPhase) -> None:
        """Send in one message all that is told in one moment, as a real agent does."""
        self._runs[message.attempt_id] = message
        self._messages.append(message)
        if len(self._messages) == 1:
            task = asyncio.get_running_loop().create_task(self._send())
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _send(self) -> None:
        await asyncio.sleep(0)
        messages, self._messages = self._messages, []
        await self._report(encode(NodeReport(self._node, "1", list(messages))))


class _Handle:
    """Calls as with Ray's handle of an actor: ``handle.method.remote(…)``."""

    def __init__(self, agent: SimulatedAgent) -> None:
        self._agent = agent

    def __getattr__(self, name: str) -> Any:
        return _Method(getattr(self._agent, name))


class _Method:
    def __init__(self, method: Callable[..., Awaitable[Any]]) -> None:
        self._method = method

    def remote(self, *arguments: Any) -> asyncio.Task[Any]:
        return asyncio.ensure_future(self._method(*arguments))  # type: ignore[arg-type]


class SimulatedAgents(AgentFactory):
    """Agents in the gateway's own process."""

    report: Callable[[bytes], Awaitable[None]]

    async def ensure_agents(self) -> None:
        for node in self._nodes.alive():
            if node.agent is None:
                agent = SimulatedAgent(node.node, node.host, node.gpus, self.report)
                node.agent = _Handle(agent)
                node.info = agent.info()


class SimulatedGateway(Gateway):
    """A gateway over simulated nodes."""

    def _build_service(self) -> GatewayService:
        SimulatedAgents.report = self.node_report
        return GatewayService(self._config, end_process, agent_factory=SimulatedAgents, ray_leases=SimulatedLeases)

    def _warm_workers(self) -> None:
        """There are none; the agents are there from the beginning."""
        self._service.agent_up.set()

    async def end(self) -> None:
        """Commit what waits."""
        await self._service.manifests.flush()
        self._service.ledger.close()


async def _serve(config: bytes, nodes: int, gpus: int) -> None:
    SimulatedLeases.entries = [entry(number, gpus) for number in range(nodes)]
    gateway = SimulatedGateway(config)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), ended.set)  # whoever started it is gone, or says so
    deployed: Any = None
    while deployed is None or not (deployed["ok"] or deployed.get("message")):
        await asyncio.sleep(0.05)
        deployed = msgspec.json.decode(await gateway.describe())
    print(msgspec.json.encode(deployed).decode(), flush=True)
    before_s = time.process_time()
    await ended.wait()
    await gateway.end()
    print(msgspec.json.encode({"cpu_s": time.process_time() - before_s}).decode(), flush=True)


if __name__ == "__main__":
    path, nodes, size = sys.argv[1:4]
    main = partial(_serve, Path(path).read_bytes(), int(nodes), int(size))
    asyncio.run(main())
