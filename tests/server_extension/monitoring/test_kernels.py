"""A question to a kernel whose process dies before it answers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import zmq
import zmq.asyncio
from jupyter_client.ioloop import AsyncIOLoopKernelManager

from jupyter_gpu_release.server_extension.monitoring.kernels import Watch

#: for a question to come
_MOST_MS = 10_000


def test_the_next_process_is_asked_what_the_last_one_never_answered(tmp_path: Path) -> None:
    async def go() -> list[int]:
        manager: Any = AsyncIOLoopKernelManager(connection_file=str(tmp_path / "kernel.json"))
        manager.write_connection_file()
        asked = []
        with zmq.asyncio.Context() as context, context.socket(zmq.ROUTER) as shell:
            shell.bind(f"tcp://{manager.ip}:{manager.shell_port}")
            watch = Watch("k", manager, lambda _: None)
            for pid in (1, 2):
                manager.provisioner = SimpleNamespace(pid=pid)
                watch.find_process()
                if await shell.poll(_MOST_MS):
                    await shell.recv_multipart()
                    asked.append(pid)
            watch.close()
            manager.context.destroy(linger=0)
        return asked

    assert asyncio.run(go()) == [1, 2]
