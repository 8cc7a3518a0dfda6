"""A pair of supervisor and rank: forked at once, then waiting for an order."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable
from typing import NoReturn

import msgspec

from ...host import process_control
from ...protocol.wire import decode
from ..ipc.frames import Kind, RankOrder
from ..ipc.lines import AgentLine, ChannelRelay, RankLine, RankLines
from ..ipc.text_journal import TextJournal
from .pair import new_mark, send_hello
from .supervisor import Supervisor

RankBody = Callable[[RankLines, TextJournal], NoReturn]


def supervise(agent: socket.socket, run_rank: RankBody) -> NoReturn:
    """Body of the supervisor process; forks the rank at once, then waits for the order on ``agent``.

    ``run_rank`` is the rank's body. So a pair can stand by before anybody asks, and the
    forks are not on the way to the first statement.
    """
    process_control.become_subreaper()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ours, theirs = socket.socketpair()
    our_channel, their_channel = socket.socketpair()
    stack = os.memfd_create("stack", os.MFD_CLOEXEC)
    synced = os.eventfd(0, os.EFD_CLOEXEC)
    pipes = [os.pipe(), os.pipe()]
    mark = new_mark()
    journal = TextJournal(mark)
    me = os.getpid()
    rank = os.fork()
    if rank == 0:
        ours.close()
        our_channel.close()
        agent.close()
        for number, (read_end, write_end) in enumerate(pipes, start=1):
            os.close(read_end)
            os.dup2(write_end, number)
            os.close(write_end)
        run_rank(RankLines(theirs, their_channel, me, stack, synced), journal)
    theirs.close()
    their_channel.close()
    for _read_end, write_end in pipes:
        os.close(write_end)
    send_hello(agent, rank, mark)
    line, channel, wake = AgentLine(agent), ChannelRelay(our_channel), _wake_at_signals()
    rank_line = RankLine(ours, synced)
    order = _pass_on_order(line, rank_line, wake, rank)
    if order is not None:
        Supervisor(order, line, rank_line, rank, [read for read, _ in pipes], journal, channel, stack).run(wake)
        os.nice(10)  # nobody waits for its end (9 ms, page tables), but for what the others do now
        os._exit(0)
    process_control.kill_each([rank])  # who sees this process's end may count on the rank's
    with contextlib.suppress(ChildProcessError):
        os.waitpid(rank, 0)
    os._exit(0)


def _wake_at_signals() -> int:
    """A descriptor that can be read when a child has ended."""
    read_end, write_end = os.pipe()
    for fd in (read_end, write_end):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return read_end


def _pass_on_order(agent: AgentLine, rank_line: RankLine, wake: int, rank: int) -> RankOrder | None:
    """Wait for an order and hand it to the rank; None when there will be none, or no rank to take it."""
    try:
        body = agent.await_order(wake, lambda: os.waitpid(rank, os.WNOHANG) == (0, 0))
        if body is None:
            return None
        order = decode(body, RankOrder)
    except (OSError, msgspec.DecodeError, ValueError):
        return None
    rank_line.send_frame(Kind.ORDER, body)
    return order
