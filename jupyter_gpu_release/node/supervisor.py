"""One supervisor per rank: a small process that outlives the rank and ends whatever the rank leaves behind.

It is forked from the fork server, adopts orphans (subreaper), forks the rank, forwards its output, carries out
interrupts and limits, and reports ``RELEASED`` only when no descendant is left (but for the persister,
which holds no device).
"""

from __future__ import annotations

import codecs
import contextlib
import os
import selectors
import signal
import socket
import time

import msgspec

from ..core.messages import Outcome, decode, encode
from . import death, process
from .agent_line import AgentLine
from .frames import Command, FrameReader, Kind, Output, RankOrder, pack
from .memory import MemoryLimit
from .rank_lines import ChannelRelay
from .stacks import where_it_stands
from .text_journal import TextJournal

_SWEEP_S, _BUSY_S = 0.1, 0.002
_EXIT_GRACE_S = 2.0
_PIPE_BYTES = 1 << 20
_BACKLOG_BYTES = 8 << 20


class Supervisor:
    """The supervisor's work once it has an order; ``pipes``: the rank's descriptors 1 and 2."""

    def __init__(
        self,
        order: RankOrder,
        agent: AgentLine,
        sock: socket.socket,
        rank: int,
        pipes: list[int],
        journal: TextJournal,
        channel: ChannelRelay,
        stack: int,
    ) -> None:
        self._journal = journal
        self._channel = channel
        self._stack = stack
        self._order = order
        self._agent = agent
        self._sock = sock
        self._rank = rank
        self._pipes = {
            fd: (name, codecs.getincrementaldecoder("utf-8")("replace"))
            for fd, name in zip(pipes, ("stdout", "stderr"), strict=True)
        }
        self._frames = FrameReader()
        self._outcome: Outcome | None = None
        self._persister = 0
        self._running = self._ended = False
        self._deadline: float | None = None  # kill at this monotonic time
        self._timeout: float | None = None
        self._status = ""  # why we interrupted or killed
        self._kill_reason = ""  # in words, where it was not for want of a reaction
        self._memory = MemoryLimit(order.memory_bytes, order.sharers)
        self._is_ready = False  # the rank takes another order

    # ------------------------------------------------------------------------------ main loop
    def run(self, wake: int) -> bool:
        """Until the rank's end, then the release. The persister stays; it is no longer ours to look after.

        ``wake`` can be read when a signal came. True: the rank is left as it was before, and takes another order.
        """
        selector = selectors.DefaultSelector()
        signal.signal(signal.SIGTERM, self._on_terminate)
        self._sock.setblocking(False)
        for fd in self._pipes:
            os.set_blocking(fd, False)
            selector.register(fd, selectors.EVENT_READ)
        for file in (self._sock, self._agent, self._channel, wake):
            selector.register(file, selectors.EVENT_READ)
        self._read_commands()  # what came together with the order
        with selector:
            status = self._until_rank_ends(selector, wake)
        self._drain()
        if self._outcome is None:
            self._tell_last_words()
        stays = self._is_ready and self._is_alone()
        self._release(status, stays=stays)
        self._agent.flush(wait_s=5.0)
        return stays and not self._agent.is_gone and not self._agent.backlog_bytes

    def _until_rank_ends(self, selector: selectors.BaseSelector, wake: int) -> int:
        """How it ended, as ``waitpid`` says; 0 for a rank that takes another order."""
        while not self._is_ready:
            ready = {key.fd for key, _ in selector.select(_BUSY_S if self._channel.is_behind else _SWEEP_S)}
            if wake in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake, 64)
            if self._agent.fileno() in ready and not self._read_commands():
                selector.unregister(self._agent)
            if self._channel.fileno() in ready and not self._read_channel():
                selector.unregister(self._channel)
            self._channel.flush()
            if self._agent.backlog_bytes < _BACKLOG_BYTES:
                self._drain()
            self._agent.flush()
            self._check_limits()
            pid, status = os.waitpid(self._rank, os.WNOHANG)
            if pid:
                return status
        return 0

    def _is_alone(self) -> bool:
        """Whether there is nothing but the rank, and nobody wants it ended."""
        return not self._status and list(process.descendants_of(os.getpid())) == [self._rank]

    def _read_channel(self) -> bool:
        """What the rank says to the other ranks; False when it says no more."""
        for body in (said := self._channel.read()) or ():
            self._agent.tell(Kind.MEET, body)
        return said is not None

    def _tell_last_words(self) -> None:
        """What the rank printed in its last moments and did not come to send."""
        for name, text in self._journal.unsent():
            self._agent.tell(Kind.OUTPUT, encode([Output(time.time(), "stream", {"name": name, "text": text})]))

    def _on_terminate(self, *_: object) -> None:
        # the fork server (so the agent) died: nobody can be told, but nothing may be left behind
        self._kill_descendants()
        os._exit(1)

    # ---------------------------------------------------------------------------- forwarding
    def _drain(self) -> None:
        """Pass on what the rank wrote; text in the pipes is older than the next frame."""
        while True:
            try:
                data = self._sock.recv(1 << 18)
            except BlockingIOError:
                data = b""
            except OSError:
                data = b""
            for kind, body in self._frames.feed(data):
                self._read_pipes()
                self._take(kind, body)
            if not data:
                break
        self._read_pipes()

    def _read_pipes(self) -> None:
        for fd, (name, decoder) in self._pipes.items():
            text = ""
            with contextlib.suppress(BlockingIOError, OSError):
                while data := os.read(fd, _PIPE_BYTES):
                    text += decoder.decode(data)
            if text:
                self._agent.tell(Kind.OUTPUT, encode([Output(time.time(), "stream", {"name": name, "text": text})]))

    def _take(self, kind: Kind, body: bytes) -> None:
        if kind is Kind.SYNC:
            self._sock.setblocking(True)
            self._sock.sendall(b"\0")
            self._sock.setblocking(False)
        elif kind is Kind.MARK:
            self._memory.start(decode(body, int))
        elif kind is Kind.OUTCOME:
            self._outcome = decode(body, Outcome)
            self._deadline = time.monotonic() + _EXIT_GRACE_S
        elif kind is Kind.PERSISTER:
            self._persister = decode(body, int)
            self._agent.tell(kind, body)
        elif kind is Kind.READY:
            self._is_ready = True
        else:
            if kind is Kind.RUNNING:
                self._running = True
                if self._order.timeout_s:
                    self._timeout = time.monotonic() + self._order.timeout_s
            elif kind is Kind.ENDED:
                self._ended = True
                self._deadline = self._timeout = None
            self._agent.tell(kind, body)

    # ------------------------------------------------------------------------------- commands
    def _read_commands(self) -> bool:
        """Carry out what the agent says; False when the agent is gone."""
        said = self._agent.read()
        if said is None:
            self._kill("lost")
            return False
        for kind, body in said:
            if kind is Kind.SIGNAL:
                self._obey(decode(body, Command))
            elif kind in (Kind.GO, Kind.STAY):
                with contextlib.suppress(OSError):  # the rank died before: that is reported as its end
                    self._sock.send(pack(kind, body))
            elif kind is Kind.MET:
                self._channel.send(body)
        return True

    def _obey(self, command: Command) -> None:
        if command.signal == "stack":
            self._kill_reason = command.reason + where_it_stands(self._rank, self._stack)
            self._kill(command.status)
        elif command.signal == "end" and self._status:
            return  # it has its grace already, for a reason of its own
        elif command.signal == "kill" or self._status:
            self._kill_reason = self._kill_reason or command.reason or "killed at once, as was asked for"
            self._kill(command.status)
        else:
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
        process.kill_each([self._rank])

    def _check_limits(self) -> None:
        now = time.monotonic()
        if self._timeout is not None and now > self._timeout:
            self._timeout = None
            self._interrupt("timeout")
        if self._deadline is not None and now > self._deadline:
            process.kill_each([self._rank])
        if not self._ended and self._memory.is_exceeded(now):
            self._kill("memory")

    # -------------------------------------------------------------------------------- release
    def _release(self, wait_status: int, *, stays: bool = False) -> None:
        left = 0 if stays else self._kill_descendants()
        outcome = self._outcome or self._died(wait_status)
        if self._outcome is not None:
            outcome = msgspec.structs.replace(outcome, status=self._status_word(outcome))
        if left:
            note = f"{left} process{'es' if left > 1 else ''} left behind by the cell {'were' if left > 1 else 'was'}"
            outcome = msgspec.structs.replace(outcome, notes=[*outcome.notes, f"{note} ended"])
        outcome = msgspec.structs.replace(outcome, released_s=time.time())
        self._agent.tell(Kind.STAYS if stays else Kind.RELEASED, encode(outcome))
        self._agent.flush()

    def _status_word(self, outcome: Outcome) -> str:
        # a cell that ended by itself in the moment of the interrupt stays what it was
        if outcome.status == "interrupted":
            return self._status or "error"  # its own KeyboardInterrupt: nobody asked for one
        return outcome.status

    def _died(self, wait_status: int) -> Outcome:
        if self._status == "memory":
            return self._memory.outcome()
        return death.explain(wait_status, self._status, self._order.grace_s, self._kill_reason)

    def _kill_descendants(self) -> int:
        """SIGKILL all descendants but the persister until none is left; returns how many were not the rank's own."""
        left: set[int] = set()
        me = os.getpid()
        while True:
            victims = [pid for pid in process.descendants_of(me) if pid != self._persister]
            alive = [pid for pid in victims if not process.is_gone(pid)]
            left.update(pid for pid in alive if pid != self._rank and process.is_of_the_user(pid))
            process.kill_each(alive)
            self._reap()
            if not victims:
                return len(left)
            time.sleep(0.0005)

    def _reap(self) -> None:
        for pid in process.children_of(os.getpid()):
            if pid != self._persister:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
