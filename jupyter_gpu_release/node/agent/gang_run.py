"""Processes of one run, the leader of a gang included: start, meet, end."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

import msgspec

from ...protocol.fetch import FETCH, NEXT
from ...protocol.node import StartOrder
from ...protocol.runs import Outcome, Save
from ...protocol.wire import decode, encode
from ...settings.built_in import BUILT_IN
from ..gang.hangs import Progress, find_hang
from ..gang.layout import RANK, GangLayout, HeldPorts, NodeLocation, RankSpec, RemoteRankHello, gang_environment
from ..gang.rendezvous import SETTLE, CollectiveCall, CollectiveReplies, Rendezvous
from ..gang.safe_point import SAVE, YIELD, SafePointAgreement
from ..ipc.frames import Command, FrameReader, Go, Kind, Output, RankOrder, SpoolConfig, Stay, died_outcome, pack_frame
from ..supervisor.agent_connection import Pair
from . import gang_plan
from .fork_server import ForkServer
from .fork_servers import ForkServers


class _Answered(msgspec.Struct):
    """An answer as far as it says what it answers."""

    ask: int = 0


@dataclass
class RankConnection:
    """Facts about the process of ``spec``, and the way to it."""

    spec: RankSpec
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    #: on this node; other nodes' agents look after theirs
    pair: Pair | None = None
    gpu_ids: list[str] = field(default_factory=list)
    progress: Progress = field(default_factory=Progress)
    outcome: Outcome | None = None
    #: number of the question to the notebook or script that waits for its answer; 0: none does
    question: int = 0

    def pass_answer(self, body: bytes) -> None:
        """Pass an answer on if it is to the question that waits, or says that none will come."""
        if self.question and decode(body, _Answered).ask in (0, self.question):
            self.question = 0
            self.send_frame(Kind.ANSWER, body)

    def send_frame(self, kind: Kind, body: bytes) -> None:
        """Say something; a process that is gone does not hear it."""
        with contextlib.suppress(OSError):
            self.writer.write(pack_frame(kind, body))


#: nodes that have not lent their ranks after this will not
_JOIN_S: float = BUILT_IN["gang_join_s"].default
#: ranks that have nothing to hand over get so long to end by themselves
_OTHERS_GRACE_S = 1.0
#: with parameter servers, the chief's end is the end: workers that only serve are dismissed after this
_DISMISS_S = 2.0
_LOOK_S = 1.0
#: of one frame, where a user's process may have made it up: no output is as long
_MOST_FRAME_BYTES = 256 << 20


#: the accelerators on this node once the lease is there, None when it will not be
AwaitGrant = Callable[[], Awaitable[list[str] | None]]


class UnbegunError(Exception):
    """A gang over nodes lost processes before any was told to begin. Who lent the others must lend them anew."""


class GangListener(Protocol):
    """Listener to what the processes do. Called on the agent's event loop; nothing here may wait or raise."""

    def on_output(self, output: Output, marks: dict[str, object]) -> None:
        """Something to record."""

    def on_running(self, at_s: float) -> None:
        """Rank 0 begins its first statement."""

    def on_ended(self, at_s: float) -> None:
        """Rank 0's last statement has ended."""

    def on_persister(self, pid: int) -> None:
        """The process that writes rank 0's values."""

    def on_stuck(self, text: str) -> None:
        """Processes cannot be ended, and keep the GPUs."""

    def on_saved(self, save: Save) -> None:
        """They go on, and may be begun again from there."""

    def on_stay(self, stay: Stay) -> None:
        """They were to be preempted, and go on."""

    def on_unreported(self, rank: int) -> Outcome:
        """A supervisor on this node ended without a report, and nothing is left of its rank: say what that means."""


class GangRun:
    """``where.address``: for the other nodes; only needed when the gang has several processes."""

    def __init__(self, order: StartOrder, keep: SpoolConfig, watcher: GangListener, where: NodeLocation) -> None:
        self._order = order
        self._keep = keep
        self._watcher = watcher
        self._address = where.address if order.gang.members else "127.0.0.1"
        self._specs = gang_plan.rank_specs_of(order, where.host)
        self._is_gang = order.gang.is_gang or len(self._specs) > 1
        self._ranks = sum(spec.role == RANK for spec in self._specs)
        self._lines: dict[int, RankConnection] = {}
        self._changed = asyncio.Event()
        self._signalled: Command | None = None
        #: a process that is no gang meets nobody
        self._meetings: dict[str, Rendezvous] = {}
        if self._is_gang:
            self._meetings = {"cell": Rendezvous(self._ranks)}
            self._meetings |= {name: Rendezvous(self._ranks, in_step=False) for name in ("gather", "save")}
        self._agreement = SafePointAgreement(self._ranks) if self._ranks > 1 else None
        #: saves without notice that some ranks have made: number → rank → its part
        self._parts: dict[int, dict[int, Save]] = {}
        self._waiting_since_s: float | None = None
        self._is_going = self._is_cut_off = self._is_withdrawn = self._is_to_yield = False
        #: hosts that the cluster says are gone
        self._gone: set[str] = set()
        #: says that the cell has begun, and outlives this agent; left by the first rank to begin, or, where not all of
        #: them may write it (it is another node's disk, or they are a user's), by the agent before it tells them to
        self._is_marked_here = bool(order.gang.members) or order.has_owners_server
        self._mark = f"{where.marks}/{order.attempt_id}" if where.marks else ""

    # ------------------------------------------------------------------------------------- start
    async def run_to_end(self, servers: ForkServers, granted: AwaitGrant) -> Outcome | None:
        """Run from the order to the end of all processes; None when the lease was not granted, or is given back.

        Raises :class:`UnbegunError`.
        """
        order = self._order
        server = await servers.ready_server(
            fresh=order.fresh, needs=order.needs, user=order.user, is_gang=self._is_gang
        )
        mine = [spec for spec in self._specs if spec.node == 0]
        with HeldPorts(self._address, len(mine) + 1 if self._is_gang else 0) as ports:
            try:
                for number, spec in enumerate(mine):
                    await self._connect(server, replace(spec, address=self._address, port=ports.port(number)))
                gpu_ids = await granted()
                if gpu_ids is None:
                    return None
                complete = await self._all_joined()
                if self._is_withdrawn:
                    return None
                self._check_nobody_left()
                if not complete:
                    return await self._incomplete()
                self._go(gpu_ids, ports.port(len(mine)))
                outcome = await self._until_ended()
                return gang_plan.explain_stolen_port(outcome, self._specs, ports.port(len(mine)), ports.taken_ports())
            except BaseException:
                await self._end_left()
                raise
            finally:
                for line in self._lines.values():
                    if line.pair is None:
                        line.writer.close()
                pairs = [line.pair for line in self._lines.values() if line.pair is not None]
                servers.release_server(server, pairs)

    def processes(self) -> set[int]:
        """Ranks on this node, and what they have started."""
        pairs = [line.pair for line in list(self._lines.values()) if line.pair is not None]
        return {pid for pair in pairs for pid in pair.processes()}

    async def _end_left(self) -> None:
        """Something went wrong here: no GPU is let go before the processes that were told of it are gone."""
        left = [line.pair for line in self._running() if line.pair is not None and self._is_going]
        await asyncio.gather(*(pair.end_processes(self._order.run, self._watcher.on_stuck) for pair in left))

    def withdraw(self) -> bool:
        """End what was made ready, without a word; False: the processes have been told to begin."""
        self._is_withdrawn = not self._is_going
        self._changed.set()
        return self._is_withdrawn

    @property
    def is_cut_off_early(self) -> bool:
        """Tell if its processes here were killed before its first statement, and nobody wanted it ended."""
        return self._is_cut_off and self._signalled is None and not self.has_begun

    @property
    def has_begun(self) -> bool:
        """Tell if the first statement has begun, as far as can be known: what is not known has begun."""
        if any(line.progress.began_s is not None for line in self._lines.values()):
            return True
        return self._is_going and (not self._mark or os.path.exists(self._mark))

    async def _connect(self, server: ForkServer, spec: RankSpec) -> None:
        pair = await server.take_pair()
        self._add(RankConnection(spec, pair.reader, pair.writer, pair))

    def _add(self, line: RankConnection) -> None:
        self._specs[line.spec.index] = line.spec
        self._lines[line.spec.index] = line
        line.send_frame(Kind.ORDER, encode(self._order_of(line.spec)))
        self._changed.set()

    def _order_of(self, spec: RankSpec) -> RankOrder:
        mark = "" if self._is_marked_here else self._mark
        return gang_plan.rank_order(self._order, self._keep, spec, self._specs, mark)

    def attach_rank(self, lent: RemoteRankHello, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Take a rank that another node lends; False when it is not wanted (any more)."""
        members = self._order.gang.members
        node = next((number for number, member in enumerate(members, start=1) if member.node == lent.node), 0)
        spec = next((s for s in self._specs if s.node == node and s.local == lent.local), None) if node else None
        if spec is None or spec.index in self._lines or self._is_going:
            return False
        self._add(
            RankConnection(replace(spec, address=lent.address, port=lent.port), reader, writer, gpu_ids=lent.gpu_ids)
        )
        return True

    async def _all_joined(self) -> bool:
        deadline = time.monotonic() + _JOIN_S
        while len(self._lines) < len(self._specs) and self._signalled is None and not self._left():
            left_s = deadline - time.monotonic()
            if left_s <= 0 or self._is_withdrawn:
                break
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), min(_LOOK_S, left_s))
        return len(self._lines) == len(self._specs)

    def _left(self) -> list[str]:
        """Hosts whose processes ended without a word, or whose agents are gone."""
        ended = {line.spec.host for line in self._lines.values() if line.reader.at_eof()}
        return sorted(ended | self._gone)

    def _check_nobody_left(self) -> None:
        if self._order.gang.members and self._signalled is None and (left := self._left()):
            raise UnbegunError(f"ranks on {', '.join(left)} ended before the gang began")

    async def _incomplete(self) -> Outcome:
        self._tell_all(Command("kill", "lost"))
        await asyncio.gather(*(self._follow(line) for line in list(self._lines.values())))
        if self._signalled is not None:
            text = "the cell was interrupted before its first statement; it left no names"
            return died_outcome(self._signalled.status, "KeyboardInterrupt", text)
        hosts = sorted({spec.host for spec in self._specs if spec.index not in self._lines})
        text = f"{', '.join(hosts)} did not join the gang within {_JOIN_S:g} s"
        hint = "run the cell again; `jupyter gpu doctor` looks at the nodes"
        return died_outcome("lost", "GangIncomplete", text, code="lost", hint=hint)

    def _go(self, gpu_ids: list[str], master_port: int) -> None:
        """All or none: nobody begins before everybody is there."""
        if self._mark and self._is_marked_here:
            os.close(os.open(self._mark, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        self._is_going = True
        complete = GangLayout(self._specs, master_port, self._is_gang)
        for line in self._lines.values():
            spec = line.spec
            ids = (gpu_ids if spec.node == 0 else line.gpu_ids) if spec.role == RANK else []
            share = gang_plan.share_gpus(ids, spec.local_size)[spec.local]
            address = spec.address if spec.node else ""
            go = Go(
                share, gang_environment(complete, spec), spec.local, spec.local_size, spec.node, complete.nodes, address
            )
            if self._order.is_part and share:
                go = msgspec.structs.replace(go, part=self._order.gpus, part_bytes=self._order.part_bytes)
            line.send_frame(Kind.GO, encode(go))
        if self._signalled is not None:
            self._tell_all(self._signalled)
        if self._is_to_yield:
            self.preempt()

    # --------------------------------------------------------------------------------------- run
    async def _until_ended(self) -> Outcome:
        watches = [asyncio.create_task(self._watch_for_hangs())]
        if self._order.has_owners_server:
            pairs = [line.pair for line in self._lines.values() if line.pair is not None]
            watches += [asyncio.create_task(pair.watch_supervisor()) for pair in pairs]
        try:
            await asyncio.gather(*(self._follow(line) for line in list(self._lines.values())))
        finally:
            for watch in watches:
                watch.cancel()
        return gang_plan.merge_outcomes(
            {i: line.outcome for i, line in self._lines.items() if line.outcome is not None}, self._specs
        )

    async def _follow(self, line: RankConnection) -> None:
        frames = FrameReader(_MOST_FRAME_BYTES if self._order.as_owner else math.inf)
        with contextlib.suppress(OSError):  # a node that is gone
            # RELEASED is the last word; the supervisor's own end (it holds nothing) takes another 9 ms
            while line.outcome is None and (data := await line.reader.read(1 << 18)):
                for kind, body in frames.feed(data):
                    self._take(line, kind, body)
        if line.outcome is None:
            self._on_released(line, await self._lost(line))
        elif line.pair is not None and self._order.has_owners_server:  # a user's process has said that nothing is left
            await line.pair.end_rank(self._watcher.on_stuck)

    async def _lost(self, line: RankConnection) -> Outcome:
        spec = line.spec
        self._is_cut_off = True
        if line.pair is not None:
            await line.pair.end_processes(self._order.run, self._watcher.on_stuck)
            return self._watcher.on_unreported(spec.index)
        return died_outcome("lost", "NodeLost", f"the node {spec.host} is gone, or its agent is", code="lost")

    def _take(self, line: RankConnection, kind: Kind, body: bytes) -> None:
        spec = line.spec
        if kind is Kind.OUTPUT:
            for output in decode(body, list[Output]):
                if output.kind in (FETCH, NEXT):
                    asked = output.data.get("ask")
                    line.question = asked if isinstance(asked, int) else 0
                self._watcher.on_output(output, self._marks(spec))
        elif kind is Kind.RUNNING:
            line.progress.began_s = time.monotonic()
            if spec.index == 0:
                self._watcher.on_running(decode(body, float))
        elif kind is Kind.ENDED:
            line.progress.ended_s = time.monotonic()
            self._on_rank_at_end(spec)
            if spec.index == 0:
                self._watcher.on_ended(decode(body, float))
        elif kind is Kind.MEET:
            self._on_call(spec, decode(body, CollectiveCall))
        elif kind is Kind.HELD:
            self._on_held(spec.index, decode(body, int))
        elif kind is Kind.SAVE_DUE:
            self._ask_at_safe_point(SAVE)
        elif kind is Kind.SAVED:
            self._on_saved(spec.index, decode(body, Save))
        elif kind is Kind.STAY:
            self._watcher.on_stay(decode(body, Stay))
        elif kind is Kind.STUCK:
            self._watcher.on_stuck(body.decode())
        elif kind is Kind.PERSISTER:
            self._watcher.on_persister(decode(body, int))
        elif kind is Kind.RELEASED:
            outcome = decode(body, Outcome)
            self._is_cut_off |= outcome.status == "died"
            self._on_released(line, outcome)

    def _marks(self, spec: RankSpec) -> dict[str, object]:
        """Nothing for rank 0, whose output is the cell's."""
        if spec.index == 0:
            return {}
        return {"rank": spec.index} | ({} if spec.role == RANK else {"who": spec.name(self._ranks)})

    def _on_held(self, rank: int, place: int) -> None:
        if self._agreement is not None:
            self._tell_ranks(self._agreement.on_place(rank, place))

    def _on_saved(self, rank: int, save: Save) -> None:
        """A gang is saved when all of its ranks are."""
        parts = self._parts.setdefault(save.number, {})
        parts[rank] = save
        if len(parts) == self._ranks:
            self._watcher.on_saved(gang_plan.merge_saves(parts))
            self._parts = {number: found for number, found in self._parts.items() if number > save.number}

    def _on_call(self, spec: RankSpec, call: CollectiveCall) -> None:
        if spec.role == RANK:
            self._answer(call.meeting or ("gather" if call.op == "gather" else "cell"), spec.index, call)

    def _answer(self, meeting: str, rank: int, call: CollectiveCall) -> None:
        replies = self._meetings[meeting].arrive(rank, call)
        self._reply(replies)
        is_over = replies and (call.op == SETTLE or any(reply.error for reply in replies.values()))
        if meeting == "save" and is_over and self._agreement is not None:
            self._tell_ranks(self._agreement.end())
        since_s = self._waiting_since_s or time.monotonic()
        self._waiting_since_s = since_s if self._meetings["cell"].waiting else None

    def _reply(self, replies: CollectiveReplies) -> None:
        for rank, reply in replies.items():
            self._lines[rank].send_frame(Kind.MET, encode(reply))

    def answer_rank(self, rank: int, body: bytes) -> None:
        """The kernel's word on what a rank has asked it for; a rank that has ended needs it no more."""
        line = self._lines.get(rank)
        if line is not None and line.outcome is None and self._is_going:
            line.pass_answer(body)

    # --------------------------------------------------------------------------------------- end
    def _on_released(self, line: RankConnection, outcome: Outcome) -> None:
        line.outcome = outcome
        line.progress.ended_s = line.progress.ended_s or time.monotonic()
        if line.spec.role == RANK:
            how = "has ended" if outcome.status == "ok" else "has failed"
            for meeting in self._meetings.values():
                self._reply(meeting.leave_for_good(line.spec.index, how))
            self._on_rank_at_end(line.spec)
        if self._signalled is None:
            if outcome.status not in ("ok", gang_plan.PREEMPTED, gang_plan.DISMISSED):
                self._end_others()
            elif len(self._specs) > self._ranks:
                self._dismiss(line)

    def _on_rank_at_end(self, spec: RankSpec) -> None:
        """It comes to no safe point any more at which the others could stop with it."""
        if self._agreement is not None and self._agreement.is_open:
            self._agreement = SafePointAgreement(self._ranks)
            self._tell_all(Command("go on"))
            self._watcher.on_stay(Stay(f"{spec.name(self._ranks)} has ended its cell"))

    def _end_others(self) -> None:
        """One has failed. Rank 0 gets time to hand over what it has."""
        for line in self._running():
            grace_s = None if line.spec.index == 0 else min(_OTHERS_GRACE_S, self._order.grace_s)
            line.send_frame(Kind.SIGNAL, encode(Command("interrupt", grace_s=grace_s)))

    def _dismiss(self, ended: RankConnection) -> None:
        """Dismiss parameter servers: they serve until nobody needs them, and the chief's end is the run's."""
        if all(line.spec.role != RANK for line in self._running()):
            self._send_home()
        elif ended.spec.index == 0:
            asyncio.get_running_loop().call_later(_DISMISS_S, self._send_home)

    def _send_home(self) -> None:
        for line in self._running():
            line.send_frame(
                Kind.SIGNAL, encode(Command("interrupt", gang_plan.DISMISSED, "dismissed", _OTHERS_GRACE_S))
            )

    def _running(self) -> list[RankConnection]:
        return [line for line in self._lines.values() if line.outcome is None]

    async def _watch_for_hangs(self) -> None:
        limit_s = self._order.gang.rank_timeout_s
        if limit_s is None or self._ranks < 2:
            return
        while True:
            await asyncio.sleep(min(_LOOK_S, limit_s / 4))
            progress = {i: line.progress for i, line in self._lines.items() if line.spec.role == RANK}
            waiting = self._meetings["cell"].waiting
            hang = find_hang(progress, waiting, self._waiting_since_s, time.monotonic(), limit_s)
            if hang is not None:
                for rank in hang.ranks:
                    self._lines[rank].send_frame(Kind.SIGNAL, encode(Command("stack", "hung", hang.why)))
                return

    def preempt(self) -> None:
        """Have all stop at their next safe point (remembered while they are being started)."""
        self._is_to_yield = True
        if self._is_going:
            self._ask_at_safe_point(YIELD)

    def _ask_at_safe_point(self, word: str) -> None:
        """Ranks of a gang agree on the point first."""
        if self._agreement is None:
            self._tell_all(Command(word))
        elif (ended := next((line.spec for line in self._lines.values() if line.progress.ended_s), None)) is None:
            self._tell_ranks(self._agreement.ask(word))
        elif word == YIELD:
            self._watcher.on_stay(Stay(f"{ended.name(self._ranks)} has ended its cell"))

    def _tell_ranks(self, command: Command | None) -> None:
        if command is not None:
            self._tell_all(command)

    def signal_ranks(self, command: Command) -> None:
        """Interrupt or kill all (remembered while they are being started)."""
        self._signalled = command
        self._changed.set()
        if self._is_going:
            self._tell_all(command)

    def _tell_all(self, command: Command) -> None:
        for line in self._running():
            line.send_frame(Kind.SIGNAL, encode(command))

    def lose_node(self, node: str) -> None:
        """The cluster says that ``node`` is gone: what it lent is lost, whatever its connections say."""
        members = self._order.gang.members
        self._gone |= {member.host for member in members if member.node == node}
        self._changed.set()
        for line in self._lines.values():
            if line.spec.node and members[line.spec.node - 1].node == node:
                line.writer.close()
                line.reader.feed_eof()
