"""The contract of a node's agent with its gateway: the real one keeps it, and so do those that stand in for it."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from broker_bed import PretendedAgent

from jupyter_gpu_release.host import process_control
from jupyter_gpu_release.local_cluster.launch_spec import runtime_root
from jupyter_gpu_release.node.agent import agent as agent_module
from jupyter_gpu_release.node.agent.recorder import Reporter
from jupyter_gpu_release.protocol.cell import CellPayload
from jupyter_gpu_release.protocol.node import (
    AGENT_PROTOCOL,
    AgentConfig,
    AttemptId,
    JoinOrder,
    NodeInfo,
    NodeMessage,
    NodeReport,
    NodeRun,
    RunPhase,
    StartOrder,
)
from jupyter_gpu_release.protocol.states import new_run_id
from jupyter_gpu_release.protocol.wire import decode, encode, pack
from jupyter_gpu_release.store.run_folders import create_run_folder, make_store

_STAND_IN = Path(__file__).parent / "fake_agent.py"
#: runs until it is ended, in the words of each
_HOLDS = {"real": "import time\ntime.sleep(1000)", "stand-in": "hold", "pretended": ""}


class AgentBed:
    """One agent in this process, without Ray. ``said``: what it reports."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.store = folder / "store"
        self.run = new_run_id()
        self.said: list[NodeMessage] = []
        self.agent: Any = None
        self.config = AgentConfig(
            store=str(self.store),
            runtime=str(Path(runtime_root()) / f"jgr-{secrets.token_hex(4)}"),
            preload=["json"],
            cluster=secrets.token_hex(6),
            spool=str(folder / "spool"),
            store_id=make_store(self.store),
            simulated=True,
        )
        Path(self.config.runtime).mkdir(mode=0o700)
        self.folder = create_run_folder(self.store, self.run).folder

    async def call(self, method: str, *arguments: Any) -> Any:
        if self.kind == "pretended":
            return await getattr(self.agent, method).remote(*arguments)
        return await getattr(self.agent, method)(*arguments)

    async def of(self, method: str, attempt: int, *arguments: Any) -> Any:
        """A call about an attempt at the bed's run."""
        return await self.call(method, pack(AttemptId(self.run, attempt)), *arguments)

    async def start(self, attempt: int, gpu_ids: list[str] | None = None) -> None:
        payload = encode(CellPayload(source=_HOLDS[self.kind], count=1, workdir=str(self.store)))
        order = StartOrder(
            self.run, payload, str(self.folder), gpus=1, gpu_ids=gpu_ids, simulated=True, attempt=attempt, grace_s=60.0
        )
        await self.call("start", pack(order))

    async def running(self, attempt: int) -> None:
        await self.start(attempt, ["0"])
        if self.kind != "pretended":  # which runs nothing
            await self.until(lambda: self.has_said(attempt, "running"))

    async def known(self) -> dict[int, str]:
        """The phases of the attempts that it tells of."""
        found = decode(await self.call("runs"), list[NodeRun])
        return {run.attempt_id.attempt: run.phase for run in found if run.attempt_id.run == self.run}

    def has_said(self, attempt: int, phase: str) -> bool:
        words = [said for said in self.said if isinstance(said, RunPhase)]
        return any((said.attempt_id, said.phase) == (AttemptId(self.run, attempt), phase) for said in words)

    def processes(self) -> list[int]:
        """The ranks that run a cell; only a real agent has any."""
        if self.kind != "real":
            return []
        current = self.agent._servers._current
        pairs = process_control.children_of(current.pid) if current is not None else []
        return [rank for pair in pairs for rank in process_control.children_of(pair)]

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.005)

    async def end(self) -> None:
        servers = [*self.agent._servers._retired, self.agent._servers._current] if self.kind == "real" else []
        if self.kind != "pretended" and self.agent._reporter._server is not None:
            self.agent._reporter._server.close()
        if self.kind == "real":
            self.agent._servers.kill_all()
            self.agent._pending.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.kind == "real":
            process_control.end_marked(process_control.CLUSTER_MARKER, self.config.cluster, wait_s=60.0)
            for server in servers:
                assert server is None or server.process.wait(60) is not None
            for reader in (self.agent._grant_listener._sock, self.agent._lease_worker._listener):
                asyncio.get_running_loop().remove_reader(reader)
                reader.close()
        shutil.rmtree(self.config.runtime, ignore_errors=True)


def _without_ray(patch: pytest.MonkeyPatch, bed: AgentBed) -> Any:
    async def deliver(_reporter: Reporter, method: Any, body: bytes) -> None:
        if method.__name__ == "node_report":
            bed.said += decode(body, NodeReport).messages

    node = f"{bed.config.cluster}{'0' * 44}"
    entry = {"NodeID": node, "Alive": True, "Resources": {"GPU": 4.0, "CPU": 4.0}}
    patch.setattr(Reporter, "_deliver", deliver)
    return SimpleNamespace(
        get_runtime_context=lambda: SimpleNamespace(get_node_id=lambda: node),
        nodes=lambda: [entry],
        __version__="0",
        util=SimpleNamespace(get_node_ip_address=lambda: "127.0.0.1"),
    )


def _made(bed: AgentBed, patch: pytest.MonkeyPatch) -> Any:
    if bed.kind == "pretended":
        return PretendedAgent("a")
    ray = _without_ray(patch, bed)
    if bed.kind == "stand-in":
        spec = importlib.util.spec_from_file_location("fake_agent", _STAND_IN)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        patch.setattr(module, "ray", ray)
        return module.StandInAgent(encode(bed.config))
    patch.setattr(agent_module, "ray", ray)
    patch.setattr(agent_module, "watch_raylet", lambda _on_gone: None)
    patch.setattr(agent_module, "visible_to", lambda _pid: None)
    return agent_module.NodeAgent(encode(bed.config))


@pytest.fixture(params=_HOLDS)
def open_bed(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    @asynccontextmanager
    async def opened() -> AsyncIterator[AgentBed]:
        bed = AgentBed(request.param, tmp_path)
        bed.agent = _made(bed, monkeypatch)
        try:
            if bed.kind == "real":  # it refuses orders until cells can be forked
                await bed.agent._servers.current_server()
            yield bed
        finally:
            await bed.end()

    return opened


async def _raises(work: Any) -> None:
    with pytest.raises(Exception, match=r"known|later attempt"):  # its kind is Ray's, or ours
        await work


@pytest.mark.asyncio
async def test_an_order_is_taken_once_and_begins_with_its_accelerators(open_bed: Callable[[], Any]) -> None:
    async with open_bed() as bed:
        await bed.start(0)
        assert not await bed.of("has_begun", 0)
        (told,) = decode(await bed.call("runs"), list[NodeRun])
        assert (told.phase, told.is_granted, told.holds_gpus) == ("ordered", False, True)
        await bed.start(0)
        await bed.of("grant", 0, ["0"])
        await bed.of("grant", 0, ["0"])
        await bed.start(0, ["0"])
        assert await bed.of("has_begun", 0)
        assert list(await bed.known()) == [0]


@pytest.mark.asyncio
async def test_a_newer_attempt_is_taken_when_nothing_of_the_older_one_is_left(open_bed: Callable[[], Any]) -> None:
    async with open_bed() as bed:
        await bed.running(0)
        ranks = [pid for pid in bed.processes() if _sleeps(pid)]
        await bed.start(1)
        assert 0 not in await bed.known()
        assert all(process_control.is_gone(pid) for pid in ranks)
        assert not bed.has_said(1, "running")
        await bed.of("grant", 1, ["0"])
        assert list(await bed.known()) == [1]
        assert not await bed.of("has_begun", 0)


def _sleeps(pid: int) -> bool:
    """A rank in its cell: those that stand by wait elsewhere."""
    return "nanosleep" in Path(f"/proc/{pid}/wchan").read_text() if os.path.exists(f"/proc/{pid}/wchan") else False


@pytest.mark.asyncio
async def test_an_older_attempt_is_refused(open_bed: Callable[[], Any]) -> None:
    async with open_bed() as bed:
        await bed.start(1)
        await _raises(bed.start(0))
        await _raises(bed.of("grant", 0, ["0"]))


@pytest.mark.asyncio
async def test_what_is_said_of_another_attempt_does_nothing(open_bed: Callable[[], Any]) -> None:
    async with open_bed() as bed:
        await bed.running(1)
        for other in (0, 2):
            await bed.of("signal", other, "kill", "lost")
            await bed.of("abandon", other)
            assert not await bed.of("step_aside", other)
            assert not await bed.of("forget_unbegun", other)
            assert not await bed.of("has_begun", other)
            await bed.call("forget_runs", pack([AttemptId(bed.run, other)]))
        assert (await bed.known())[1] in ("starting", "running")
        assert not bed.has_said(1, "released")


@pytest.mark.asyncio
async def test_only_what_is_final_is_forgotten(open_bed: Callable[[], Any]) -> None:
    async with open_bed() as bed:
        await bed.running(0)
        await bed.call("forget_runs", pack([AttemptId(bed.run, 0)]))
        assert 0 in await bed.known()
        if bed.kind == "pretended":
            bed.agent.phases[bed.run] = "final"
        else:
            await bed.of("signal", 0, "kill", "lost")
            await bed.until(lambda: bed.has_said(0, "final"))
        await bed.call("forget_runs", pack([AttemptId(bed.run, 0)]))
        assert await bed.known() == {}
        assert not await bed.of("has_begun", 0)


@pytest.mark.asyncio
async def test_when_it_has_ended_the_ranks_of_an_attempt_none_is_left(open_bed: Callable[[], Any]) -> None:
    async with open_bed() as bed:
        await bed.running(0)
        ranks = [pid for pid in bed.processes() if _sleeps(pid)]
        await bed.of("end_remote_ranks", 0)
        assert await bed.known() == {}
        assert all(process_control.is_gone(pid) for pid in ranks)


@pytest.mark.asyncio
async def test_what_is_abandoned_ends(open_bed: Callable[[], Any]) -> None:
    async with open_bed() as bed:
        await bed.running(0)
        await bed.of("abandon", 0)
        async with asyncio.timeout(60):
            while await bed.known():
                await asyncio.sleep(0.005)
        await bed.start(0)
        assert await bed.of("forget_unbegun", 0)
        assert not await bed.of("forget_unbegun", 0)


@pytest.mark.asyncio
async def test_lent_ranks_are_told_and_those_of_an_older_attempt_end_first(open_bed: Callable[[], Any]) -> None:
    async with open_bed() as bed:

        def join(attempt: int) -> bytes:
            return pack(JoinOrder(bed.run, "second", 1, 1, "127.0.0.1", 1, "secret", attempt=attempt))

        await bed.call("start_remote_ranks", join(0))
        assert await bed.of("has_remote_ranks", 0)
        (told,) = decode(await bed.call("runs"), list[NodeRun])
        assert (told.is_lent, told.holds_gpus) == (True, True)
        await bed.call("start_remote_ranks", join(1))
        assert (await bed.of("has_remote_ranks", 0), await bed.of("has_remote_ranks", 1)) == (False, True)
        await _raises(bed.call("start_remote_ranks", join(0)))
        await bed.of("end_remote_ranks", 1)
        assert await bed.known() == {}


@pytest.mark.asyncio
async def test_it_states_its_protocol(open_bed: Callable[[], Any]) -> None:
    async with open_bed() as bed:
        assert decode(await bed.call("hello"), NodeInfo).protocol == AGENT_PROTOCOL


@pytest.mark.slow("fork servers are started")
@pytest.mark.asyncio
async def test_a_node_whose_fork_server_could_not_be_started_again_takes_runs_when_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No run comes to a node in trouble, so none would try: the agent does, also long after it was warm."""
    monkeypatch.setattr(agent_module, "_AGAIN_S", 0.01)
    bed = AgentBed("real", tmp_path)
    bed.agent = _made(bed, monkeypatch)

    async def refuse(_names: list[str]) -> None:
        raise OSError("no process can be made")

    try:
        servers = bed.agent._servers
        await bed.until(lambda: servers.is_standing)
        with monkeypatch.context() as patch:
            patch.setattr(servers, "_spawn", refuse)
            servers._current.kill()
            servers._current.process.wait(60)
            servers.start_soon()
            await bed.until(lambda: servers.trouble)
        await bed.until(lambda: servers.is_standing and not servers.trouble)
    finally:
        await bed.end()
