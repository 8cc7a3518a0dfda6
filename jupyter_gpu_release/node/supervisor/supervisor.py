"""One supervisor per rank: a small process that outlives the rank and ends whatever the rank leaves behind.

It is forked from the fork server, adopts orphans (subreaper), forks the rank, forwards its output, carries out
interrupts and limits, and reports ``RELEASED`` only when no descendant is left (but for the persister,
which holds no device).
"""

from __future__ import annotations

import codecs
import contextlib
import math
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import NoReturn

import msgspec

from ...host import process_control
from ...host.process_control import STUCK_S, end_all
from ...protocol.runs import Outcome
from ...protocol.wire import decode, encode
from ..ipc.frames import Command, Kind, Output, RankOrder
from ..ipc.lines import AgentLine, ChannelRelay, RankLine, RankLines
from ..ipc.notice import Notice, Word
from ..ipc.stack_dump import ask_for_stack
from ..ipc.text_journal import TextJournal
from ..run_packages import packages_folder, remove_packages
from . import exit_reason
from .agent_connection import new_mark, send_hello
from .limits import MemoryLimit, StallWatch
from .written_files import FileListing, WrittenPaths

_SWEEP_S = 0.1
#: an agent that has not heard the last word after this will not
_HEARD_S = 10.0
#: a rank that has closed its line to us, and lives on for so long, will not be heard again
_UNHEARD_S = 1.0
_EXIT_GRACE_S = 2.0
_PIPE_BYTES = 1 << 20
_BACKLOG_BYTES = 8 << 20
#: of a rank that says a lot: then the agent is heard again
_MOST_READS = 32

#: signals that the rank itself looks at, at its safe points
_WORDS = {"yield": Word.PREEMPT, "hold": Word.HOLD, "save": Word.SAVE, "go on": Word.NOTHING}


class Supervisor:
    """The supervisor's work once it has an order; ``pipes``: the rank's descriptors 1 and 2."""

    def __init__(
        self,
        order: RankOrder,
        agent: AgentLine,
        line: RankLine,
        rank: int,
        pipes: list[int],
        journal: TextJournal,
        channel: ChannelRelay,
        stack: int,
        notice: Notice,
        packages: str,
    ) -> None:
        self._notice = notice
        self._packages = packages
        self._journal = journal
        self._channel = channel
        self._stack = stack
        self._order = order
        self._agent = agent
        self._line = line
        self._rank = rank
        self._pipes = {
            fd: (name, codecs.getincrementaldecoder("utf-8")("replace"))
            for fd, name in zip(pipes, ("stdout", "stderr"), strict=True)
        }
        #: those that somebody may still write to: the cell may have put a file of its own in their place
        self._open_pipes = set(self._pipes)
        self._outcome: Outcome | None = None
        self._look: FileListing | None = None
        self._persister = 0
        self._running = self._ended = False
        self._deadline: float | None = None  # kill at this monotonic time
        self._timeout: float | None = None
        self._unheard_from = 0.0  # monotonic time; 0: its line is open
        self._status = ""  # why we interrupted or killed
        self._kill_reason = ""  # in words, where it was not for want of a reaction
        self._killed_from = 0.0  # monotonic time of the first SIGKILL; inf: it is told that this does not help
        self._memory = MemoryLimit(order.memory_bytes, order.sharers)
        self._stall = StallWatch(rank, order.stall_s)
        self._state = ""  # of a stalled rank
        self._is_leaving = False  # the rank holds nothing any more but memory, and nobody else is left
        self._agent_speaks = self._rank_speaks = True
        self._heard: dict[int, int] = {}  # what the selector waits for, by descriptor

    # ------------------------------------------------------------------------------ main loop
    def run(self, wake: int) -> None:
        """Serve until the rank's end, then release. The persister stays; it is no longer ours to look after.

        A rank that has let go of everything and is about to end counts as gone: the system takes another 10 ms to get
        its memory back.

        ``wake`` can be read when a signal came.
        """
        selector = selectors.DefaultSelector()
        signal.signal(signal.SIGTERM, self._on_terminate)
        for fd in self._pipes:
            os.set_blocking(fd, False)
        selector.register(wake, selectors.EVENT_READ)
        self._read_commands()  # what came together with the order
        with selector:
            status = self._until_rank_ends(selector, wake)
        self._drain()
        if self._outcome is None:
            self._tell_last_words()
        self._release(status)
        self._agent.flush(wait_s=math.inf)  # an agent that is busy hears it later; one that is gone ends this
        if self._is_leaving:
            self._kill_descendants()
        remove_packages(self._packages)
        self._agent.await_close(_HEARD_S)

    def _until_rank_ends(self, selector: selectors.BaseSelector, wake: int) -> int:
        """Wait for the rank to end, or to be about to; returns its ``waitpid`` status."""
        while not self._is_leaving:
            self._listen(selector)
            ready = {key.fd for key, events in selector.select(_SWEEP_S) if events & selectors.EVENT_READ}
            if wake in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake, 64)
            if self._agent.fileno() in ready:
                self._read_commands()
            if self._channel.fileno() in ready:
                self._read_channel()
            self._line.flush()
            self._channel.flush()
            if self._agent.backlog_bytes < _BACKLOG_BYTES:
                self._drain(_MOST_READS)
            self._agent.flush()
            self._check_limits()
            pid, status = os.waitpid(self._rank, os.WNOHANG)
            if pid:
                return status
        return 0

    def _is_alone(self) -> bool:
        return not process_control.has_others(os.getpid(), (self._rank, self._persister))

    def _listen(self, selector: selectors.BaseSelector) -> None:
        """Wait for what can be read, as far as the agent takes it, and for who has not taken everything yet."""
        read, write = selectors.EVENT_READ, selectors.EVENT_WRITE
        rank = read if self._agent.backlog_bytes < _BACKLOG_BYTES else 0
        wanted = {fd: rank if fd in self._open_pipes else 0 for fd in self._pipes}
        wanted[self._line.fileno()] = (0 if self._line.is_closed else rank) | (write if self._line.is_behind else 0)
        wanted[self._channel.fileno()] = (read if self._rank_speaks else 0) | (write if self._channel.is_behind else 0)
        wanted[self._agent.fileno()] = (read if self._agent_speaks else 0) | (write if self._agent.backlog_bytes else 0)
        for fd, events in wanted.items():
            known = self._heard.get(fd, 0)
            if not known and events:
                selector.register(fd, events)
            elif known and not events:
                selector.unregister(fd)
            elif events != known:
                selector.modify(fd, events)
        self._heard = wanted

    def _read_channel(self) -> None:
        """Pass on what the rank says to the other ranks."""
        for body in (said := self._channel.read_calls()) or ():
            self._agent.queue_frame(Kind.MEET, body)
        self._rank_speaks = said is not None

    def _tell_last_words(self) -> None:
        """Pass on what the rank printed in its last moments and had no time to send."""
        for name, text in self._journal.unsent_texts():
            self._agent.queue_frame(Kind.OUTPUT, encode([Output(time.time(), "stream", {"name": name, "text": text})]))

    def _on_terminate(self, *_: object) -> None:
        # the fork server (so the agent) died: nobody can be told, but nothing may be left behind
        self._kill_descendants(limit_s=STUCK_S)
        remove_packages(self._packages)
        os._exit(1)

    # ---------------------------------------------------------------------------- forwarding
    def _drain(self, most_reads: int = sys.maxsize) -> None:
        """Pass on what the rank wrote; text in the pipes is older than the next frame."""
        for _ in range(most_reads):
            said = self._line.read_frames()
            for kind, body in said or ():
                self._read_pipes()
                self._take(kind, body)
            if said is None:
                break
        self._read_pipes()

    def _read_pipes(self) -> None:
        for fd, (name, decoder) in self._pipes.items():
            text = ""
            with contextlib.suppress(BlockingIOError, OSError):
                # all that is there now; more would let a program that never stops writing keep us here
                data = os.read(fd, _PIPE_BYTES)
                text = decoder.decode(data)
                if not data:
                    self._open_pipes.discard(fd)
            if text:
                self._agent.queue_frame(
                    Kind.OUTPUT, encode([Output(time.time(), "stream", {"name": name, "text": text})])
                )

    def _take(self, kind: Kind, body: bytes) -> None:
        if kind is Kind.SYNC:
            self._line.confirm_sync()
        elif kind is Kind.MARK:
            self._memory.start(decode(body, int))
        elif kind is Kind.OUTCOME:
            self._outcome = decode(body, Outcome)
            self._stall.stop()
            self._deadline = time.monotonic() + _EXIT_GRACE_S
        elif kind is Kind.FILES:
            self._look = FileListing(decode(body, WrittenPaths), self._order.owner if self._order.as_owner else None)
        elif kind is Kind.PERSISTER:
            self._persister = decode(body, int)
            if self._order.as_owner:
                process_control.spare_from_oom_killer(self._persister)
            self._agent.queue_frame(kind, body)
        elif kind is Kind.LEAVING:
            self._is_leaving = not self._status and self._is_alone()
        else:
            if kind is Kind.RUNNING:
                self._running = True
                if self._order.as_owner and self._order.mark:
                    with contextlib.suppress(OSError):  # no disk: then it would be run again
                        os.close(os.open(self._order.mark, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
                self._stall.stop()
                if self._order.timeout_s:
                    self._timeout = time.monotonic() + self._order.timeout_s
            elif kind is Kind.ENDED:
                self._ended = True
                self._deadline = self._timeout = None
            self._agent.queue_frame(kind, body)

    # ------------------------------------------------------------------------------- commands
    def _read_commands(self) -> None:
        """Carry out what the agent says; its end is the rank's."""
        said = self._agent.read_frames()
        if said is None:
            self._agent_speaks = False
            self._kill("lost")
            return
        for kind, body in said:
            if kind is Kind.SIGNAL:
                self._obey(decode(body, Command))
            elif kind is Kind.GO:
                self._line.send_frame(kind, body)
                self._stall.start(time.monotonic())
            elif kind is Kind.ANSWER:
                self._line.send_frame(kind, body)
            elif kind is Kind.MET:
                self._channel.send_reply(body)

    def _obey(self, command: Command) -> None:
        if command.signal in _WORDS:
            self._notice.give(_WORDS[command.signal], command.place)
            if command.signal == "hold":
                self._agent.queue_frame(Kind.HELD, encode(self._notice.place_of_rank()))
        elif command.signal == "stack":
            self._kill_reason = command.reason + ask_for_stack(self._rank, self._stack)
            self._kill(command.status)
        elif command.signal == "kill":
            self._kill_reason = self._kill_reason or command.reason or "killed at once, as was asked for"
            self._kill(command.status)
        elif not self._status:  # else it has its grace already; one that is told twice strikes once
            self._interrupt(command.status, command.grace_s)

    def _interrupt(self, status: str, grace_s: float | None = None) -> None:
        self._status = self._status or status
        if self._ended:
            return
        self._deadline = time.monotonic() + (self._order.grace_s if grace_s is None else grace_s)
        if self._running:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._rank, signal.SIGINT)
        else:
            self._kill_reason = "interrupted before its first statement"
            self._kill(status)

    def _kill(self, status: str) -> None:
        self._status = status
        self._kill_rank()

    def _kill_rank(self) -> None:
        self._killed_from = self._killed_from or time.monotonic()
        process_control.kill_each([self._rank])

    def _check_limits(self) -> None:
        now = time.monotonic()
        if self._timeout is not None and now > self._timeout:
            self._timeout = None
            self._interrupt("timeout")
        if self._deadline is not None and now > self._deadline:
            self._kill_rank()
        if self._killed_from and now > self._killed_from + STUCK_S:
            self._killed_from = math.inf
            self._tell_stuck(process_control.in_words([self._rank]))
        if self._line.is_closed and self._outcome is None:
            self._unheard_from = self._unheard_from or now + _UNHEARD_S
            if now > self._unheard_from:  # one that ends says itself of what
                self._kill("unheard")
        if self._stall.is_stalled(now):
            self._stall.stop()
            self._state = process_control.state_of(self._rank)
            self._kill("stalled")
        if not self._ended and self._memory.is_exceeded(now):
            self._kill("memory")

    # -------------------------------------------------------------------------------- release
    def _release(self, wait_status: int) -> None:
        left = 0 if self._is_leaving else self._kill_descendants()
        outcome = self._outcome or self._died(wait_status)
        if self._outcome is not None:
            outcome = msgspec.structs.replace(outcome, status=self._status_word(outcome))
            if self._look is not None:
                outcome, self._look = self._look.add_to_outcome(outcome), None
        if left:
            note = f"{left} process{'es' if left > 1 else ''} left behind by the cell {'were' if left > 1 else 'was'}"
            outcome = msgspec.structs.replace(outcome, notes=[*outcome.notes, f"{note} ended"])
        outcome = msgspec.structs.replace(outcome, released_s=time.time())
        self._agent.queue_frame(Kind.RELEASED, encode(outcome))
        self._agent.flush()

    def _status_word(self, outcome: Outcome) -> str:
        # a cell that ended by itself in the moment of the interrupt stays what it was
        if outcome.status == "interrupted":
            return self._status or "error"  # its own KeyboardInterrupt: nobody asked for one
        return outcome.status

    def _died(self, wait_status: int) -> Outcome:
        if self._status == "memory":
            return self._memory.outcome()
        if self._status == "stalled":
            return self._stall.outcome(self._state)
        return exit_reason.explain_exit(wait_status, self._status, self._order.grace_s, self._kill_reason)

    def _kill_descendants(self, limit_s: float = math.inf) -> int:
        """SIGKILL all descendants but the persister until none is left; returns how many were not the rank's own."""
        left: set[int] = set()

        def find() -> list[int]:
            self._reap()
            victims = [pid for pid in process_control.descendants_of(os.getpid()) if pid != self._persister]
            new = [pid for pid in victims if pid not in left and pid != self._rank and not process_control.is_gone(pid)]
            left.update(pid for pid in new if process_control.is_of_the_user(pid))
            return victims

        end_all(find, on_stuck=self._tell_stuck, limit_s=limit_s)
        self._reap()
        return len(left)

    def _tell_stuck(self, text: str) -> None:
        """The GPUs stay held: whoever waits shall know for what."""
        self._agent.queue_frame(Kind.STUCK, text.encode())
        self._agent.flush()

    def _reap(self) -> None:
        for pid in process_control.children_of(os.getpid()):
            if pid != self._persister:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)


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
    mark, notice = new_mark(), Notice()
    journal, packages = TextJournal(mark), packages_folder(mark)
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
        run_rank(RankLines(theirs, their_channel, me, stack, synced, notice, packages), journal)
    theirs.close()
    their_channel.close()
    for _read_end, write_end in pipes:
        os.close(write_end)
    send_hello(agent, rank, mark)
    line, channel, wake = AgentLine(agent), ChannelRelay(our_channel), _wake_at_signals()
    rank_line = RankLine(ours, synced)
    order = _pass_on_order(line, rank_line, wake, rank)
    if order is not None:
        reads = [read for read, _ in pipes]
        Supervisor(order, line, rank_line, rank, reads, journal, channel, stack, notice, packages).run(wake)
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


def _has_ended(child: int) -> bool:
    """Tell if a child has ended, and leave its number its own: it may still be signalled."""
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _pass_on_order(agent: AgentLine, rank_line: RankLine, wake: int, rank: int) -> RankOrder | None:
    """Wait for an order and hand it to the rank; None when there will be none, or no rank to take it."""
    try:
        body = agent.await_order(
            wake, lambda: not _has_ended(rank), lambda body: rank_line.send_frame(Kind.WARM_UP, body)
        )
        if body is None:
            return None
        order = decode(body, RankOrder)
    except (OSError, msgspec.DecodeError, ValueError):
        return None
    rank_line.send_frame(Kind.ORDER, body)
    return order
