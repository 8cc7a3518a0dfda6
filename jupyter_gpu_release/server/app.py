"""The extension's life in a Jupyter server: what it is made of, what it starts, what it ends."""

from __future__ import annotations

import asyncio
from typing import Any

from jupyter_server.extension.application import ExtensionApp
from jupyter_server.serverapp import ServerApp

from .. import __version__
from .documents import DOCUMENT_VERSION, Health, Problem, ServerStatus
from .gateway import GatewayLine
from .routes import HANDLERS
from .settings import FILE_NAME, GpuRelease


class GpuReleaseExtension(ExtensionApp):
    """Shows who holds which GPU and acts by the idle policy; works, and says what it misses, where there is none."""

    name = "jupyter_gpu_release"
    description = "GPUs of this server's kernels and of the team's cluster"
    version = __version__
    load_other_extensions = True
    classes = [ServerApp, GpuRelease]  # noqa: RUF012 (traitlets declares it so)

    def _config_file_name_default(self) -> str:
        """The file that the kernels read, too."""
        return FILE_NAME

    def initialize_settings(self) -> None:
        """Make the parts; nothing runs yet."""
        self._tasks: list[asyncio.Task[None]] = []
        self.gateway = GatewayLine(GpuRelease(parent=self))

    def initialize_handlers(self) -> None:
        """Append the routes."""
        self.handlers.extend(HANDLERS)

    async def _start_jupyter_server_extension(self, serverapp: ServerApp) -> None:
        """Start the loops (called by the server once its event loop runs)."""
        self._tasks = [asyncio.create_task(self.gateway.run(), name="jgr-gateway")]

    async def stop_extension(self) -> None:
        """End the loops (called by the server when it ends)."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # ------------------------------------------------------------------------------------- answers
    def status(self) -> ServerStatus:
        """``GET status``: from what is known, without asking anybody."""
        return ServerStatus(
            DOCUMENT_VERSION, __version__, self.gateway.state(), self.gateway.status, [], self.problems()
        )

    def health(self) -> Health:
        """``GET health``."""
        dead = [Problem(task.get_name(), "this loop ended") for task in self._tasks if task.done()]
        return Health(not dead, __version__, self.gateway.state().state, None, dead + self.problems())

    def problems(self) -> list[Problem]:
        """What is missing, in words."""
        state = self.gateway.state()
        return [Problem("gateway", state.message, state.mend)] if state.state != "connected" else []

    def note(self, action: str, subject: str, user: str, **facts: Any) -> None:
        """Record what a person did."""
        self.log.info("GPU: %s %s by %s %s", action, subject, user, facts or "")
