"""Lines to processes that stay after a call of a function, for the next call of it: the agent's side.

A process stays for moments only: the gateway knows whether it has another order for it, and lets it go otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]
#: a gateway that says nothing for so long is gone, or being restarted
_LONGEST_S = 2.0
#: a supervisor that is told to end kills its rank; one that has not done so after this is in trouble itself
_END_S = 5.0


@dataclass
class _Stay:
    line: Line
    #: the fork server that it comes from
    server: object
    limit: asyncio.TimerHandle


class StayingProcesses:
    """By the run that they carried out."""

    def __init__(self) -> None:
        self._stays: dict[str, _Stay] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}

    def keep(self, run: str, line: Line, server: object) -> None:
        """The process of ``run`` waits for another order."""
        limit = asyncio.get_running_loop().call_later(_LONGEST_S, self._end, run)
        self._stays[run] = _Stay(line, server, limit)

    async def take(self, run: str, server: object) -> Line | None:
        """The line to the process of ``run``; None when there is none that ``server`` has forked."""
        stay = self._stays.get(run)
        if stay is None or stay.server is not server or stay.line[0].at_eof():
            await self.let_go(run)
            return None
        del self._stays[run]
        stay.limit.cancel()
        return stay.line

    async def let_go(self, run: str) -> None:
        """End the process of ``run``; returns when it is gone (at once when none stays)."""
        self._end(run)
        if run in self._ending:
            await asyncio.shield(self._ending[run])

    def _end(self, run: str) -> None:
        stay = self._stays.pop(run, None)
        if stay is not None:
            stay.limit.cancel()
            self._ending[run] = asyncio.ensure_future(_until_gone(stay.line))
            self._ending[run].add_done_callback(lambda _: self._ending.pop(run, None))


async def _until_gone(line: Line) -> None:
    """The supervisor's end of the line is closed by its own end, after the rank's."""
    reader, writer = line
    with contextlib.suppress(OSError, TimeoutError):
        writer.write_eof()
        async with asyncio.timeout(_END_S):
            while await reader.read(1 << 16):
                pass
    writer.close()
