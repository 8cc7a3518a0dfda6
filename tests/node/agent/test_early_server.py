"""A fork server that was started before its agent: taken over by one agent only, if fit, and ended with that agent."""

from __future__ import annotations

import asyncio
import os
import resource
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from jupyter_gpu_release.host.environment import for_cells
from jupyter_gpu_release.host.process_control import CLUSTER_MARKER, NODE_MARKER
from jupyter_gpu_release.local_cluster.launch_spec import runtime_root
from jupyter_gpu_release.node.agent.fork_server import EarlyServer
from jupyter_gpu_release.node.agent.fork_servers import ForkServers
from jupyter_gpu_release.protocol.node import AgentConfig, ForkServerConfig, early_server_path

Until = Callable[[Callable[[], object], str], None]
_NODE = secrets.token_hex(28)


@pytest.fixture
def config() -> Iterator[AgentConfig]:
    runtime = Path(runtime_root()) / f"jgr-{secrets.token_hex(4)}"
    runtime.mkdir(mode=0o700)
    yield AgentConfig(store=str(runtime), runtime=str(runtime), preload=["json"], cluster=secrets.token_hex(8))
    shutil.rmtree(runtime)


@pytest.fixture
def start(config: AgentConfig, until: Until) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start one as the cluster's daemon does; it is there once its socket is."""
    started = []

    def begin(**more: str) -> subprocess.Popen[bytes]:
        path = early_server_path(config.runtime, _NODE)
        markers = {CLUSTER_MARKER: config.cluster, NODE_MARKER: _NODE}
        told = msgspec.json.encode(ForkServerConfig(os.getpid(), config.preload, early=path)).decode()
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "jupyter_gpu_release.node.fork_server", told],
                cwd="/",
                env=for_cells(os.environ, markers, config.hash_seed) | more,
                start_new_session=True,
            )
        )
        until(Path(f"{path}.ctl").exists, "the early fork server's socket")
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.wait()


def _claimed(config: AgentConfig) -> EarlyServer | None:
    return EarlyServer.claim(early_server_path(config.runtime, _NODE))


def test_the_agents_first_fork_server_is_the_one_that_is_there(
    config: AgentConfig, start: Callable[..., subprocess.Popen[bytes]], until: Until
) -> None:
    process = start()
    early = _claimed(config)
    assert early is not None
    assert early.pid == process.pid
    assert _claimed(config) is None, "one agent has it"
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1] // 2, before[1]))  # Ray sets limits of its workers
    try:
        asyncio.run(_use(config, early))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    process.wait(60)
    until(lambda: early.poll() == 0, "its end is seen")


async def _use(config: AgentConfig, early: EarlyServer) -> None:
    servers = ForkServers(config, _NODE, early=early)
    server = await servers.current_server()
    assert (server.pid, server.notes) == (early.pid, [])
    pair = await server.take_pair()
    assert pair.is_alive
    assert Path(f"/proc/{pair.pid}").exists()
    pair.close()
    assert await servers.ready_server(fresh=False) is server
    assert {path.suffix for path in Path(config.runtime).glob("early-*")} == {".sock", ".news"}
    assert resource.prlimit(early.pid, resource.RLIMIT_NOFILE) == resource.getrlimit(resource.RLIMIT_NOFILE)
    assert early.poll() is None
    await _cancel_others()
    server.remove_files()  # with the line to it: the agent is gone, however it ended
    assert not list(Path(config.runtime).glob("early-*"))


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def test_one_that_is_not_as_our_own_is_ended_and_replaced(
    config: AgentConfig, start: Callable[..., subprocess.Popen[bytes]]
) -> None:
    """Cells would see another environment than the node's."""
    process = start(OTHER_SETTING="1")

    async def use() -> None:
        servers = ForkServers(config, _NODE, early=_claimed(config))
        server = await servers.current_server()
        assert server.pid != process.pid
        servers.kill_all()
        await _cancel_others()
        server.process.wait()  # type: ignore[union-attr]

    asyncio.run(use())
    assert process.wait(60) == -9


def test_without_one_nothing_is_claimed(config: AgentConfig, start: Callable[..., subprocess.Popen[bytes]]) -> None:
    assert _claimed(config) is None
    process = start()
    process.kill()
    process.wait()
    assert _claimed(config) is None, "its socket is there, and nobody behind it"
