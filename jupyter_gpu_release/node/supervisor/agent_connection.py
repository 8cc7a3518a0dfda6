"""The agent's end of a pair of supervisor and rank: the line to it, and certainty that nothing of it is left.

The line's end tells of the supervisor's death only. Its rank may live for another second then (the memory of a large
one is slow to go) and holds its GPU, so both are watched by descriptors that the supervisor sends as its first word.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import re
import signal
import socket
from collections.abc import Callable, Sequence

import msgspec

from ...host import process_control
from ...host.process_control import end_all
from ...host.threads import DaemonThreads
from ...protocol.wire import decode, encode
from ..ipc.frames import Kind, pack_frame

_HELLO_BYTES = 4096
#: between looks at supervisors that their cells may hinder
_LOOK_S = 1.0
#: of all processes that a rank has forked, however they detached themselves
_MARK = "jgr-rank-"
_MARK_PATTERN = re.compile(rf"{_MARK}[0-9a-f]{{16}}")
#: more than a node has ranks: a process may not end, and files of ``/proc`` may hang
_threads = DaemonThreads(1 << 10, "jgr-ending")


class Hello(msgspec.Struct, frozen=True):
    """A supervisor's first word; with it come descriptors of itself and of its rank."""

    rank: int
    #: memory that the rank and all that it forks share bears this name
    mark: str
    supervisor: int


def new_mark() -> str:
    """A name for the memory of one rank."""
    return _MARK + os.urandom(8).hex()


def send_hello(agent: socket.socket, rank: int, mark: str) -> None:
    """The supervisor's side; ``agent`` has been said nothing yet. An agent that is gone is noticed later."""
    fds = [os.pidfd_open(os.getpid()), os.pidfd_open(rank)]
    with contextlib.suppress(OSError):
        socket.send_fds(agent, [encode(Hello(rank, mark, os.getpid()))], fds)
    for fd in fds:
        os.close(fd)


class Pair:
    """``supervisor`` and ``rank`` are process descriptors. ``user``: whose processes they are, if not ours."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        hello: Hello,
        supervisor: int,
        rank: int,
        user: int | None = None,
    ) -> None:
        self._user = user
        self.reader = reader
        self.writer = writer
        self.pid = hello.rank
        #: it has been told to get ready for an order
        self.is_warm = False
        self._parent = hello.supervisor
        self._mark = hello.mark
        self._supervisor = supervisor
        self._rank = rank

    @property
    def is_alive(self) -> bool:
        """Tell if it may take an order."""
        return not self.reader.at_eof()

    @property
    def is_closed(self) -> bool:
        """Tell if it has been let go."""
        return self._supervisor < 0

    def warm_up(self, imports: Sequence[str] = ()) -> None:
        """Let it do before its order what would else come after it; not while somebody wants the cores.

        ``imports``: modules that only a process which is not forked any more can import.
        """
        self.is_warm = True
        self.writer.write(pack_frame(Kind.WARM_UP, encode(list(imports))))

    def close(self) -> None:
        """Nothing more is said to it: the supervisor ends its rank, then itself."""
        self.writer.close()
        for fd in (self._supervisor, self._rank):
            if fd >= 0:
                os.close(fd)
        self._supervisor = self._rank = -1

    def processes(self) -> set[int]:
        """The rank and what it has started, be their parents gone: the supervisor has inherited them while it lives."""
        return {self.pid, *process_control.descendants_of(self.pid), *process_control.descendants_of(self._parent)}

    async def watch_supervisor(self) -> None:
        """Kill the supervisor if it is stopped or traced: one of the cell's own user, whom its cell may hinder.

        The end of its line tells of it.
        """
        while process_control.state_of(self._parent) not in ("T", "t"):
            await asyncio.sleep(_LOOK_S)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._supervisor, signal.SIGKILL)

    async def wait_until_ended(self) -> None:
        """Return when neither the supervisor nor the rank lives; one that must end soon is waited for."""
        for fd in (self._supervisor, self._rank):
            await _until_readable(fd)

    async def end_rank(self, on_stuck: Callable[[str], None]) -> None:
        """Kill the rank, which has nothing more to do, and what it has started but for what keeps results."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._rank, signal.SIGKILL)

        def find() -> list[int]:
            return [pid for pid in self.processes() if pid != self.pid and not process_control.is_persister(pid)]

        if find():
            loop = asyncio.get_running_loop()
            await _threads.begin(lambda: end_all(find, on_stuck=lambda text: _tell(loop, on_stuck, text)))

    async def end_processes(self, run: str, on_stuck: Callable[[str], None]) -> None:
        """Kill what is left of the pair and of all that the rank has started; return when it is gone.

        That takes as long as it takes: ``on_stuck`` is told of processes that do not end.
        """
        for fd in (self._supervisor, self._rank):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        loop = asyncio.get_running_loop()
        find = functools.partial(process_control.left_by, self.pid, self._mark, run, self._user)
        await _threads.begin(lambda: end_all(find, on_stuck=lambda text: _tell(loop, on_stuck, text)))
        await self.wait_until_ended()


async def fork_pair(path: str, send_bytes: int, user: int | None = None) -> Pair:
    """Have a fork server fork a pair; returns when it is there. Raises ``OSError`` when it does not come.

    ``user``: whose processes the two are, if not ours. A fork server may be a user's: we signal no others for its word.
    """
    sock = socket.socket(socket.AF_UNIX)
    sock.setblocking(False)
    fds = list[int]()
    try:
        await asyncio.get_running_loop().sock_connect(sock, path)
        await _until_readable(sock.fileno())
        data, fds, _flags, _address = socket.recv_fds(sock, _HELLO_BYTES, 2)
        if not data:
            raise ConnectionResetError("the process for the cell ended as it began")
        hello = _checked(data, fds, user)
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_bytes)
        reader, writer = await asyncio.open_unix_connection(sock=sock, limit=1 << 20)
    except BaseException:
        sock.close()
        for fd in fds:
            os.close(fd)
        raise
    return Pair(reader, writer, hello, fds[0], fds[1], user)


def _checked(data: bytes, fds: Sequence[int], user: int | None) -> Hello:
    """The first word, if it is true; raises ``OSError``."""
    try:
        hello = decode(data, Hello)
    except msgspec.MsgspecError as error:
        raise ConnectionAbortedError("the process for the cell does not say what it is") from error
    pids = [process_control.pid_behind(fd) for fd in fds]
    users = {process_control.user_of(pid) for pid in pids}
    if pids != [hello.supervisor, hello.rank] or users != {os.getuid() if user is None else user}:
        raise ConnectionAbortedError("the process for the cell is not what it says")
    if _MARK_PATTERN.fullmatch(hello.mark) is None:
        raise ConnectionAbortedError("the process for the cell bears no mark")
    return hello


async def _until_readable(fd: int) -> None:
    if process_control.is_readable(fd):
        return
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    own = os.dup(fd)  # two may wait for the same
    loop.add_reader(own, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(own)
        os.close(own)


def _tell(loop: asyncio.AbstractEventLoop, what: Callable[[str], None], text: str) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(what, text)
