"""The worker that each node keeps stays for the agent that is there, also when that is another one."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
from ray.exceptions import WorkerCrashedError

from jupyter_gpu_release.gateway.cluster import lease_workers


def _agent(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen()
    listener.settimeout(60)
    return listener


def test_a_worker_that_an_agent_let_go_stays_for_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_workers.ray, "put", lambda value: value)
    hold = lease_workers._WorkerHold()
    for name in ("first", "next"):
        with _agent(tmp_path / name) as agent:
            hold.begin(str(tmp_path / name))
            line, _ = agent.accept()
            with line:
                held = hold._thread
                hold.begin(str(tmp_path / name))  # it is told with every lease
                assert hold._thread is held
        assert held is not None
        held.join(60)
        assert not held.is_alive()


@pytest.mark.asyncio
async def test_while_a_worker_is_on_its_way_no_other_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[asyncio.Future[list[str]]] = []

    class Tasks:
        def options(self, **_: object) -> Tasks:
            return self

        def remote(self, *_: str) -> asyncio.Future[list[str]]:
            begun.append(asyncio.get_running_loop().create_future())
            return begun[-1]

    monkeypatch.setattr(lease_workers, "accelerator_ids", Tasks())
    monkeypatch.setattr(lease_workers, "NodeAffinitySchedulingStrategy", lambda *_, **__: None)
    asked = [asyncio.create_task(lease_workers.warm_worker("node", "runtime")) for _ in range(2)]
    await lease_workers.nudge_workers(["node"], asyncio.get_running_loop().create_future())
    assert len(begun) == 1
    begun[0].set_exception(WorkerCrashedError())
    await asyncio.gather(*asked)
    asked = [asyncio.create_task(lease_workers.warm_worker("node", "runtime"))]
    await asyncio.sleep(0)
    assert len(begun) == 2
    begun[1].set_result([])
    await asyncio.gather(*asked)
