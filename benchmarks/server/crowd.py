"""Loaded into the benchmark's Jupyter server: kernels that are processes asleep, and how long the loop is blocked."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from types import SimpleNamespace

from jupyter_server.base.handlers import JupyterHandler
from tornado import web

from jupyter_gpu_release.server_extension.monitoring.attribution import KernelProcess
from jupyter_gpu_release.server_extension.monitoring.kernels import Conversation, Watches

_TICK_S = 0.01
_delays: list[float] = []


class _Sleeper:
    """As much of a :class:`Watch` as the monitor asks for."""

    def __init__(self, kernel: str, pid: int) -> None:
        self.kernel, self.name, self.path, self.language = kernel, "python3", f"{kernel}.ipynb", "python"
        self.manager = SimpleNamespace(last_activity=None)
        self.process = KernelProcess(kernel, pid)
        self.conversation = Conversation(time.monotonic(), main_shell_answered=True)
        self.execution_state = "idle"

    def known_start(self, start_s: float) -> None:
        """Pin the process."""

    def close(self) -> None:
        """Nothing is open."""


class LoopHandler(JupyterHandler):
    """POST: begin to note how late ticks of the loop come, anew; GET: the milliseconds so far, and no more ticks.

    A hundred ticks a second cost more than the extension does, so they must not run while its CPU is measured.
    """

    ticking: asyncio.Task[None] | None = None

    @web.authenticated
    def get(self) -> None:
        self._end()
        self.finish(json.dumps(_delays or [0.0]))

    @web.authenticated
    async def post(self) -> None:
        self._end()
        _delays.clear()
        LoopHandler.ticking = asyncio.create_task(_tick())

    def _end(self) -> None:
        if LoopHandler.ticking is not None:
            LoopHandler.ticking.cancel()


async def _tick() -> None:
    while True:
        due_s = time.monotonic() + _TICK_S
        await asyncio.sleep(_TICK_S)
        _delays.append(max(0.0, time.monotonic() - due_s) * 1000)


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": "benchmarks.server.crowd"}]


def _load_jupyter_server_extension(serverapp) -> None:  # type: ignore[no-untyped-def]
    pids = json.loads(Path(os.environ["JUPYTER_GPU_BENCH_PIDS"]).read_text())
    crowd = {f"k{number}": _Sleeper(f"k{number}", pid) for number, pid in enumerate(pids)}

    async def refresh(self: Watches) -> None:
        self.watches = crowd  # type: ignore[assignment]

    Watches.refresh = refresh  # type: ignore[method-assign]
    serverapp.web_app.add_handlers(".*$", [("/jupyter-gpu-bench/loop", LoopHandler)])
