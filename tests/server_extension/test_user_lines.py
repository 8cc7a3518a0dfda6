"""A user's line to the gateway ends when nobody asks for it, and is made anew for who asks later."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu_release.client.config import GpuRelease
from jupyter_gpu_release.server_extension import user_tokens
from jupyter_gpu_release.server_extension.user_tokens import UserConnections


class _Line:
    """One that looks until it is told that it has ended."""

    def __init__(self, *_: object, **__: object) -> None:
        self.is_over = asyncio.Event()

    async def run(self) -> None:
        await self.is_over.wait()


@pytest.mark.asyncio
async def test_a_line_that_has_ended_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_tokens, "GatewayConnection", _Line)
    (tmp_path / "ann").touch()
    nobody: Any = None
    lines = UserConnections(GpuRelease(user_tokens=str(tmp_path)), nobody, nobody)
    first: Any = lines.line_of("ann")
    assert lines.line_of("ann") is first
    first.is_over.set()
    await lines._lines["ann"].task
    assert lines.line_of("ann") is not first
    await lines.close()
