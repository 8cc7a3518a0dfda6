"""A pair of supervisor and rank: forked at once, then waiting for an order."""

from __future__ import annotations

import os
import select
import signal
import socket
from collections.abc import Callable
from typing import NoReturn

import msgspec

from ..core.messages import decode
from . import frames, process
from .frames import Kind, RankOrder
from .rank_lines import ChannelRelay, RankLines
from .supervisor import Supervisor
from .text_journal import TextJournal

_ORDER_LIMIT_S = 10.0

RankBody = Callable[[RankLines, TextJournal], NoReturn]


def supervise(agent: socket.socket, run_rank: RankBody) -> NoReturn:
    """Body of the supervisor process; forks the rank at once, then waits for the order on ``agent``.

    ``run_rank`` is the rank's body. So a pair can stand by before anybody asks, and the
    forks are not on the way to the first statement.
    """
    process.become_subreaper()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ours, theirs = socket.socketpair()
    our_channel, their_channel = socket.socketpair()
    stack = os.memfd_create("stack", os.MFD_CLOEXEC)
    pipes = [os.pipe(), os.pipe()]
    journal = TextJournal()
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
        run_rank(RankLines(theirs, their_channel, me, stack), journal)
    theirs.close()
    their_channel.close()
    for _read_end, write_end in pipes:
        os.close(write_end)
    order = _await_order(agent, ours)
    channel = ChannelRelay(our_channel)
    Supervisor(order, agent, ours, rank, [read_end for read_end, _ in pipes], journal, channel, stack).run()
    os._exit(0)


def _await_order(agent: socket.socket, rank: socket.socket) -> RankOrder:
    """Block until an order comes and pass it on; ends this process (and with it the rank) when none ever will."""
    try:
        select.select([agent], [], [])
        agent.settimeout(_ORDER_LIMIT_S)
        frame = frames.receive(agent)
        if frame is None or frame[0] is not Kind.ORDER:
            os._exit(0)
        frames.send(rank, Kind.ORDER, frame[1])
        return decode(frame[1], RankOrder)
    except (OSError, msgspec.DecodeError, ValueError):
        os._exit(0)
