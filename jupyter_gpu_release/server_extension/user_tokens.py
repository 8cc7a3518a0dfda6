"""Jupyter's identities as the gateway's users: whose token speaks when somebody asks through this server."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from urllib.parse import quote

from traitlets.config import LoggingConfigurable

from ..client.config import GpuRelease
from ..errors import ForbiddenError
from .gateway import GatewayConnection, GatewayListener

#: a line that nobody asked for so long is closed
_UNUSED_S = 300.0
_FIRST_LOOK_S = 2.0


class UserConnections(LoggingConfigurable):
    """The line for each identity: the server's own, or with ``c.GpuRelease.user_tokens`` one with the user's token.

    The gateway decides what each may see and do; a user without a token of her own gets nothing of the server's.
    """

    def __init__(self, settings: GpuRelease, own: GatewayConnection, listener: GatewayListener) -> None:
        super().__init__(parent=settings)
        self._settings = settings
        self._own = own
        self._listener = listener
        self._lines: dict[str, _UserConnection] = {}

    def line_of(self, username: str) -> GatewayConnection:
        """The line that speaks for ``username``. Raises :class:`ForbiddenError` when there is no token for her."""
        if not self._settings.user_tokens:
            return self._own
        file = Path(self._settings.user_tokens).expanduser() / file_name(username)
        if not file.is_file():
            self._drop(username)
            raise ForbiddenError(
                f"there is no token of the GPU cluster for {username} on this server",
                hint=f"its operator puts one into c.GpuRelease.user_tokens, as the file {file.name}",
            )
        used = self._lines.get(username)
        if used is None or used.task.done():
            line = GatewayConnection(self._settings, self._listener, token_file=str(file))
            used = self._lines[username] = _UserConnection(line)
        used.asked_s = time.monotonic()
        return used.line

    async def seen_by(self, username: str) -> GatewayConnection:
        """Like :meth:`line_of`, for somebody who wants its last status: a new line gets a moment for its first look."""
        line = self.line_of(username)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(line.looked.wait(), _FIRST_LOOK_S)
        return line

    def _drop(self, username: str) -> None:
        used = self._lines.pop(username, None)
        if used is not None:
            used.task.cancel()

    async def close(self) -> None:
        """End all lines but the server's own."""
        tasks = [used.task for used in self._lines.values()]
        self._lines.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _UserConnection:
    """A user's line, and when it was last asked for; ends when that is long ago."""

    def __init__(self, line: GatewayConnection) -> None:
        self.line = line
        self.asked_s = time.monotonic()
        self.task = asyncio.create_task(self._run(), name="gateway of a user")

    async def _run(self) -> None:
        looking = asyncio.create_task(self.line.run())
        try:
            while time.monotonic() - self.asked_s < _UNUSED_S and not looking.done():
                await asyncio.wait([looking], timeout=_UNUSED_S / 10)
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)


def file_name(username: str) -> str:
    """The file of a user's token: letters, digits and ``_.-~@+`` stay, the rest is percent-encoded. Never a path."""
    name = quote(username, safe="@+")
    return f"%2E{name[1:]}" if name.startswith(".") else name
