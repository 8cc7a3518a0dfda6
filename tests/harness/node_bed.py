"""A node without Ray: real fork server, supervisor and rank under a real RunOnNode."""

from __future__ import annotations

import asyncio
import secrets
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
from optional_libraries import skip_without

from jupyter_gpu_release.host import process_control
from jupyter_gpu_release.host.gpu_reader import GpuReader
from jupyter_gpu_release.host.gpus import Nvml
from jupyter_gpu_release.local_cluster.launch_spec import runtime_root
from jupyter_gpu_release.node.agent.environments import NodeEnvironments
from jupyter_gpu_release.node.agent.fork_servers import ForkServers
from jupyter_gpu_release.node.agent.gpu_use import UseMeter
from jupyter_gpu_release.node.agent.run import AdoptedRun, RunOnNode
from jupyter_gpu_release.node.gang.layout import NodeLocation
from jupyter_gpu_release.node.results.pending_results import PendingResults
from jupyter_gpu_release.node.results.spool import spool_entries
from jupyter_gpu_release.protocol.cell import CellPayload
from jupyter_gpu_release.protocol.events import Event
from jupyter_gpu_release.protocol.node import AgentConfig, AttemptId, NodeMessage, RunEvents, RunPhase, StartOrder
from jupyter_gpu_release.protocol.runs import Outcome
from jupyter_gpu_release.protocol.states import new_run_id
from jupyter_gpu_release.protocol.wire import encode
from jupyter_gpu_release.store.layout import RunPaths
from jupyter_gpu_release.store.run_folders import create_run_folder, make_store


class Node:
    """Runs cells on this machine through the real process chain."""

    def __init__(self, folder: Path, preload: list[str], **settings: Any) -> None:
        self.marker = secrets.token_hex(6)
        #: what adopted runs said
        self.messages: list[NodeMessage] = []
        self.runtime = Path(runtime_root()) / f"jgr-{secrets.token_hex(4)}"
        self.runtime.mkdir(mode=0o700)
        self.marks = self.runtime / "begun"
        self.marks.mkdir()
        self.store = folder
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        config = AgentConfig(
            store=str(folder),
            runtime=str(self.runtime),
            preload=preload,
            cluster=self.marker,
            spool=str(folder.parent / f"spool-{self.marker}"),
            store_id=make_store(folder),
        )
        self.config = msgspec.structs.replace(config, **settings)
        self._keepings: list[PendingResults] = []
        self.servers: ForkServers = self.call(self._make(self.config))
        self.environments = NodeEnvironments(self.config, self.marker, self.servers)
        self.keeping: PendingResults = self.call(self._make_keeping())
        self.meter = UseMeter(GpuReader(Nvml()))

    async def _make(self, config: AgentConfig) -> ForkServers:
        servers = ForkServers(config, self.marker)
        await servers.current_server()
        return servers

    async def _make_keeping(self) -> PendingResults:
        self._keepings.append(PendingResults(self.config, self.marker))
        return self._keepings[-1]

    async def start_agent_anew(self) -> list[AdoptedRun]:
        """What a killed agent's successor does about results; the fork server stays."""
        self.keeping.close()
        for entry in spool_entries(Path(self.keeping.order.spool)):  # the kernel lets go of a dead agent's locks
            (entry.folder / "owner").unlink(missing_ok=True)
        self.keeping = await self._make_keeping()
        adopted: dict[AttemptId, AdoptedRun] = {}
        for waiting in self.keeping.adopt_results(
            frozenset(), lambda attempt_id, wait: adopted[attempt_id].on_wait(wait)
        ):
            outcome = self.keeping.reported_outcome(waiting.attempt_id)
            assert outcome is not None
            made = AdoptedRun(waiting.attempt_id, waiting.folder, outcome, self.keeping, self.messages.append)
            adopted[waiting.attempt_id] = made
        self._carrying = [asyncio.create_task(run.run_to_end()) for run in adopted.values()]
        return list(adopted.values())

    async def _end(self) -> None:
        for keeping in self._keepings:  # a mover that is being started is waited for below, as those that run
            if keeping._starting:
                await asyncio.wait(keeping._starting.values())
        self.keeping.close()
        self.environments.kill_all()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.get_running_loop().shutdown_default_executor()

    def call(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(120)

    def start(self, source: str, **options: Any) -> Run:
        skip_without(source)
        payload_fields = {k: options.pop(k) for k in list(options) if k in CellPayload.__struct_fields__}
        run = options.pop("run", None) or new_run_id()
        paths = RunPaths.of(self.store, run) if options.pop("made", False) else create_run_folder(self.store, run)
        payload = CellPayload(source=source, **{"count": 3, "workdir": str(self.store), **payload_fields})
        # on a busy machine nobody is killed for being slow to obey
        options = {"gpu_ids": ["0"], "simulated": True, "grace_s": 60.0, **options}
        order = StartOrder(run=run, payload=encode(payload), folder=str(paths.folder), **options)
        return Run(self, order)

    def run(self, source: str, **options: Any) -> Run:
        run = self.start(source, **options)
        run.wait()
        return run

    def close(self) -> None:
        self.call(self._end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5)
        self.loop.close()
        process_control.end_marked(process_control.CLUSTER_MARKER, self.marker, wait_s=60.0)
        for server in (*self.servers._retired, self.servers._current):
            # one that is ending already is not among those that were waited for
            assert server is None or server.process.wait(60) is not None
        for mover in (mover for keeping in self._keepings for mover in keeping._movers.values()):
            assert mover.wait(60) is not None  # it outlives its agent, but not the cluster
        shutil.rmtree(self.runtime, ignore_errors=True)


class Run:
    """One run and everything it reported."""

    def __init__(self, node: Node, order: StartOrder) -> None:
        self.node = node
        self.order = order
        self.messages: list[NodeMessage] = []
        self.changed = threading.Condition()
        self.on_node: RunOnNode = node.call(self._make(node))
        self.future: Future[None] = asyncio.run_coroutine_threadsafe(self.on_node.run_to_end(), node.loop)

    async def _make(self, node: Node) -> RunOnNode:
        where = NodeLocation(marks=str(node.marks))
        owner = self.order.owner if self.order.as_owner else None
        servers = node.environments.servers_of(self.order.environment, owner)
        return RunOnNode(self.order, servers, node.meter, node.keeping, self._tell, where)

    def _tell(self, message: NodeMessage) -> None:
        with self.changed:
            self.messages.append(message)
            self.changed.notify_all()

    def wait(self, limit_s: float = 150) -> Outcome:
        """Wait for its end; one that does not end says where its ranks stand."""
        try:
            self.future.result(limit_s)
        except TimeoutError:
            self.signal("stack", "hung")
            self.future.result(30)
            raise AssertionError(f"not over after {limit_s:g} s: {self.outcome}\n{self.messages[-20:]}") from None
        assert self.on_node.outcome is not None
        return self.on_node.outcome

    def wait_for(self, predicate: Callable[[Run], Any], limit_s: float = 60) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: predicate(self), limit_s), self.messages

    def signal(self, name: str, status: str = "interrupted") -> None:
        self.node.loop.call_soon_threadsafe(self.on_node.signal_ranks, name, status)

    @property
    def outcome(self) -> Outcome:
        assert self.on_node.outcome is not None
        return self.on_node.outcome

    @property
    def events(self) -> list[Event]:
        return [event for message in self.messages if isinstance(message, RunEvents) for event in message.events]

    def text(self, name: str = "stdout") -> str:
        return "".join(e.data["text"] for e in self.events if e.kind == "stream" and e.data["name"] == name)

    def phase(self, name: str) -> RunPhase | None:
        return next((m for m in self.messages if isinstance(m, RunPhase) and m.phase == name), None)


def is_running(run: Run) -> bool:
    """Tell if its first statement has begun."""
    return run.phase("running") is not None


def said(run: Run) -> dict[int, str]:
    """What each process printed."""
    texts: dict[int, str] = {}
    for event in run.events:
        if event.kind == "stream":
            rank = int(event.data.get("rank", 0))
            texts[rank] = texts.get(rank, "") + event.data["text"]
    return texts
