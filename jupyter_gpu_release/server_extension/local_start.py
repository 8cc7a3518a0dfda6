"""The start of this machine's own cluster for whoever presses the sidebar's button."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from dataclasses import dataclass

from ..client.autostart import Ready, ended_without_word, read_step, start_command
from ..client.config import GpuRelease
from ..errors import ConflictError, GpuReleaseError
from ..host.child_process import child_process
from .gateway import GatewayConnection, GatewayListener
from .models import ClusterStart

_END_LIMIT_S = 15.0


@dataclass
class _Attempt:
    """One start. ``error``: why it failed; None: it goes on."""

    #: by the clock that is never set
    began_s: float
    step: str = "starting"
    error: GpuReleaseError | None = None


class LocalStart:
    """Runs ``jupyter gpu start`` once at a time, as this server's user; the cluster outlives the server.

    All methods are for the server's event loop.
    """

    def __init__(self, settings: GpuRelease, gateway: GatewayConnection, listener: GatewayListener) -> None:
        """``listener`` hears of each step."""
        self._settings = settings
        self._gateway = gateway
        self._listener = listener
        self._attempt: _Attempt | None = None
        self._task: asyncio.Task[None] | None = None

    def facts(self) -> ClusterStart:
        """State of the start, for people."""
        refusal, attempt = self._refusal(), self._attempt
        if refusal is not None:
            return ClusterStart("refused", message=refusal.message, hint=refusal.hint)
        if attempt is None:
            return ClusterStart("possible")
        if attempt.error is None:
            return ClusterStart("starting", attempt.step, time.monotonic() - attempt.began_s)
        return ClusterStart("failed", message=attempt.error.message, hint=attempt.error.hint)

    def begin(self) -> ClusterStart:
        """Begin a start, unless one goes on already.

        Raises
        ------
        ConflictError
            Another gateway is named, the operator starts clusters, or one is there.
        """
        refusal = self._refusal()
        if refusal is not None:
            raise refusal
        if self._gateway.is_there():
            raise ConflictError("a cluster runs on this machine already", hint="look again: `jupyter gpu status`")
        if self._task is None or self._task.done():
            self._attempt = _Attempt(time.monotonic())
            self._task = asyncio.create_task(self._run(self._attempt), name="start of the local cluster")
        return self.facts()

    async def close(self) -> None:
        """End a start that goes on; it leaves nothing."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _refusal(self) -> ConflictError | None:
        named = os.environ.get("JUPYTER_GPU_URL") or self._settings.url
        if named:
            return ConflictError(f"this server uses the gateway {named}", hint="ask whoever runs it to start it")
        if self._settings.user_tokens or self._settings.auto_start == "never":
            return ConflictError(
                "this server's configuration lets nobody start a cluster from here", hint="ask whoever runs this server"
            )
        return None

    async def _run(self, attempt: _Attempt) -> None:
        try:
            await self._follow(attempt)
        except GpuReleaseError as error:
            attempt.error = error
        except OSError as error:
            attempt.error = GpuReleaseError(f"no process can be started: {error.strerror}")
        except ValueError as error:  # a line beyond all bounds
            attempt.error = ended_without_word(0, str(error).encode())
        else:
            self._attempt = None
            await self._gateway.ask_status()
        self._listener.on_change()

    async def _follow(self, attempt: _Attempt) -> None:
        command, pipes = tuple(start_command(self._settings.start_options)), {"stdout": PIPE, "stderr": PIPE}
        start = child_process(command, _ended, stdin=DEVNULL, **pipes, start_new_session=True)
        async with contextlib.AsyncExitStack() as then, start as process:
            assert process.stdout is not None
            assert process.stderr is not None
            said = asyncio.create_task(process.stderr.read())
            then.push_async_callback(asyncio.wait, {said})
            other = b""
            async for raw in process.stdout:
                line = read_step(raw)
                if isinstance(line, Ready):
                    return
                if line is None:
                    other = raw
                    continue
                attempt.step = line.text
                self._listener.on_change()
            raise ended_without_word(await process.wait(), await said or other)


async def _ended(process: Process) -> None:
    """Wait for its end: after its last word that is now; one that is asked to stop takes its cluster down first."""
    with contextlib.suppress(ProcessLookupError):
        if process.returncode is None:
            process.terminate()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _END_LIMIT_S)
            return
        process.kill()
        await process.wait()
