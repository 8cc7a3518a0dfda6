"""Nodes, Ray, a ledger and a gateway in virtual time, around the pure machine of a run's life.

What the gateway does about an effect takes some moments (:meth:`World.go_on` takes one of them further), and
nodes may be silent meanwhile: what they were told before arrives when they can be heard again. The ledger gets runs and
leases in the order in which they are written, those that may wait the last. A gateway that dies loses what is not
committed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from jupyter_gpu_release.errors import ClusterError
from jupyter_gpu_release.gateway.cluster.lease import Lease
from jupyter_gpu_release.gateway.db.rows import StoredRun
from jupyter_gpu_release.gateway.runs import machine
from jupyter_gpu_release.gateway.runs.machine import step
from jupyter_gpu_release.gateway.runs.outcomes import lost
from jupyter_gpu_release.gateway.runs.record import Ended, Preempting, Queued, Releasing, RunRecord, RunSnapshot
from jupyter_gpu_release.protocol.node import AttemptId, NodeRun, RunPhase, RunSaved, RunUnbegun
from jupyter_gpu_release.protocol.runs import Outcome, Preemption, ResourceAsk, RunRequest, RunView, Save
from jupyter_gpu_release.protocol.states import RunState
from jupyter_gpu_release.scheduling.decisions import Slot

GRACE_S = 60.0
KINDS: list[dict[str, Any]] = [{}, {"restartable": True}, {"retries": 2}]
#: a gang of two ranks, each on a node
_GANG = ResourceAsk(gpus=2, ranks=2, nodes=2)
_S = RunState
#: steps that clients may see
LEGAL = {
    _S.QUEUED: {_S.STARTING, _S.CANCELLED, _S.FAILED, _S.LOST},
    _S.STARTING: {_S.RUNNING, _S.RELEASING, _S.QUEUED},
    _S.RUNNING: {_S.YIELDING, _S.RELEASING},
    _S.YIELDING: {_S.RUNNING, _S.RELEASING},
    _S.RELEASING: {_S.PERSISTING, _S.QUEUED, _S.SUCCEEDED, _S.FAILED, _S.CANCELLED, _S.LOST},
    _S.PERSISTING: {_S.QUEUED, _S.SUCCEEDED, _S.FAILED, _S.CANCELLED, _S.LOST},
}
Task = Generator[None, None, None]


@dataclass
class Process:
    """An attempt on a node. It is ``ordered`` as long as its GPUs are not known."""

    attempt_id: AttemptId
    gpus: list[str]
    save: Save | None = None
    phase: str = "ordered"
    outcome: Outcome | None = None
    is_asked: bool = False
    signal: str = ""
    #: it was told to go, and takes its time
    is_ending: bool = False
    #: it is a rank of a gang that the other node leads
    is_lent: bool = False

    def __post_init__(self) -> None:
        self.grant(self.gpus)

    def grant(self, gpus: list[str]) -> None:
        if gpus and self.phase == "ordered":
            self.gpus, self.phase = gpus, "running" if self.is_lent else "starting"

    @property
    def is_deaf(self) -> bool:
        """Its cell ends by a signal only."""
        return self.attempt_id.run.endswith(("2", "5", "8"))

    @property
    def touches(self) -> bool:
        return self.phase not in ("ordered", "released", "final")

    def known(self) -> NodeRun:
        own = self.save if self.save is not None and self.save.attempt == self.attempt_id.attempt else None
        return NodeRun(self.attempt_id, self.phase, at_s=1.0, outcome=self.outcome, save=own, is_lent=self.is_lent)


@dataclass
class Node:
    """A node and its agent."""

    name: str
    silent: bool = False
    life: int = 0
    #: it says no to the next order; its next answer is lost
    refuses: bool = False
    is_mute: bool = False
    processes: dict[AttemptId, Process] = field(default_factory=dict)
    marks: set[AttemptId] = field(default_factory=set)
    outbox: list[Any] = field(default_factory=list)
    #: what it was told when it could not be heard
    late: list[tuple[str, Any]] = field(default_factory=list)

    def call(self, name: str, *facts: Any) -> Any:
        """A call of the gateway; one that is not heard arrives later."""
        if self.silent:
            self.late.append((name, facts))
            raise ClusterError(f"{self.name} does not answer")
        return getattr(self, name)(*facts)

    def come_back(self) -> None:
        self.silent, late, self.late = False, self.late, []
        for name, facts in late:
            with contextlib.suppress(ClusterError):  # nobody waits for its answer any more
                getattr(self, name)(*facts)

    def hello(self) -> None:
        """It answers, as a rule."""
        if self.is_mute:
            self.is_mute = False
            raise ClusterError(f"{self.name} did not answer within 30 s")

    def start(self, attempt_id: AttemptId, gpus: list[str], save: Save | None, is_lent: bool = False) -> None:
        """As the agent: an older attempt is gone first, and a newer one is not followed."""
        if self.refuses:
            self.refuses = False
            raise ClusterError(f"{self.name} has no room in its memory")
        of_run = [known for known in self.processes if known.run == attempt_id.run]
        if any(attempt_id.is_before(known) for known in of_run) or attempt_id in self.processes:
            return
        for older in of_run:
            del self.processes[older]
        self.processes[attempt_id] = Process(attempt_id, gpus, save, is_lent=is_lent)

    def grant(self, attempt_id: AttemptId, gpus: list[str]) -> None:
        if attempt_id in self.processes:
            self.processes[attempt_id].grant(gpus)

    def abandon(self, attempt_id: AttemptId) -> None:
        process = self.processes.get(attempt_id)
        if process is not None and not self.forget_unbegun(attempt_id):
            process.is_ending = True

    def end_ranks(self, attempt_id: AttemptId) -> None:
        """It is over: it answers when no rank of it is left."""
        self.processes.pop(attempt_id, None)

    def forget(self, attempt_id: AttemptId) -> None:
        if (process := self.processes.get(attempt_id)) is not None and process.phase == "final":
            del self.processes[attempt_id]
        self.marks.discard(attempt_id)

    def has_begun(self, attempt_id: AttemptId) -> bool:
        return attempt_id in self.led() or attempt_id in self.marks

    def led(self) -> dict[AttemptId, Process]:
        """Attempts that it leads, and whose GPUs it knows."""
        return {found: process for found, process in self.processes.items() if process.known().is_granted}

    def forget_unbegun(self, attempt_id: AttemptId) -> bool:
        process = self.processes.get(attempt_id)
        if process is None or process.phase not in ("ordered", "starting"):
            return False
        del self.processes[attempt_id]
        return True

    def signal(self, attempt_id: AttemptId, name: str, reason: str) -> None:
        if (process := self.processes.get(attempt_id)) is not None:
            process.signal = "preempted" if reason == "preempted" else "interrupted"

    def step_aside(self, attempt_id: AttemptId) -> bool:
        process = self.processes.get(attempt_id)
        if process is None or not process.touches:
            return False
        process.is_asked = True
        return True

    def say(self, process: Process, phase: str) -> None:
        process.phase = phase
        self.outbox.append(RunPhase(process.attempt_id, phase, 1.0, process.outcome))

    def work(self, process: Process, *, saves: bool) -> None:
        """A process comes a step further."""
        if process.is_ending:
            del self.processes[process.attempt_id]
            return
        match "" if process.is_lent else process.phase:
            case "starting":
                self.marks.add(process.attempt_id)
                self.say(process, "running")
            case "running" if saves and process.save is None:
                process.save = Save(1 + process.attempt_id.attempt, process.attempt_id.attempt, 1.0, "round 2")
                self.outbox.append(RunSaved(process.attempt_id, process.save))
            case "running" if process.is_deaf and not process.signal:
                pass
            case "running":
                status = process.signal or ("preempted" if process.is_asked else "ok")
                self.say(process, "ended")
                process.outcome = Outcome(status, started_s=1.0, ended_s=2.0)
            case "ended":
                self.say(process, "released")
            case "released":
                self.say(process, "final")

    def give_up(self, process: Process) -> None:
        """Ranks of its gang do not come, so it has not begun."""
        del self.processes[process.attempt_id]
        self.outbox.append(RunUnbegun(process.attempt_id, "a rank was lost"))

    def die(self, process: Process) -> None:
        """It is killed."""
        process.outcome = lost("its process was killed")
        self.say(process, "released")
        self.say(process, "final")

    def kill_agent(self) -> None:
        """With all its processes; another one is there."""
        self.life += 1
        self.processes.clear()
        self.outbox.clear()
        self.late.clear()
        self.silent = self.refuses = self.is_mute = False


@dataclass
class Belief:
    """A node as the gateway has it. ``life``: None until its agent was heard."""

    life: int | None = None
    is_up: bool = False
    is_lost: bool = False
    silent_since_s: float = 0.0


class _CancelledError(ClusterError):
    """Somebody has cancelled the run while it was started."""


def _hosts(lease: Lease) -> list[str]:
    return [slot.node for slot in lease.slots]


class World:
    """One cluster, over lives of its gateway. ``number`` of an action chooses among what there is."""

    def __init__(self, gpus: int = 2) -> None:
        self.now_s = 1000.0
        self.gpus = gpus
        self.nodes = {name: Node(name) for name in ("a", "b")}
        #: Ray's placement groups: for each node its GPUs, by name
        self.groups: dict[str, dict[str, list[str]]] = {}
        #: how many it was asked for, and how many of the next ones it does not make
        self.made = 0
        self.refusals = 0
        self.ledger: dict[str, RunSnapshot] = {}
        self.stored_leases: dict[str, Lease] = {}
        self.requests: dict[str, RunRequest] = {}
        self.ends: dict[str, str] = {}
        #: runs whose cells began, as often as they did
        self.begun: list[str] = []
        self._begin_life()

    # -------------------------------------------------------------------------------- the gateway's parts
    def _begin_life(self) -> None:
        self.runs: dict[str, RunSnapshot] = {}
        self.waiting: list[str] = []
        self.leases: dict[str, Lease] = {}
        self.beliefs = {name: Belief() for name in self.nodes}
        self.tasks: list[Task] = []
        self.unknown: set[AttemptId] = set()
        #: writes that are not committed yet, and how many were
        self.writes: list[Callable[[], object]] = []
        self.committed = self.lease_written = 0
        #: those that may wait, by the run or the lease
        self.later: dict[str, Callable[[], object]] = {}

    def hear(self, run: str, event: machine.Event) -> None:
        before = self.runs[run]
        after, effects = step(before, event, self.now_s)
        self._check(before, after, is_caught_up=isinstance(event, machine.Found))
        if isinstance(after.stage, Queued) and not after.request.payload:
            after = after.with_request(self.requests[run])
        self.runs[run] = after
        at_once = any(isinstance(effect, machine.Commit) for effect in effects)
        if after.view is not before.view:
            self.write(run, partial(self._record, after), may_wait=not at_once)
        for effect in effects:
            self._carry_out(run, effect)

    def _check(self, before: RunSnapshot, after: RunSnapshot, *, is_caught_up: bool) -> None:
        states = RunState.of(before.view.state), RunState.of(after.view.state)
        assert is_caught_up or states[0] is states[1] or states[1] in LEGAL[states[0]], states
        assert after.stage.state is states[1], after
        assert after.view is before.view or after.view.seq > before.view.seq

    def _record(self, after: RunSnapshot) -> None:
        """The ledger has it. What ended there has ended."""
        run, state = after.view.run, after.view.state
        self.ledger[run] = after
        assert run not in self.ends or self.ends[run] == state, f"{run} ends twice"
        if isinstance(after.stage, Ended):
            self.ends[run] = state

    def write(self, key: str, write: Callable[[], object], *, may_wait: bool = False) -> None:
        if may_wait:
            self.later[key] = write
        else:
            self.later.pop(key, None)
            self.writes.append(write)

    def until_committed(self, count: int) -> None:
        """Let the ledger commit until it has so many of this gateway's writes."""
        while self.committed < count:
            self.writes.pop(0)()
            self.committed += 1

    @property
    def written(self) -> int:
        """How many there will be once all of them are committed that do not wait."""
        return self.committed + len(self.writes)

    def _carry_out(self, run: str, effect: machine.Effect) -> None:
        match effect:
            case machine.Start(lease):
                self.tasks.append(self._start(run, lease, self.lease_written))
            case machine.EndLease(lease, is_clean):
                self.tasks.append(self._end_lease(run, lease, is_clean=is_clean))
            case machine.GiveBack(lease):
                self.tasks.append(self._free(lease))
            case machine.Abandon(attempt_id, hosts):
                self._tell(hosts, "abandon", attempt_id)
            case machine.GoBack(ended, hosts):
                self.waiting.insert(0, run)
                self.tasks.append(self._forget(ended, hosts, self.written))
            case machine.WaitAgain(lease):
                self.tasks.append(self._wait_again(run, lease))
            case machine.Enqueue():
                self.waiting.append(run)
            case machine.Finish(hosts):
                self.waiting = [other for other in self.waiting if other != run]
                self.tasks.append(self._forget(self.runs[run].attempt_id, hosts, self.written))
            case machine.SendSignal():
                self.tasks.append(self._signal(run, effect))
            case machine.WatchNotice(notice):
                self.tasks.append(self._watch(run, notice))
            case machine.TellNotice(lease):
                self.tasks.append(self._tell_notice(run, lease))
            case machine.Ask(event):
                self.tasks.append(self._find_out(run, event))

    def _tell(self, hosts: list[str], name: str, attempt_id: AttemptId) -> bool:
        """Call nodes; False: one does not answer."""
        is_heard = True
        for node in hosts:
            try:
                self._call(node, name, attempt_id)
            except ClusterError:
                is_heard = False
        return is_heard

    def _call(self, node: str, name: str, *facts: Any) -> Any:
        """A node that does not answer takes no runs before it was looked at."""
        if self.nodes[node].silent:
            self._note_silent(node)
        return self.nodes[node].call(name, *facts)

    def _note_silent(self, node: str) -> None:
        if (belief := self.beliefs[node]).is_up:
            belief.is_up, belief.silent_since_s = False, self.now_s

    def _forget(self, attempt_id: AttemptId, hosts: list[str], written: int) -> Task:
        """Nodes forget it once the ledger has it."""
        yield
        self.until_committed(written)
        self._tell(hosts, "forget", attempt_id)

    def _start(self, run: str, lease: Lease, written: int) -> Task:
        attempt_id, hosts = lease.attempt_id, _hosts(lease)
        yield
        self.until_committed(written)
        try:
            if self.runs[run].cancellation.reason:
                raise _CancelledError("it was cancelled")
            for node in hosts:
                facts = attempt_id, lease.ids_on(node), self.runs[run].save
                self._call(node, "start", *facts, node != hosts[0])
            yield
            self._make(lease)
            yield
            for node in hosts:
                self._call(node, "grant", attempt_id, lease.ids_on(node))
                self._call(node, "hello")  # or its answer is lost
        except ClusterError as error:
            with contextlib.suppress(ClusterError):
                self._make(lease)
            yield
            self._tell(hosts, "abandon", attempt_id)
            self.hear(run, machine.StartFailed(attempt_id, error, is_final=isinstance(error, _CancelledError)))
            return
        self.hear(run, machine.Accepted(attempt_id))

    def _make(self, lease: Lease) -> None:
        """Ray makes the group, and a task in it tells the nodes at once; or it does not."""
        if lease.gpu_ids:
            return
        if self.refusals or lease.name not in self.groups:
            self.refusals = max(0, self.refusals - 1)
            self.groups.pop(lease.name, None)
            raise ClusterError("Ray has not made the lease")
        self._note_ids(lease)
        for node in _hosts(lease):
            with contextlib.suppress(ClusterError):
                self.nodes[node].call("grant", lease.attempt_id, lease.ids_on(node))

    def _note_ids(self, lease: Lease) -> None:
        lease.gpu_ids = tuple(tuple(self.groups[lease.name][node]) for node in _hosts(lease))

    def _end_lease(self, run: str, lease: Lease | None, *, is_clean: bool) -> Task:
        yield
        at_s = None
        if lease is not None:
            is_heard = self._tell(_hosts(lease)[1 if is_clean else 0 :], "end_ranks", lease.attempt_id)
            next_run = self._fitting(lease) if is_clean and is_heard else None
            if next_run is not None:
                self._grant(next_run, lease.handed_to(self.runs[next_run].attempt_id))
            elif self.now_s % 5:
                yield
                self._drop(lease)
            else:  # Ray does not say that it is free
                self.hear(run, machine.LeaseGone(self.runs[run].attempt_id, None, note="still trying"))
                yield
                self._drop(lease)
                return
            at_s = self.now_s
        self.hear(run, machine.LeaseGone(self.runs[run].attempt_id, at_s))

    def _fitting(self, lease: Lease) -> str | None:
        """A run that waits for exactly these slots."""
        if not (lease.gpu_ids and all(self.beliefs[node].is_up for node in _hosts(lease))):
            return None
        shape = len(lease.slots), sum(slot.gpus for slot in lease.slots)
        asks = [(run, self.requests[run].ask) for run in self.waiting]
        return next((run for run, ask in asks if (ask.nodes, ask.gpus) == shape), None)

    def _free(self, lease: Lease) -> Task:
        yield
        self._drop(lease)

    def _drop(self, lease: Lease) -> None:
        if self.leases.get(lease.name) is lease:
            del self.leases[lease.name]
            self.groups.pop(lease.name, None)
            self.write(lease.name, partial(self.stored_leases.pop, lease.name, None), may_wait=True)

    def _wait_again(self, run: str, lease: Lease | None) -> Task:
        if lease is not None:
            self._tell(_hosts(lease), "abandon", lease.attempt_id)
            self._tell(_hosts(lease)[1:], "end_ranks", lease.attempt_id)
            yield
            self._drop(lease)
        yield
        if isinstance(self.runs[run].stage, Queued):
            self.waiting.insert(0, run)

    def _signal(self, run: str, signal: machine.SendSignal) -> Task:
        yield
        attempt_id = signal.lease.attempt_id
        try:
            self._call(signal.lease.slots[0].node, "signal", attempt_id, signal.name, signal.reason)
        except ClusterError:
            if signal.reason == machine.INTERRUPTED:
                self.hear(run, machine.Unheard(attempt_id, signal.name))

    def _watch(self, run: str, notice: Preemption) -> Task:
        while isinstance(stage := self.runs[run].stage, Preempting) and stage.notice is notice:
            self.hear(run, machine.NoticeDue(self.runs[run].attempt_id, is_needed=True))
            yield

    def _tell_notice(self, run: str, lease: Lease) -> Task:
        yield
        is_taken = None
        if not self.nodes[lease.slots[0].node].silent:
            is_taken = self.nodes[lease.slots[0].node].step_aside(lease.attempt_id)
        self.hear(run, machine.NoticeHeard(lease.attempt_id, is_taken))

    def _find_out(self, run: str, event: machine.Lost | machine.Forgotten | machine.StartFailed) -> Task:
        yield
        if isinstance(event, machine.Lost):
            self.hear(run, replace(event, has_values=True))
            return
        lease, begun = self.runs[run].lease, True
        if lease is not None and lease.attempt_id == event.attempt_id and not self.nodes[lease.slots[0].node].silent:
            begun = self.nodes[lease.slots[0].node].has_begun(event.attempt_id)
        self.hear(run, replace(event, has_begun=begun))

    # --------------------------------------------------------------------------------------- the queue
    def serve(self) -> None:
        for run in list(self.waiting):
            ask = self.requests[run].ask
            each = ask.gpus // ask.nodes
            free = {node: self._free_on(node) for node, belief in self.beliefs.items() if belief.is_up}
            fits = [node for node, ids in free.items() if len(ids) >= each][: ask.nodes]
            if len(fits) == ask.nodes:
                hosts = fits[::-1] if self.now_s % 2 else fits
                attempt_id = self.runs[run].attempt_id
                self.made += 1  # the group of an earlier attempt may be another run's by now
                lease = Lease(f"group-{self.made}", attempt_id, tuple(Slot(node, each) for node in hosts))
                self.groups[lease.name] = {node: free[node][:each] for node in hosts}
                self._grant(run, lease)

    def _free_on(self, node: str) -> list[str]:
        held = {gpu for group in self.groups.values() for gpu in group.get(node, ())}
        return sorted({str(gpu) for gpu in range(self.gpus)} - held)

    def _grant(self, run: str, lease: Lease) -> None:
        self.waiting.remove(run)
        self.leases[lease.name] = lease
        self.write(lease.name, partial(self.stored_leases.__setitem__, lease.name, lease))
        self.lease_written = self.written
        self.hear(run, machine.Granted(lease, {"hosts": _hosts(lease)}))

    # ------------------------------------------------------------------------- what happens (the actions)
    def submit(self, number: int) -> None:
        run, facts = f"r{len(self.requests)}", KINDS[number % len(KINDS)]
        asks = [*(ResourceAsk(gpus=1 + gpus) for gpus in range(self.gpus)), _GANG]
        request = self.requests[run] = RunRequest(run, "s", asks[number // len(KINDS) % len(asks)], b"cell", **facts)
        view = RunView(run, "ann", "queued", gpus=request.ask.gpus, restartable=request.restartable, session="s")
        self.runs[run] = self.ledger[run] = RunSnapshot(view, request)
        self.waiting.append(run)
        self.serve()

    def go_on(self, number: int) -> None:
        """Let the work under way come a moment further."""
        self.now_s += 1.0
        if self.tasks:
            task = self.tasks[number % len(self.tasks)]
            if next(task, self) is self:
                self.tasks.remove(task)
        self.serve()

    def settle(self, number: int) -> None:
        """Let the work under way that was told come to something."""
        for _ in range(4):
            for turn in range(len(self.tasks)):
                self.go_on(number + turn)
            for node in range(2):
                self.deliver(node)

    def deliver(self, number: int) -> None:
        """A node's next message is heard."""
        node = self._node(number)
        if node.silent or not node.outbox:
            return
        message = node.outbox.pop(0)
        snapshot = self.runs.get(message.attempt_id.run)
        if snapshot is None:
            return
        if message.attempt_id.is_before(snapshot.attempt_id):
            node.abandon(message.attempt_id)
        self.hear(message.attempt_id.run, message)

    def work(self, number: int) -> None:
        if processes := self._processes():
            node, process = processes[number % len(processes)]
            begins = process.phase == "starting" and not process.is_ending
            if begins and not self._is_whole(process.attempt_id):
                if number % 4 == 0:
                    node.give_up(process)
                return
            node.work(process, saves=number % 2 == 0)
            if begins:
                self._begins(process.attempt_id.run)

    def _is_whole(self, attempt_id: AttemptId) -> bool:
        """Tell if a gang has its ranks on all nodes, and not before does one begin."""
        there = [node.processes[attempt_id] for node in self.nodes.values() if attempt_id in node.processes]
        ready = [process for process in there if process.gpus and not process.is_ending]
        return len(ready) == self.requests[attempt_id.run].ask.nodes

    def _begins(self, run: str) -> None:
        """A cell that has begun is begun again only where its user has asked for that."""
        self.begun.append(run)
        request = self.requests[run]
        assert request.restartable or request.retries or self.begun.count(run) == 1, f"{run} is begun again"

    def cancel(self, number: int) -> None:
        if self.runs:
            run = list(self.runs)[number % len(self.runs)]
            waits = isinstance(self.runs[run].stage, Queued)
            self.hear(run, machine.Cancel("cancelled by ann", kill=number % 2 == 0))
            assert not waits or isinstance(self.runs[run].stage, Ended)

    def preempt(self, number: int) -> None:
        if asked := [run for run, snapshot in self.runs.items() if snapshot.may_be_asked]:
            notice = Preemption("request", "asked by ann", self.now_s, self.now_s + 10.0)
            self.hear(asked[number % len(asked)], machine.Preempt(notice, notice.reason))

    def kill_rank(self, number: int) -> None:
        if alive := [found for found in self._processes() if found[1].touches and not found[1].is_lent]:
            node, process = alive[number % len(alive)]
            node.die(process)

    def kill_agent(self, number: int) -> None:
        self._node(number).kill_agent()

    def refuse(self, number: int) -> None:
        """The next start is in vain: a node refuses its order, or answers too late, or Ray does not make its lease."""
        match number % 6:
            case 0 | 1:
                self._node(number).refuses = True
            case 2 | 3:
                self._node(number).is_mute = True
            case _:
                self.refusals = 1

    def begin_and_die(self, number: int) -> None:
        """A cell has just begun when its agent is killed: nobody was told."""
        if starting := [found for found in self._processes() if found[1].phase == "starting"]:
            node, process = starting[number % len(starting)]
            if process.is_ending or self._is_whole(process.attempt_id):
                if not process.is_ending:
                    self._begins(process.attempt_id.run)
                node.work(process, saves=False)
            node.kill_agent()
            self.look("ab".index(node.name))

    def fall_silent(self, number: int) -> None:
        self._node(number).silent = True

    def come_back(self, number: int) -> None:
        self._node(number).come_back()

    def pass_grace(self, number: int) -> None:
        """A node is silent for longer than its grace."""
        self._node(number).silent = True
        self.look(number)
        self.now_s += GRACE_S
        self.look(number)

    def commit(self, number: int) -> None:
        """Commit some of what is written, or all of it."""
        if number % 2:
            self.until_committed(self.committed + min(len(self.writes), 1 + number // 2 % 4))
            return
        self.writes += self.later.values()
        self.later.clear()
        self.until_committed(self.written)

    def _node(self, number: int) -> Node:
        return self.nodes["ab"[number % 2]]

    def _processes(self) -> list[tuple[Node, Process]]:
        return [(node, process) for node in self.nodes.values() for process in node.processes.values()]

    # --------------------------------------------------------------------------------------- liveness
    def _led_by(self, node: Node) -> list[tuple[str, RunSnapshot]]:
        found = [(run, snapshot, snapshot.lease) for run, snapshot in self.runs.items()]
        return [
            (run, snapshot)
            for run, snapshot, lease in found
            if snapshot.accepted
            and (lease.slots[0].node == node.name if lease is not None else node.name in snapshot.view.hosts)
        ]

    def end_unwanted(self, node: Node) -> bool:
        """Have a node end what nobody wants; False: some of it may still touch a GPU."""
        seen = [process.known() for process in node.processes.values()]
        unwanted = machine.unwanted(self.runs.get, seen, node.name)
        for found in unwanted:
            node.abandon(found.attempt_id)
        return machine.is_vacated(unwanted)

    def look(self, number: int) -> None:
        """The gateway looks at a node, as every few seconds."""
        node = self._node(number)
        belief = self.beliefs[node.name]
        if node.silent:
            self._judge_silence(node, belief)
            return
        if not belief.is_up and not self.end_unwanted(node):
            return
        is_restarted, before = belief.life != node.life, self._led_by(node)
        self.beliefs[node.name] = Belief(node.life, is_up=True)
        known = node.led()
        for run, snapshot in before:
            self.hear(run, machine.Heard(node.name))
            process = known.get(snapshot.attempt_id)
            if process is not None and not node.outbox and snapshot.expects(process.phase):
                # what it told an earlier gateway it does not tell again
                self.hear(run, machine.CaughtUp(RunPhase(snapshot.attempt_id, process.phase, 1.0, process.outcome)))
            if snapshot.attempt_id in known or (isinstance(self.runs[run].stage, Releasing) and snapshot.outcome):
                continue
            if is_restarted:
                self.hear(run, machine.Forgotten(snapshot.attempt_id, "its agent is new", "its agent died"))
            elif snapshot.attempt_id in self.unknown:
                self.hear(run, machine.Lost(snapshot.attempt_id, "its node does not know it", ends=True))
            self.unknown ^= {snapshot.attempt_id}
        self.end_unwanted(node)
        self.serve()

    def _judge_silence(self, node: Node, belief: Belief) -> None:
        self._note_silent(node.name)
        if belief.is_lost:
            return
        if self.now_s - belief.silent_since_s < GRACE_S:
            for run, _ in self._led_by(node):
                self.hear(run, machine.Silent(node.name, f"{node.name} does not answer"))
        else:
            belief.is_lost = True
            for run, snapshot in self._led_by(node):
                if RunState.of(snapshot.view.state) is not RunState.PERSISTING:
                    self.hear(run, machine.Lost(snapshot.attempt_id, f"{node.name} has not answered"))

    # ----------------------------------------------------------------------------------- a new gateway
    def restart(self, number: int) -> None:
        """The gateway is killed, and another one finds what there is."""
        self._begin_life()
        if self.groups and number % 4 == 0:  # Ray has lost one
            del self.groups[sorted(self.groups)[number % len(self.groups)]]
        live = []
        for run, stored in self.ledger.items():
            record = RunRecord.restored(StoredRun(stored.view, 1, stored.outcome, self.requests[run]))
            self.runs[run] = replace(record.snapshot, save=stored.save)
            live += [] if isinstance(self.runs[run].stage, Ended) else [run]
        leases = {
            name: lease
            for name, lease in self.stored_leases.items()
            if lease.run in live and lease.attempt_id == self.runs[lease.run].attempt_id
        }
        self.leases = {name: lease for name, lease in leases.items() if name in self.groups}
        for lease in self.leases.values():
            self._note_ids(lease)
        for name in self.groups.keys() - self.leases.keys():
            del self.groups[name]
        for node in self.nodes.values():
            belief = self.beliefs[node.name]
            belief.silent_since_s = self.now_s
            if not node.silent:
                belief.life, belief.is_up = node.life, True
        for run in live:
            self.hear(run, self._found(run, leases))
        for name in self.stored_leases.keys() - leases.keys():
            self.write(name, partial(self.stored_leases.pop, name, None))
        for node in self.nodes.values():
            if not node.silent and not self.end_unwanted(node):
                self.beliefs[node.name].is_up = False
        self.serve()

    def _found(self, run: str, stored: dict[str, Lease]) -> machine.Found:
        snapshot = self.runs[run]
        attempt_id = snapshot.attempt_id
        held = [lease for lease in self.leases.values() if lease.attempt_id == attempt_id]
        lease = held[0] if held else None
        ordered = [old.slots[0].node for old in stored.values() if old.attempt_id == attempt_id]
        facts = [node for node in self.nodes.values() if attempt_id in node.led() and not node.silent]
        known = facts[0].processes[attempt_id].known() if facts else None
        if lease is not None and len(lease.slots) > 1 and known is not None and facts[0].forget_unbegun(attempt_id):
            known = None  # nobody knows if all nodes have their orders
        hosts = _hosts(lease) if lease is not None else [node.name for node in facts]
        is_silent = known is None and lease is not None and self.nodes[lease.slots[0].node].silent
        is_unbegun = not ordered and isinstance(snapshot.stage, Queued)
        if ordered and known is None and not self.nodes[ordered[0]].silent:
            node = self.nodes[ordered[0]]
            is_unbegun = node.forget_unbegun(attempt_id) or not node.has_begun(attempt_id)
        return machine.Found(
            attempt_id,
            lease,
            hosts,
            [gpu for ids in lease.gpu_ids for gpu in ids] if lease is not None else [],
            "its agent does not know it",
            known,
            is_silent=is_silent,
            is_unbegun=is_unbegun,
            is_ordered=bool(ordered),
        )

    # -------------------------------------------------------------------------------------- invariants
    def check_gpus(self) -> None:
        """At each moment each GPU is touched by one attempt at most."""
        users: dict[tuple[str, str], AttemptId] = {}
        for node, process in self._processes():
            for gpu in process.gpus if process.touches else ():
                other = users.setdefault((node.name, gpu), process.attempt_id)
                assert other == process.attempt_id, f"GPU {gpu} of {node.name}: {other} and {process.attempt_id}"

    def become_quiet(self) -> None:
        """All that was begun comes to an end, and nothing is held after it."""
        self.refusals = 0
        for node in self.nodes.values():
            node.come_back()
        for turn in range(400):
            if not (self._left() or self.tasks):
                break
            if turn % 100 == 0:
                self._cancel_all()
            for number in range(2):
                self.deliver(number)
                self.work(turn + number)
                self.look(number)
            self.settle(turn)
            self.check_gpus()
        assert not (left := self._left()), left

    def _cancel_all(self) -> None:
        for run, snapshot in self.runs.items():
            if not (
                snapshot.cancellation.reason or isinstance(snapshot.stage, Preempting)
            ):  # that is ended when its grace is over
                self.hear(run, machine.Cancel("cancelled by ann"))

    def _left(self) -> list[object]:
        live = [snapshot for snapshot in self.runs.values() if not isinstance(snapshot.stage, Ended)]
        working = [process for _, process in self._processes() if process.touches]
        return [*((run.view.run, run.stage) for run in live), *working, *self.leases, *self.groups]
