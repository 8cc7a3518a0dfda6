"""The parts of the gateway put together, and what clients may ask of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import platform
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import msgspec

from .._version import __version__
from ..errors import (
    ClusterError,
    ConflictError,
    ForbiddenError,
    ImpossibleAskError,
    MissingPackageError,
    NoSuchNodeError,
    NoSuchRunError,
    OptionError,
    RequestError,
    RunCancelledError,
)
from ..host.background import LastLook
from ..host.threads import StoreThreads
from ..presentation.wording import run_origin, run_title
from ..protocol.config import GatewayConfig, StoreMode
from ..protocol.environments import UNKNOWN
from ..protocol.events import Event
from ..protocol.node import AttemptId, GatewayApi, NodeRun
from ..protocol.rest import Health, PriceList
from ..protocol.runs import Reason, ResourceAsk, RunRequest, RunView
from ..protocol.session import PROTOCOL, Welcome
from ..protocol.states import RunState, is_run_id
from ..protocol.wire import decode, encode
from ..scheduling.queues.admission import Admission, admit, check_count, check_moved
from ..scheduling.resource_requests import to_run
from ..scheduling.start_estimates.nearest import possible_ask
from ..settings.built_in import BUILT_IN
from ..store.event_log import read_unforged
from ..store.layout import RunPaths
from ..store.private_stores import acting
from .accounting import UsageAccount
from .auth.audit import AuditLog
from .auth.driver_tokens import DriverTokens
from .auth.permissions import ASSISTANT, Act, Caller, may, shown_view
from .auth.shown_events import as_text
from .auth.tokens import TokenBook
from .auth.unix_users import UnixUsers
from .cluster.agents import AgentFactory, missing_imports
from .cluster.drains import DrainTable
from .cluster.environment_builds import EnvironmentBuilds, check_size
from .cluster.gpu_health import GpuHealth, NodeDeaths
from .cluster.lease import Lease, LeaseListener, LeaseTable
from .cluster.named_environments import NamedEnvironments
from .cluster.node_checks import NodeChecker
from .cluster.node_demand import NodeDemand
from .cluster.node_source import FixedNodes, NodeSource
from .cluster.nodes import Node, NodeListener, NodeTable
from .cluster.placement_groups import LeaseReleaser, RayLeases
from .cluster.preparing import Preparing
from .cluster.ray_calls import RayCalls
from .cluster.slurm_nodes import SlurmNodes
from .cluster.withheld_gpus import WithheldGpus
from .db.database import open_ledger
from .db.ledger_copy import LedgerCopy, ledger_path
from .db.writer import LedgerError, LedgerWriter
from .dispatch.gangs import check_gang
from .dispatch.lifecycle import Lifecycle
from .dispatch.name_requests import Fetches
from .dispatch.parts import in_least_parts, part_of_user
from .dispatch.start_estimates import StartEstimates, gpu_types
from .dispatch.warm_leases import WarmLeases
from .notifications.notifier import Notifier
from .queues_file_watch import QueueRules
from .results.gc import ResultCollector
from .results.held_results import ResultHolds
from .results.lineage import LineageService
from .runs import machine
from .runs.events import Batch, NotifyWhen, batch_of, batches_of
from .runs.live_runs import RunListener, RunTable
from .runs.manifests import Manifests
from .runs.record import Queued, RunRecord, RunSnapshot
from .runs.sessions import SessionListener, SessionTable
from .status_feed import GpuReadings, StatusFeed

log = logging.getLogger(__name__)
#: how long a first submission waits for a node agent that is still starting
_AGENT_WAIT_S = 20.0
#: how long a run waits for its libraries to be imported, and for how long without a word
_PREPARE_S: float = BUILT_IN["prepare_s"].default
_QUIET_S = 0.3
#: how old what results take of the store may be for somebody who asks
_STORE_LOOK_S = 60.0
#: events read from a log in one go
_EVENTS_AT_ONCE = 5000
#: in the environment of `ray start` on the head, which is that of the gateway, too
_GCS_STORAGE = "RAY_gcs_storage"


class GatewayService(RunListener, LeaseListener, NodeListener, SessionListener):
    """State and operations of the gateway, apart from HTTP and from Ray's actor interface.

    It builds the parts from the bottom up, each with what it needs, and is what they tell of changes: the ``on_…``
    methods say what follows from each. ``on_ledger_death`` is called when nothing can be committed any more.
    ``api`` is what agents call.
    ``agent_factory`` and ``ray_leases`` are what asks Ray: benchmarks measure the rest without it.
    """

    def __init__(
        self,
        config: GatewayConfig,
        on_ledger_death: Callable[[], None] = lambda: None,
        *,
        api: GatewayApi | None = None,
        agent_factory: type[AgentFactory] = AgentFactory,
        ray_leases: type[RayLeases] = RayLeases,
    ) -> None:
        self.config = config
        self.engine = open_ledger(ledger_path(config))
        self.ledger = LedgerWriter(self.engine, on_ledger_death)
        self.store_threads = StoreThreads(acting=acting if config.store_mode == StoreMode.OWNER else None)
        self.ledger_copy = LedgerCopy(config, self.store_threads)
        self.status_feed = StatusFeed()
        #: None: the store is one user's, and nobody is asked for another
        self.users = None if config.store_mode == StoreMode.SINGLE else UnixUsers(config, self.store_threads)
        owners = self.users if self.users is not None and self.users.are_owners else None
        self.manifests = Manifests(Path(config.store), self.store_threads, owners.store_of if owners else None)
        self.runs = RunTable(self.engine, self.ledger, self.manifests, self)
        self.sessions = SessionTable(self.ledger, config.reconnect_grace_s, self)
        # the cluster
        calls = RayCalls()
        self.nodes = NodeTable(config.runtime, self)
        self.drains = DrainTable(self.nodes, self.ledger)
        self.agents = agent_factory(config, calls, self.nodes, api)
        self.gpu_readings = GpuReadings(self.nodes)
        self.leases = LeaseTable(self)
        self.ray_leases = ray_leases(calls, self.leases, self.nodes.is_lost)
        self.withheld_gpus = WithheldGpus(calls, self.nodes, self.leases, self.ray_leases, self)
        self.node_checker = NodeChecker(self.nodes, config.store, config.environment_owned)
        self.gpu_health = GpuHealth(minds_memory=not config.embedded)
        self.node_deaths = NodeDeaths()
        self.node_source: NodeSource = FixedNodes()
        if config.slurm is not None:
            self.node_source = SlurmNodes(config, config.slurm, self.nodes, self.leases)
        elif not config.embedded:  # somebody else's Ray may have an autoscaler
            self.node_source = NodeDemand(calls, self.nodes, config.idle_agent_s)
        self.preparing = Preparing(self.nodes)
        self.named_environments = NamedEnvironments(
            config.named_environments, config.cluster, self.engine, self.ledger, self.store_threads
        )
        self.environments = EnvironmentBuilds(
            self.nodes,
            Path(config.home) / "wheels",
            config.environment_owned,
            config.environment_timeout_s,
            config.environment_retention_s,
            owners.find if owners else None,
        )
        # runs on it
        releaser = LeaseReleaser(self.leases, self.nodes, self.ray_leases, self.ledger)
        self.warm = WarmLeases(self.leases, self.nodes, self.ledger, self.sessions, releaser, self, config.max_keep_s)
        self.queue_rules = QueueRules(
            config.queues, config.cluster, self.engine, self.ledger, self.store_threads, self.on_queues_changed
        )
        self.tokens = TokenBook([])
        self.url = config.url
        self.driver_tokens = DriverTokens(config, self.ledger, lambda: self.tokens, lambda: self.url)
        self.lifecycle = Lifecycle(
            self.runs,
            self.nodes,
            self.leases,
            self.manifests,
            self.warm,
            self.ray_leases,
            releaser,
            self.queue_rules,
            self.ledger,
            self.node_source.with_answer,
            self.environments,
            self.driver_tokens.issue,
            self.users,
        )
        self.start_estimates = StartEstimates(self.runs, self.lifecycle.queue, self.queue_rules)
        self.fetches = Fetches(self.nodes, self.ledger, self.sessions.may_answer)
        # what is left of them
        self.lineage = LineageService(self.engine, self.ledger, self.nodes, self.manifests)
        self.holds = ResultHolds(self.engine, self.ledger, self.sessions)
        self.result_collector = ResultCollector(
            Path(config.store),
            self.engine,
            self.ledger,
            self.runs,
            self.holds,
            self.store_threads,
            list_stores=owners.list_stores if owners else None,
        )
        self.audit = AuditLog(Path(config.home) / "log" / "audit.jsonl")
        store_use = LastLook[Mapping[str, int] | None](self.result_collector.used_bytes, _STORE_LOOK_S, None)
        self.usage = UsageAccount(self.engine, self.ledger, store_use)
        self.notifier = Notifier(config.notify, self.engine, self.ledger)
        self.recovered = asyncio.Event()
        self.agent_up = asyncio.Event()
        #: users and their sweeps that were cancelled as a whole: they get no other trials
        self._ended_sweeps: set[tuple[str, str]] = set()

    # ------------------------------------------------------------------------- what follows from what
    def on_runs_changed(self) -> None:
        """The status is another, and starts may be nearer."""
        self.status_feed.note_change()
        self.start_estimates.note_change()

    def on_run_stage(self, record: RunRecord) -> None:
        """Its user may want to hear of it, being elsewhere."""
        if record.view.detached:
            self.notifier.on_stage(record.view, record.outcome)

    def on_run_over(self, record: RunRecord) -> None:
        """It is noted where it ran, whether its results may be used again, and whether its nodes are to blame."""
        self.lineage.finished(record)
        if record.request.is_driver:
            self.driver_tokens.revoke(record.run)
        for host, at_s in record.snapshot.deaths.values():
            if why := self.node_deaths.note(host, record.view.user, at_s):
                self.lifecycle.spawn(self._set_aside(host, why))

    async def _set_aside(self, host: str, why: str) -> None:
        """Take a node out of our own accord; an admin takes it back."""
        log.error("the node %s gets no more runs: %s", host, why)
        with contextlib.suppress(NoSuchNodeError):  # it is gone anyway
            await self.drains.drain(host, "the gateway", why)
            self.on_nodes_drained()

    def end_unwanted(self, node: str, found: Iterable[NodeRun]) -> list[NodeRun]:
        """Have a node end what nobody wants of what it has; returns that."""
        unwanted = machine.unwanted(self._snapshot_of, found, node)
        self.end_attempts(node, [seen.attempt_id for seen in unwanted])
        return unwanted

    def _snapshot_of(self, run: str) -> RunSnapshot | None:
        record = self.runs.find(run)
        return record.snapshot if record is not None else None

    def end_attempts(self, node: str, over: Iterable[AttemptId]) -> None:
        """Have a node end attempts that are over: what it says of them changes nothing."""
        for attempt_id in over:
            log.warning("%s still has attempt %s, which is over: it is ended", node[:8], attempt_id)
            with contextlib.suppress(ClusterError):  # then it is looked for when its agent answers
                self.nodes.agent(node).abandon(attempt_id)

    def on_leases_changed(self) -> None:
        """The status is another, and a GPU that is to be set aside may be nobody's now."""
        self.status_feed.note_change()
        if self.withheld_gpus.is_wanted:
            self.withheld_gpus.look()

    def on_gpus_free(self) -> None:
        """They may be those of a run that waits."""
        self.lifecycle.queue.serve()

    def on_nodes_changed(self) -> None:
        """The status is another."""
        self.on_runs_changed()

    def on_nodes_drained(self) -> None:
        """Other nodes or GPUs are taken out than before: nothing is kept warm there, and what waits is decided anew."""
        for lease in self.leases.warm():
            if any(self._is_drained(lease, slot.node) for slot in lease.slots):
                self.warm.give_up(lease, "its node or GPU is drained")
        self.withheld_gpus.look_anew()
        self.on_runs_changed()
        self.lifecycle.queue.serve()

    def _is_drained(self, lease: Lease, node: str) -> bool:
        found = self.nodes.find(node)
        is_out = found is not None and bool(found.drained)
        return is_out or self.nodes.is_aside(node, lease.ids_on(node))

    def on_queues_changed(self) -> None:
        """Runs of a queue that is gone go to where their user's runs go now, and what waits is decided anew."""
        for record in self.runs.live():
            queue = self.queue_rules.file.settle(record.view.queue, record.view.user)
            if queue != record.view.queue:
                self._move(record, queue)
        self.on_runs_changed()
        self.lifecycle.queue.serve()

    def _move(self, record: RunRecord, queue: str) -> None:
        """Have a run in another queue, since its own is gone; one that waits ends where that would refuse it."""
        view, rules = record.view, self.queue_rules.file
        log.info("run %s: there is no queue %s any more, it is in %s", record.run, view.queue, queue)
        priority = min(view.priority_value, rules.ceiling(queue))
        self.runs.change(record, told=NotifyWhen.SOON, queue=queue, priority_value=priority)
        if record.run in self.lifecycle.queue:
            try:
                check_moved(rules, view.user, record.request, queue)
            except (OptionError, ImpossibleAskError) as error:
                reason = f"its queue {view.queue} is gone: {error.message} ({error.hint})"
                self.lifecycle.queue.remove(record)
                self.lifecycle.hear(record, machine.Cancel(reason))

    def on_session_ended(self, session: str) -> None:
        """A kernel's runs end with it, but for detached ones, and nothing is kept for it."""
        self._leave_alone(session, "the notebook's kernel ended", ends_all=True)
        self.warm.end_of(session)
        self.lifecycle.spawn(self.preparing.end_session(session))

    def on_session_lost(self, session: str) -> None:
        """Runs go on, unless the user has asked for another thing; nobody answers them any more."""
        reason = "contact with the notebook's kernel was lost (--on-disconnect cancel)"
        self._leave_alone(session, reason, ends_all=False)

    def _leave_alone(self, session: str, reason: str, *, ends_all: bool) -> None:
        for record in self.runs_of(session):
            if ends_all or record.request.on_disconnect == "cancel":
                log.info("run %s: %s", record.run, reason)
                self.lifecycle.hear(record, machine.Cancel(reason))
            # behind the interrupt: a cell that waits for its kernel ends by that, not by an error of its own
            self.fetches.give_up(record)

    # -------------------------------------------------------------------------------------- submit
    async def submit(self, caller: Caller, request: RunRequest) -> RunRecord:
        """Take a run in; :meth:`committed` says when it is safe. The same request again is the same run."""
        known = self._known(caller, request)
        if known is not None:
            return known
        if caller.is_assistant:
            queue = self.queue_rules.file.queue_of_assistants(request.queue)
            shown_as = {"program": ASSISTANT, "notebook": "", "number": 0}
            # no GPU is kept while it thinks
            # nor does it drive a sweep, whose trials would not be an assistant's
            request = msgspec.structs.replace(request, queue=queue, keep_s=0.0, keep_auto=False, sweep="", **shown_as)
        if caller.sweep:  # a trial ends with its driver
            request = msgspec.structs.replace(request, sweep=caller.sweep, detach=False, keep_s=0.0, keep_auto=False)
        admit(self.queue_rules.file, caller.user, in_least_parts(request))
        ask = await self._check(caller, request)
        if self.users is not None:  # also for who comes without a session
            await self.users.make_store(caller.user, self.nodes.store_id)
        if request.cache_key:
            await self.lineage.submitted(request)
        known = self._known(caller, request, in_memory=True)
        if known is not None:
            return known
        request = msgspec.structs.replace(request, ask=ask)
        admitted = admit(self.queue_rules.file, caller.user, request)  # the queues may be others by now
        own = [other.view.queue for other in self.runs.live() if other.view.user == caller.user]
        check_count(self.queue_rules.file, admitted.queue, own)
        terms = {"timeout_s": admitted.timeout_s, "keep_s": admitted.keep_s, "restartable": admitted.restartable}
        request = msgspec.structs.replace(request, **terms)
        record = RunRecord(self._first_view(caller, request, admitted), self.runs.next_ordinal(), request)
        self.runs.add(record)
        self.runs.record(record)  # committed in a thread; no cell starts before it
        is_plain = not request.fresh and request.environment is None  # nothing is imported ahead in an environment
        lacking = self.preparing.lacking(caller.user, request.prepare) if is_plain else []
        if lacking:
            self.lifecycle.spawn(self._queue_when_prepared(record, lacking))
        else:
            self.lifecycle.enqueue(record)
        for source in {used.run for used in request.used if is_run_id(used.run)}:
            self.holds.note_reuse(source)
        return record

    async def _queue_when_prepared(self, record: RunRecord, lacking: list[Node]) -> None:
        """Nobody waits for GPUs that this one would hold while its libraries are imported."""
        view, request = record.view, record.request
        preparing = asyncio.ensure_future(self.preparing.prepare(lacking, view.user, view.session, request.prepare))
        limit_s = min(_PREPARE_S, request.wait_s if request.wait_s is not None else _PREPARE_S)
        done, _ = await asyncio.wait([preparing], timeout=min(_QUIET_S, limit_s))
        if not done and isinstance(record.stage, Queued):
            libraries = ", ".join(dict.fromkeys(name.partition(".")[0] for name in request.prepare)) or "libraries"
            self.runs.change(record, reason=f"no GPU is held yet: the node imports what the cell needs ({libraries})")
            await asyncio.wait([preparing], timeout=limit_s)
        if isinstance(record.stage, Queued):
            self.lifecycle.enqueue(record)

    def _known(self, caller: Caller, request: RunRequest, *, in_memory: bool = False) -> RunRecord | None:
        """``in_memory``: the ledger was asked a moment ago, and what came since is not evicted yet."""
        if not is_run_id(request.run):
            raise RequestError(f"{request.run[:80]!r} is not a run id", hint="make one with protocol.states.new_run_id")
        record = self.runs.get(request.run) if in_memory else self.runs.find(request.run)
        if record is not None and (record.view.user != caller.user or not _is_of(caller, record)):
            raise ConflictError(f"there is a run {request.run} already", hint="submit with a new id")
        return record

    async def _check(self, caller: Caller, request: RunRequest) -> ResourceAsk:
        """Refuses what cannot be; the ask as it will be placed."""
        ask = request.ask
        check_gang(ask)
        if (caller.user, request.sweep) in self._ended_sweeps or (caller.sweep and not self._is_driven(caller.sweep)):
            raise RunCancelledError(f"sweep {request.sweep} was cancelled", hint="sweep.best has the best trial so far")
        if request.on_disconnect not in ("continue", "cancel"):
            raise OptionError(f"on_disconnect {request.on_disconnect!r}", hint="write continue or cancel")
        if not 0 <= request.keep_s < math.inf or (request.keep_s and not request.session):
            raise OptionError(
                f"keep_s {request.keep_s:g}: GPUs are kept for the next cell of a kernel that is connected",
                hint="send a number of seconds, and the request through the kernel's session",
            )
        if request.environment is not None and not self.config.max_environments:
            raise OptionError(
                "this cluster builds no environments for cells",
                hint="write --environment cluster; packages that all need are installed there by its operator",
            )
        if request.environment is not None:
            check_size(request.environment)
            await self.check_python(caller, request.environment.interpreter)
        await self._wait_for_agent()
        nodes = self.queue_rules.file.shared(self.nodes.scheduled())
        ask = part_of_user(self.queue_rules.file, caller.user, request, nodes).ask
        if not self.node_source.scales:  # else Ray may start a node that fits
            ask = possible_ask(ask, to_run(request.run, ask), nodes, gpu_types(nodes))
        if request.imports and (missing := await missing_imports(self.nodes, request.imports)):
            raise _missing(missing, embedded=self.config.embedded, is_admin=caller.is_admin)
        return ask

    async def check_python(self, caller: Caller, interpreter: str) -> None:
        """Raise :class:`ForbiddenError` for another Python than those that the caller is offered: nodes start it."""
        await self.named_environments.check(interpreter, caller.user, self.queue_rules.file.groups)

    def _is_driven(self, sweep: str) -> bool:
        """Tell if the run that drives this sweep goes on."""
        driver = self.runs.get(sweep)
        return driver is not None and not driver.state.is_terminal and not driver.cancellation.reason

    async def _wait_for_agent(self) -> None:
        try:
            await asyncio.wait_for(self.agent_up.wait(), _AGENT_WAIT_S)
        except TimeoutError:
            raise ClusterError(self.why_no_agent(), hint="`jupyter gpu doctor`") from None

    def why_no_agent(self) -> str:
        """The reason why no run can be taken in; empty: one can be."""
        if self.agent_up.is_set():
            return ""
        return f"no node agent is up: {'; '.join(self.problems()) or 'none has answered yet'}"

    def _first_view(self, caller: Caller, request: RunRequest, admitted: Admission) -> RunView:
        ask = request.ask
        return RunView(
            run=request.run,
            user=caller.user,
            state=RunState.QUEUED.word,
            seq=1,
            gpus=ask.gpus,
            ranks=ask.ranks,
            session=request.session,
            name=request.name,
            notebook=request.notebook,
            cell=request.cell,
            priority=request.priority,
            priority_value=admitted.priority,
            queue=admitted.queue,
            simulated=self.config.simulated and ask.gpus > 0,
            submitted_at=time.time(),
            detached=request.detach,
            pinned=request.pin,
            kernel=request.kernel,
            title=run_title(request.name, request.code, request.call),
            origin=run_origin(request.program, request.notebook, request.number),
            restartable=admitted.restartable,
            most_gpus=int(ask.gpus) if ask.min_gpus is not None else 0,
            sweep=request.sweep,
            environment_digest=request.environment.digest if request.environment is not None else "",
        )

    async def committed(self, record: RunRecord) -> None:
        """Return once the ledger has a run that was taken in, or its end while it waited; else it did not happen."""
        seen = None
        try:
            while (newest := record.committed) is not None and newest is not seen:
                seen = newest
                await asyncio.shield(newest)
        except LedgerError:
            self.lifecycle.queue.remove(record)
            self.runs.drop_run(record)
            raise

    # ----------------------------------------------------------------------------------------- ask
    def run_for(self, caller: Caller, run: str, act: Act = Act.READ) -> RunRecord:
        """A run with which ``caller`` may do ``act``. What admins do to others' runs, and refusals, are audited.

        Raises :class:`NoSuchRunError`, or :class:`ForbiddenError` for another user's run.
        """
        record = self.runs.find(run) if is_run_id(run) else None
        if record is None or not _is_of(caller, record):
            raise NoSuchRunError(f"there is no run {run[:80]}", hint="list them: `jupyter gpu runs`")
        owner = record.view.user
        if not may(caller, owner, act, record.view.origin):
            self.audit.write_entry(caller, act.value, run, result=ForbiddenError.code, detail=f"owner {owner}")
            if caller.user == owner:
                hint = f"use a token of {owner}'s own"
                raise ForbiddenError(f"no assistant has sent run {run}, and this token is an assistant's", hint=hint)
            raise ForbiddenError(f"run {run} belongs to {owner}", hint=f"ask {owner}, or an admin of this cluster")
        if caller.user != owner:
            self.audit.write_entry(caller, act.value, run, detail=f"owner {owner}")
        return record

    def runs_of(self, session: str) -> list[RunRecord]:
        """Live runs that end with a session."""
        return [r for r in self.runs.live() if r.view.session == session and not r.view.detached]

    async def cancel(self, caller: Caller, run: str, *, kill: bool) -> RunRecord:
        """End a run, or give the results up that it saves; returns once the end of one that waited is committed.

        ``run`` may be a sweep: all its trials are ended, and it gets no others.
        """
        if trials := self._trials_of(caller, run):
            self._ended_sweeps |= {(trial.view.user, run) for trial in trials}
            return [await self._cancel(caller, trial.run, kill=kill) for trial in trials][-1]
        return await self._cancel(caller, run, kill=kill)

    async def _cancel(self, caller: Caller, run: str, *, kill: bool) -> RunRecord:
        record = self.run_for(caller, run, Act.CHANGE)
        reason = Reason("cancelled", {"user": caller.user})
        goes_on = record.outcome is not None and machine.follows(record.snapshot, record.outcome)
        if record.state is RunState.PERSISTING and not goes_on:  # asked again: what it saved is not waited for either
            await self.lifecycle.give_up_results(record, reason)
        else:
            self.lifecycle.hear(record, machine.Cancel(reason, kill))
        await self.committed(record)
        return record

    def _trials_of(self, caller: Caller, sweep: str) -> list[RunRecord]:
        """Live trials that the caller may end, and what drives them; of a run that is no sweep: none."""
        trials = [record for record in self.runs.live() if record.view.sweep == sweep and is_run_id(sweep)]
        return [trial for trial in trials if may(caller, trial.view.user, Act.CHANGE, trial.view.origin)]

    async def detach(self, caller: Caller, run: str) -> None:
        """Let a run go on when its kernel ends; returns once that is committed."""
        record = self.run_for(caller, run, Act.DETACH)
        if record.state.is_terminal or record.view.detached:
            return
        done = self.runs.change(record, told=NotifyWhen.SOON, at_once=True, detached=True)
        self.lifecycle.queue.tell_again(record)
        if done is not None:
            await asyncio.shield(done)

    async def pin(self, caller: Caller, run: str, *, pinned: bool) -> RunRecord:
        """Keep the results of a run for good, or no longer; returns once that is committed."""
        record = self.run_for(caller, run, Act.CHANGE)
        if pinned and record.view.collected_at is not None:
            raise ConflictError(
                f"the results of {run} were removed already: {record.view.collected_because}", hint="run the cell again"
            )
        if record.view.pinned != pinned:
            done = self.runs.change(record, told=NotifyWhen.SOON, at_once=True, pinned=pinned)
            self.manifests.amend(record.view.user, run, pinned=pinned)
            if done is not None:
                await asyncio.shield(done)
        return record

    def adopt(self, caller: Caller, session: str, run: str) -> None:
        """A run whose own kernel is gone belongs to ``session`` from now on (else nothing happens)."""
        record = self.run_for(caller, run)
        view = record.view
        alone = view.detached or not view.session or record.state.is_terminal
        is_own = view.user == caller.user and may(caller, view.user, Act.CHANGE, view.origin)
        if alone or not is_own or view.session == session or self.sessions.is_live(view.session):
            return
        log.info("run %s is taken over by another kernel of its user", run)
        self.runs.change(record, told=NotifyWhen.SOON, at_once=True, session=session)
        self.lifecycle.queue.tell_again(record)

    async def batches_after(self, caller: Caller, record: RunRecord, after: int) -> AsyncIterator[Batch]:
        """Recorded events above ``after``, as ``caller`` may see them: from memory, the run's node, or the store."""
        found = record.tail.after(after) if record.tail.known else None
        for batch in await self._read_batches(record, after) if found is None else found:
            yield batch if may(caller, record.view.user, Act.LOAD) else _as_text(record, batch)

    async def _read_batches(self, record: RunRecord, after: int) -> list[Batch]:
        lease = record.lease
        events: list[Event] = []
        if lease is not None and not record.state.is_terminal:
            try:
                events = await self.nodes.agent(lease.slots[0].node).events(lease.attempt_id, after)
            except ClusterError as error:
                log.info("run %s: events from the store: %s", record.run, error.message)
        if not events:
            if self.users is not None:
                await self.users.find(record.view.user)
            path = RunPaths(Path(self.manifests.folder(record.view.user, record.run))).events
            read = partial(read_unforged, path, after)
            events = await self.store_threads.run(lambda: list(islice(read(), _EVENTS_AT_ONCE)), at=path)
        return batches_of(record.run, events, after)

    def visible(self, caller: Caller, view: RunView) -> RunView:
        """The part of a view that ``caller`` may see."""
        return shown_view(caller, view)

    async def welcome(self, caller: Caller) -> Welcome:
        """The answer to a client's hello; raises :class:`GpuReleaseError` for a user who can have no store."""
        store, prices = self.config.store, self.queue_rules.file.prices
        if self.users is not None:
            store = str(await self.users.make_store(caller.user, self.nodes.store_id))
        return Welcome(
            protocol=PROTOCOL,
            version=__version__,
            user=caller.user,
            simulated=self.config.simulated,
            gpus_total=sum(self.nodes.totals().values()),
            store=store,
            store_id=self.nodes.store_id,
            embedded=self.config.embedded,
            python=platform.python_version(),
            hash_seed=self.config.hash_seed,
            service_uid=self._service_uid(),
            packages=(self.environments.digest or UNKNOWN) if self.config.max_environments else "",
            prices=PriceList(dict(prices.rates), prices.unit, prices.warn_above) if prices.rates else None,
            gpus_borrowed_most=self.node_source.gpus_most,
        )

    def problems(self) -> list[str]:
        """Reasons for which this cluster takes no runs."""
        ledger = [] if self.ledger.is_alive else ["the ledger's thread has ended: the gateway is being restarted"]
        if self.ledger.trouble:
            ledger.append(f"the ledger in {self.config.home} cannot be written: {self.ledger.trouble}")
        return ledger + [node.problem for node in self.nodes.alive() if node.problem]

    def health(self) -> Health:
        """Tell if runs can be taken now."""
        can_commit = self.ledger.is_alive and not self.ledger.trouble
        ready = self.recovered.is_set() and can_commit and bool(self.nodes.ready())
        return Health(
            ready=ready,
            version=__version__,
            protocol=PROTOCOL,
            cluster=self.config.cluster,
            pid=os.getpid(),
            nodes=len(self.nodes.alive()),
            agents=len(self.nodes.ready()),
            gpus_total=sum(self.nodes.totals().values()),
            simulated=self.config.simulated,
            problems=self.problems(),
            store=self.config.store,
            store_id=self.nodes.store_id,
            service_uid=self._service_uid(),
            remembers_head=os.environ.get(_GCS_STORAGE) == "rocksdb",
        )

    def _service_uid(self) -> int | None:
        return os.geteuid() if self.config.store_mode == StoreMode.GROUP else None


def _is_of(caller: Caller, record: RunRecord) -> bool:
    """Tell if a run is one that the caller may know of: to the driver of a sweep there are no others."""
    return not caller.sweep or record.view.sweep == caller.sweep


def _as_text(record: RunRecord, batch: Batch) -> Batch:
    shown = [as_text(decode(bytes(raw), Event), record.run, record.view.user) for raw in batch.events]
    return batch_of(record.run, [msgspec.Raw(encode(event)) for event in shown])


def _missing(packages: Sequence[str], *, embedded: bool, is_admin: bool) -> MissingPackageError:
    """Most often the cluster of this machine was started from another environment than the notebook's."""
    who = "install it there" if is_admin else "ask whoever runs the cluster to install it there"
    hint = f"{who}: {sys.executable} -m pip install {' '.join(packages)}"
    if embedded and is_admin:
        hint += "; or `jupyter gpu stop`: the next cell starts the cluster from the notebook's own environment"
    what = f"the cell imports {', '.join(packages)}, which the cluster's Python ({sys.executable}) does not have"
    return MissingPackageError(what, hint=hint)
