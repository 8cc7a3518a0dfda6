"""The worker that each node keeps stays for the agent that is there, also when that is another one."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

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
