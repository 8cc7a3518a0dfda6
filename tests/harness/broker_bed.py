"""A gateway's broker on the test's own event loop; Ray and the node agents are pretended, and fail as they are told."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from jupyter_gpu_release.client.home import write_secret
from jupyter_gpu_release.gateway.actor import Gateway
from jupyter_gpu_release.gateway.auth.permissions import Caller
from jupyter_gpu_release.gateway.cluster import placement_groups
from jupyter_gpu_release.gateway.db.store_identity import meant_store
from jupyter_gpu_release.gateway.reconcile import node_liveness, recovery
from jupyter_gpu_release.gateway.runs.record import RunRecord
from jupyter_gpu_release.gateway.service import GatewayService
from jupyter_gpu_release.protocol.cell import CellPayload
from jupyter_gpu_release.protocol.config import GatewayConfig, UnixUser
from jupyter_gpu_release.protocol.environments import BuildReport, EnvironmentRow, Plan
from jupyter_gpu_release.protocol.lineage import Environment
from jupyter_gpu_release.protocol.node import (
    AGENT_PROTOCOL,
    AttemptId,
    JoinOrder,
    NodeAgentApi,
    NodeInfo,
    NodeRun,
    PrepareOrder,
    RunPhase,
    StartOrder,
)
from jupyter_gpu_release.protocol.runs import Outcome, ResourceAsk, RunRequest
from jupyter_gpu_release.protocol.states import new_run_id
from jupyter_gpu_release.protocol.wire import decode, encode

ANN = Caller("ann", "user")


class PretendedRay:
    """Placement groups on nodes, by the functions that the broker calls (in threads)."""

    def __init__(self, **gpus: int) -> None:
        self.gpus = gpus
        self.dead: set[str] = set()
        self.groups: dict[str, Any] = {}
        #: by function: what it raises from now on
        self.faults: dict[str, Exception] = {}
        #: calls wait while this is not set
        self.answers = threading.Event()
        self.answers.set()
        self.asked: list[str] = []
        #: tasks of leases do not begin now; once they may, Ray has failed, and the nodes hear of them all the same
        self.is_late = False
        #: node, attempt and GPUs of such tasks
        self.late_grants: list[tuple[str, str, list[str]]] = []
        #: somebody waits for such a task
        self.keeps_waiting = False
        self._numbers = itertools.count(1)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        names = ("placement_group", "remove_placement_group", "placement_group_table", "available_resources_per_node")
        for name in names:
            patch.setattr(placement_groups, name, self._answering(name))
        patch.setattr(placement_groups, "group_name", lambda run: f"jgr-test-{run}")
        patch.setattr(placement_groups, "group_of", lambda identity: self.groups[identity])
        patch.setattr(ray, "nodes", self.nodes)
        patch.setattr(placement_groups, "nudge_workers", self._nudge)
        patch.setattr(placement_groups, "accelerator_ids", SimpleNamespace(options=self._options))
        patch.setattr(placement_groups, "PlacementGroupSchedulingStrategy", lambda group, index: (group, index))

    def _answering(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            self.asked.append(name)
            assert self.answers.wait(60)
            if name in self.faults:
                raise self.faults[name]
            return getattr(self, f"_{name}")(*arguments, **named)

        return call

    def nodes(self) -> list[dict[str, Any]]:
        return [
            {
                "NodeID": node,
                "NodeManagerHostname": f"host-{node}",
                "Alive": node not in self.dead,
                "Resources": {"GPU": gpus, "CPU": 8},
            }
            for node, gpus in self.gpus.items()
        ]

    def _free(self, node: str) -> list[str]:
        taken = {i for group in self.groups.values() for at, ids in group.places if at == node for i in ids}
        return [str(i) for i in range(self.gpus[node]) if str(i) not in taken]

    def _placement_group(
        self, bundles: list[dict[str, float]], *, name: str, bundle_label_selector: list[dict[str, str]], **_: Any
    ) -> Any:
        assert name not in self.names(), f"Ray refuses a second group {name}"
        group = SimpleNamespace(name=name, places=[], hex=f"{next(self._numbers):036x}")
        group.id = SimpleNamespace(hex=lambda: group.hex)
        self.groups[group.hex] = group
        for bundle, pin in zip(bundles, bundle_label_selector, strict=True):
            node, count = pin["ray.io/node-id"], int(bundle.get("GPU", 0))
            ids = self._free(node)[:count]
            assert len(ids) == count, f"{count} GPUs of {node} are given twice"
            group.places.append((node, ids))
        return group

    def _remove_placement_group(self, group: Any) -> None:
        self.groups.pop(group.hex, None)

    def _placement_group_table(self, group: Any = None) -> dict[str, Any]:
        if group is not None:
            return {"state": "CREATED" if group.hex in self.groups else "REMOVED"}
        return {
            key: {"name": found.name, "state": "CREATED", "placement_group_id": key}
            for key, found in self.groups.items()
        }

    def _available_resources_per_node(self) -> dict[str, dict[str, float]]:
        return {node: {"GPU": float(len(self._free(node)))} for node in self.gpus if node not in self.dead}

    async def _nudge(self, *_: object) -> None:
        """No worker waits for it here."""

    def _options(self, scheduling_strategy: Any, **_: Any) -> Any:
        group, index = scheduling_strategy
        node, ids = group.places[index]

        def tell(attempt: str, *_: str) -> Told:
            if self.is_late:
                self.late_grants.append((node, attempt, ids))
            return Told(self, ids)

        return SimpleNamespace(remote=tell)

    def names(self) -> list[str]:
        """Of the groups that exist."""
        return sorted(group.name for group in self.groups.values())


class Told:
    """A reference that need not be awaited, as one of Ray's."""

    def __init__(self, ray: PretendedRay, ids: list[str]) -> None:
        self._ray = ray
        self._ids = ids

    def __await__(self) -> Generator[Any, None, list[str]]:
        yield from asyncio.sleep(0).__await__()
        if not self._ray.is_late:
            return self._ids
        while self._ray.is_late:
            self._ray.keeps_waiting = True
            yield from asyncio.sleep(0).__await__()
        raise ray.exceptions.RayError("the lease's task is away")


class PretendedAgent:
    """Knows what it was given; ``silent``: it answers nothing, as one whose node has lost its power.

    What it knows of attempts is by their names: a run's first attempt has the run's.
    """

    def __init__(self, node: str) -> None:
        self.node = node
        self.life = "first"
        #: 0: it is from before an upgrade, and is told, and tells, of runs
        self.protocol = AGENT_PROTOCOL
        self.phases: dict[str, str] = {}
        self.killed: list[str] = []
        #: runs that have begun, also in an earlier life
        self.marks: set[str] = set()
        #: gangs to which it lends ranks, and what it was told of those who lend to its own
        self.lent: set[str] = set()
        self.lost_members: list[tuple[str, str]] = []
        self.orders: dict[str, StartOrder] = {}
        #: orders whose GPUs are known
        self.granted: set[str] = set()
        #: by run: where its results are to be written, and which
        self.kept: dict[str, tuple[str, Outcome]] = {}
        #: runs that were preempted
        self.stepping_aside: list[str] = []
        self.silent = False
        self.faults: dict[str, Exception] = {}
        self.trouble = ""
        #: it prepares libraries: what it was asked for, and whether it has imported that
        self.max_prepared = self.prepared_gone = 0
        self.prepares: list[PrepareOrder] = []
        self.ended_sessions: list[str] = []
        self.has_imported = asyncio.Event()
        #: digests of environments that it was asked to build, with the wheels, and of those that nobody wants any more
        self.builds: list[tuple[str, list[bytes]]] = []
        self.built_for: list[str] = []
        self.stopped: list[str] = []
        self.has_built = asyncio.Event()
        self.fetched = 1
        #: digests of those that it has, and whether cells run in them
        self.environments: list[str] = []
        #: unix seconds of their last uses, by digest
        self.used_at: dict[str, float] = {}
        self.uses_environments = False
        self.build_report = BuildReport(1.94)
        #: digest of its own packages; empty: it builds none
        self.packages = "of the cluster"
        self._tasks: set[asyncio.Future[Any]] = set()

    def __getattr__(self, name: str) -> Any:
        work = getattr(type(self), f"do_{name}", None)
        if work is None:
            raise AttributeError(name)

        def remote(*arguments: Any) -> asyncio.Future[Any]:
            named = arguments if self.protocol else self._of_attempts(name, *arguments)
            task = asyncio.ensure_future(self._answer(name, lambda: work(self, *named)))
            self._tasks.add(task)
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            return task

        return SimpleNamespace(remote=remote)

    def _of_attempts(self, name: str, *arguments: Any) -> list[Any]:
        """The order that an agent of before was given, in our words: it knows one attempt of a run."""
        match arguments:
            case (str() as run, int()) if name == "step_aside":
                return [encode(self._attempt_of(run))]
            case (str() as run, *rest):
                return [encode(self._attempt_of(run)), *rest]
            case (list() as runs, *rest):
                return [encode([self._attempt_of(run) for run in runs]), *rest]
        return list(arguments)

    def _attempt_of(self, run: str) -> AttemptId:
        return max((known for known in self.known() if known.run == run), default=AttemptId(run, 0), key=_number)

    async def _answer(self, name: str, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """The work begins with the answer: one that is called off before leaves no coroutine behind."""
        if self.silent:
            await asyncio.Event().wait()
        if name in self.faults:
            raise self.faults[name]
        return await work()

    def info(self) -> NodeInfo:
        return NodeInfo(
            self.node,
            f"host-{self.node}",
            self.life,
            "3.11",
            "test",
            simulated=True,
            trouble=self.trouble,
            protocol=self.protocol,
            max_prepared=self.max_prepared,
            prepared_gone=self.prepared_gone,
            packages=self.packages,
        )

    async def do_prepare(self, order: bytes) -> None:
        self.prepares.append(decode(order, PrepareOrder))
        await self.has_imported.wait()

    async def do_build_environment(self, plan: bytes, wheels: list[bytes], owner: bytes | None = None) -> bytes:
        digest, before = decode(plan, Plan).digest, len(self.stopped)
        self.builds.append((digest, wheels))
        self.built_for.append(decode(owner, UnixUser).name if owner is not None else "")
        while not self.has_built.is_set() and digest not in self.stopped[before:]:
            await asyncio.sleep(0.01)
        return encode(BuildReport(problem="ended") if digest in self.stopped[before:] else self.build_report)

    async def do_list_environments(self) -> bytes:
        used = self.used_at
        return encode([EnvironmentRow(digest, "", "3.11.9", [], used.get(digest, 0.0)) for digest in self.environments])

    async def do_remove_environment(self, digest: str) -> bool:
        if self.uses_environments or digest not in self.environments:
            return False
        self.environments.remove(digest)
        return True

    async def do_count_fetched(self, plan: bytes) -> int:
        return self.fetched

    async def do_stop_build(self, digest: str) -> None:
        self.stopped.append(digest)

    async def do_end_session(self, session: str) -> None:
        self.ended_sessions.append(session)

    async def do_hello(self) -> bytes:
        return encode(self.info())

    def known(self) -> set[AttemptId]:
        """Attempts of which it has anything."""
        return {AttemptId.named(name) for name in (*self.phases, *self.orders, *self.lent)}

    async def end_older(self, attempt_id: AttemptId) -> None:
        """As the real agent, before it takes a newer attempt."""
        known = self.known()
        if any(attempt_id.is_before(other) for other in known):
            raise ray.exceptions.RayTaskError("start", "a later attempt is here", OSError("a later attempt is here"))
        for older in [other for other in known if other.is_before(attempt_id)]:
            self.end_attempt(str(older))
            await self.until_gone(str(older))
            self.marks.discard(str(older))

    async def until_gone(self, name: str) -> None:
        """Return when no process of an attempt that was ended is left: here there are none."""

    def end_attempt(self, name: str) -> None:
        """Nothing of it is left."""
        self.lent.discard(name)
        if self._end_phase(name):
            self.killed.append(name)

    def _end_phase(self, name: str) -> bool:
        """It is not known any more; False: it had not begun."""
        self.orders.pop(name, None)
        return self.phases.pop(name, None) is not None

    async def do_start(self, order: bytes) -> None:
        found = decode(order, StartOrder)
        await self.end_older(found.attempt_id)
        name = str(found.attempt_id)
        self.orders[name] = found
        if found.gpu_ids is not None:
            self.granted.add(name)
            self.phases.setdefault(name, "starting")

    async def do_grant(self, attempt_id: bytes, _ids: list[str]) -> None:
        name = name_of(attempt_id)
        if name in self.lent or name in self.phases:
            return
        if name not in self.orders:
            raise ray.exceptions.RayTaskError("grant", "it is not known", OSError("it is not known"))
        self.granted.add(name)
        self.phases[name] = "starting"

    async def hear_grant(self, name: str, ids: list[str]) -> None:
        """A lease's task tells the accelerators: of an attempt that is not known it changes nothing here."""
        if name in self.lent or name in self.orders:
            await type(self).do_grant(self, encode(AttemptId.named(name)), ids)

    async def do_has_begun(self, attempt_id: bytes) -> bool:
        name = name_of(attempt_id)
        return name in self.phases or name in self.marks

    async def do_open_rank_listener(self) -> tuple[str, int]:
        return "127.0.0.1", 1

    async def do_start_remote_ranks(self, order: bytes) -> None:
        found = decode(order, JoinOrder)
        await self.end_older(found.attempt_id)
        self.lent.add(str(found.attempt_id))

    async def do_has_remote_ranks(self, attempt_id: bytes) -> bool:
        return name_of(attempt_id) in self.lent

    async def do_end_remote_ranks(self, attempt_id: bytes) -> None:
        self.end_attempt(name_of(attempt_id))
        await self.until_gone(name_of(attempt_id))

    async def do_lose_member(self, attempt_id: bytes, node: str) -> None:
        self.lost_members.append((name_of(attempt_id), node))

    async def do_forget_unbegun(self, attempt_id: bytes) -> bool:
        name = name_of(attempt_id)
        is_ordered = self.orders.pop(name, None) is not None and name not in self.phases
        return is_ordered or (name not in self.marks and self._end_phase(name))

    async def do_abandon(self, attempt_id: bytes) -> None:
        self.end_attempt(name_of(attempt_id))

    async def do_signal(self, attempt_id: bytes, signal: str, _reason: str) -> None:
        name = name_of(attempt_id)
        if signal == "kill" and self._end_phase(name):
            self.killed.append(name)

    async def do_keep_results(self, attempt_id: bytes, folder: str, outcome: bytes) -> None:
        self.kept[name_of(attempt_id)] = folder, decode(outcome, Outcome)

    async def do_step_aside(self, attempt_id: bytes) -> bool:
        self.stepping_aside.append(name_of(attempt_id))
        return name_of(attempt_id) in self.phases

    async def do_give_up_results(self, attempt_id: bytes, _reason: str) -> bool:
        return self._end_phase(name_of(attempt_id))

    async def do_runs(self) -> bytes:
        known = [NodeRun(AttemptId.named(name), phase, at_s=time.time()) for name, phase in self.phases.items()]
        if not self.protocol:
            return encode([{"phase": run.phase, "at_s": run.at_s, **_plain(run.attempt_id)} for run in known])
        return encode([*known, *self.not_begun()])

    def not_begun(self) -> list[NodeRun]:
        """Orders that wait for their GPUs, and ranks that are lent."""
        ordered = [NodeRun(AttemptId.named(name), "ordered") for name in self.orders.keys() - self.granted]
        return [*ordered, *(NodeRun(AttemptId.named(name), "running", is_lent=True) for name in self.lent)]

    async def do_forget_runs(self, attempt_ids: bytes) -> None:
        for name in map(str, decode(attempt_ids, list[AttemptId])):
            if self.phases.get(name) == "final":
                del self.phases[name]
                self.orders.pop(name, None)
            self.marks.discard(name)

    async def do_environment(self, _imports: list[str]) -> bytes:
        return encode(Environment())

    async def do_missing_imports(self, _names: list[str]) -> list[str]:
        return []


def name_of(attempt_id: bytes) -> str:
    """The attempt's name."""
    return str(decode(attempt_id, AttemptId))


def _number(attempt_id: AttemptId) -> int:
    return attempt_id.attempt


def _plain(attempt_id: AttemptId) -> dict[str, object]:
    return {"run": attempt_id.run, "attempt": attempt_id.attempt}


_PRETENDED = {name.removeprefix("do_") for name in vars(PretendedAgent) if name.startswith("do_")}
assert vars(NodeAgentApi).keys() >= _PRETENDED, "the agent's methods have other names"


class ReportedTo(Gateway):
    """A gateway that has nothing but its service, for what nodes report."""

    def __init__(self, service: GatewayService) -> None:
        self._service = service


class BrokerBed:
    """One ledger and one cluster, over several lives of the gateway."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, **gpus: int) -> None:
        self.ray = PretendedRay(**gpus)
        self.ray.install(patch)
        self.agents = {node: PretendedAgent(node) for node in gpus}
        write_secret(folder / "token", "t" * 32)
        self.settings: dict[str, Any] = {}
        self.folder = folder
        #: tasks that go on when the gateway is killed
        self.outlives: set[asyncio.Future[Any]] = set()

    @asynccontextmanager
    async def life(self) -> AsyncIterator[GatewayService]:
        """A gateway from its start to its death by a kill: what is committed stays, nothing is tidied."""
        config = GatewayConfig(
            str(self.folder),
            str(self.folder / "store"),
            str(self.folder / "token"),
            str(self.folder),
            "",
            simulated=True,
            **{"cluster": "one", **self.settings},
        )
        service = GatewayService(config)
        service.nodes.store_id = await meant_store(service.engine, config, service.store_threads)
        remembered = recovery.read_ledger(service)
        recovery.restore_sessions(service, remembered)
        service.nodes.refresh(self.ray.nodes())
        for node in service.nodes.alive():
            node.agent, node.adopted = self.agents[node.node], True
        await recovery.compare_with_cluster(service, remembered)
        service.recovered.set()
        service.lifecycle.queue.open()
        before = asyncio.all_tasks()
        try:
            yield service
        finally:
            service.lifecycle.queue._open = False  # whatever is due on the loop finds it dead
            for task in asyncio.all_tasks() - before - self.outlives - {asyncio.current_task()}:
                task.cancel()
            service.ledger.close()
            service.engine.dispose()

    @property
    def stepping_aside(self) -> list[str]:
        """Runs that were asked to, on all nodes."""
        return [run for agent in self.agents.values() for run in agent.stepping_aside]

    def next_agent(self, node: str) -> None:
        """The node's agent is killed, and there again: it knows no run, and finds the marks of the one before."""
        agent = self.agents[node]
        agent.life += ", the next"
        agent.phases.clear()
        agent.orders.clear()
        agent.lent.clear()

    async def running(self, service: GatewayService, gpus: int = 1, **facts: Any) -> RunRecord:
        """A run whose cell has begun."""
        record = await self.submitted(service, gpus, **facts)
        await until(
            lambda: record.accepted and any(str(record.attempt_id) in agent.phases for agent in self.agents.values())
        )
        self.say(service, record, "running")
        return record

    async def submitted(self, service: GatewayService, gpus: int = 1, **facts: Any) -> RunRecord:
        """A run that was taken in, and decided about for the first time."""
        facts = {"session": "s", **facts}
        ask = facts.pop("ask", None) or ResourceAsk(gpus=gpus)
        user = Caller(facts.pop("user", ANN.user), ANN.role)
        asked = RunRequest(new_run_id(), facts.pop("session"), ask, encode(CellPayload(source="x")), **facts)
        record = await service.submit(user, asked)
        await service.committed(record)
        await until(lambda: record.view.position is not None or record.run not in service.lifecycle.queue)
        return record

    async def in_ledger(self, service: GatewayService) -> None:
        """Wait until the ledger has all runs as they are now."""
        await until(lambda: not service.ledger._later)
        await service.ledger.drain()

    def say(self, service: GatewayService, record: RunRecord, phase: str) -> None:
        """What the run's node reports."""
        name = str(record.attempt_id)
        for agent in self.agents.values():
            if name in agent.phases:
                agent.phases[name] = phase
                agent.marks.add(name)
        outcome = Outcome("ok", ended_s=time.time()) if phase in ("released", "final") else None
        service.lifecycle.hear(record, RunPhase(record.attempt_id, phase, time.time(), outcome))

    def end(self, service: GatewayService, record: RunRecord) -> None:
        """The cell ends well."""
        for phase in ("ended", "released", "final"):
            self.say(service, record, phase)


async def look_until(service: GatewayService, condition: Callable[[], object]) -> None:
    """Look at the nodes, as the gateway does every few seconds, until a condition holds."""
    async with asyncio.timeout(30):
        while not condition():
            await node_liveness.refresh_nodes(service)
            service.lifecycle.queue.serve()
            await asyncio.sleep(0.01)


async def until(condition: Callable[[], object], limit_s: float = 30.0) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.002)
