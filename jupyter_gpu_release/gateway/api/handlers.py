"""REST handlers: runs, leases, lineage, cache, status, checks.

Each runs on the gateway's event loop, once ``app.py`` knows who calls; long work goes to a thread. What one raises
is the answer: a :class:`.GpuReleaseError` with its code and hint, anything else as a fault of the gateway (500).
"""

from __future__ import annotations

import asyncio
import time
from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from ...errors import ConflictError, NoSuchRunError, RequestError
from ...protocol.admin import GcDocument, NodeDrain
from ...protocol.config import RetentionPolicy
from ...protocol.environments import (
    BuildProgress,
    ClusterPackages,
    EnvironmentBuilt,
    EnvironmentRemoval,
    EnvironmentsDocument,
    PackagesAnswer,
    Plan,
    Question,
    Versions,
    WheelSent,
)
from ...protocol.lineage import CacheAnswer, CacheQuestion, CacheUse, Lineage
from ...protocol.rest import (
    EstimateDocument,
    EstimateQuestion,
    FileTrouble,
    Health,
    LeaseExtension,
    NodeChecks,
    NotifyChange,
    NotifyDocument,
    QueuesDocument,
    ReportDocument,
    RunRow,
    StatusDocument,
    WarmRow,
)
from ...protocol.runs import Reason, RunRequest, RunView
from ...protocol.states import LeaseState, is_run_id
from ...settings.built_in import BUILT_IN
from ..auth.permissions import Act, Caller, shown_status
from ..cluster.lease import Lease
from ..db.held_gpus import read_held
from ..db.rows import WarmLeaseRow
from ..service import GatewayService
from .responses import (
    GPUS_AGE_S,
    priced,
    queues_document,
    record_row,
    report_document,
    runs_document,
    status_document,
    warm_row,
)
from .route import body_of, flag, number
from .run_imports import import_run


async def release_lease(service: GatewayService, caller: Caller, request: Request) -> WarmRow:
    """End a warm lease (``POST /v1/leases/{lease}/release``); answered when its GPUs are free.

    Raises
    ------
    NoSuchRunError, ForbiddenError, ConflictError
        There is no such lease, it is another user's, or it is not warm.
    """
    lease, kept = _warm(service, caller, request.path_params["lease"])
    given_back = service.warm.give_up(lease, f"released by {caller.user}")
    service.audit.write_entry(caller, "lease.release", lease.run, detail=f"owner {kept.user}")
    if given_back is not None:
        await given_back
    return warm_row(service, lease, kept, LeaseState.GONE.value)


async def extend_lease(service: GatewayService, caller: Caller, request: Request) -> WarmRow:
    """Keep a warm lease for ``keep_s`` seconds from now (``POST /v1/leases/{lease}/extend``).

    Raises
    ------
    RequestError
        The time is 0, or no number.
    NoSuchRunError, ForbiddenError, ConflictError
        There is no such lease, it is another user's, or it is not warm.
    """
    lease, _kept = _warm(service, caller, request.path_params["lease"])
    wanted = await body_of(request, LeaseExtension)
    if wanted.keep_s == 0:
        raise RequestError("keep_s 0 is not a time", hint="send a number of seconds above 0")
    kept = service.warm.extend(lease, wanted.keep_s)
    service.audit.write_entry(caller, "lease.extend", lease.run, detail=f"owner {kept.user}, {wanted.keep_s:g} s")
    return warm_row(service, lease, kept)


def _warm(service: GatewayService, caller: Caller, name: str) -> tuple[Lease, WarmLeaseRow]:
    """The warm lease that is called by its run, for who may change it.

    Raises :class:`NoSuchRunError`, :class:`ForbiddenError` for another user's, :class:`ConflictError` when it is not
    warm.
    """
    record = service.runs.find(name) if is_run_id(name) else None
    if record is None:
        raise NoSuchRunError(f"there is no lease {name[:80]}", hint="`jupyter gpu status` shows what is kept")
    service.run_for(caller, name, Act.LEASE)
    lease = service.leases.of_run(name)
    if lease is None:
        raise ConflictError(f"run {name} holds no GPU any more: its lease has ended", hint="run the cell again")
    if lease.kept is None:
        what = "is being given back" if lease.state is LeaseState.RELEASING else "is not warm: its run is under way"
        raise ConflictError(f"the lease of run {name} {what}", hint=f"`jupyter gpu cancel {name}` ends a run")
    return lease, lease.kept


async def show_lineage(service: GatewayService, caller: Caller, request: Request) -> Lineage:
    """Runs that this one was made from, and those made from it (``GET /v1/runs/{run}/lineage``).

    Raises
    ------
    NoSuchRunError
        There is no run that the caller may see.
    """
    record = service.run_for(caller, request.path_params["run"])
    return await service.lineage.document_of(caller, record)


async def show_packages(service: GatewayService, caller: Caller, request: Request) -> ClusterPackages:
    """Packages that are installed on the nodes, and environments that the caller is offered (``GET /v1/packages``).

    Raises
    ------
    ConflictError
        No node builds environments now.
    """
    named = await service.named_environments.of_user(caller.user, service.queue_rules.file.groups)
    return await service.environments.packages(named, service.named_environments.pythons)


async def check_packages(service: GatewayService, caller: Caller, request: Request) -> PackagesAnswer:
    """Tell if nodes can get the packages of an environment (``POST /v1/packages/check``).

    Raises
    ------
    ConflictError
        No node builds environments now.
    """
    plan = await body_of(request, Plan)
    await service.check_python(caller, plan.interpreter)
    return await service.environments.check(plan)


async def resolve_packages(service: GatewayService, caller: Caller, request: Request) -> Versions:
    """Find versions of packages for an environment (``POST /v1/packages/resolve``).

    Raises
    ------
    ConflictError
        No node builds environments now.
    """
    question = await body_of(request, Question)
    await service.check_python(caller, question.interpreter)
    return await service.environments.resolve(question)


async def send_wheel(service: GatewayService, caller: Caller, request: Request) -> WheelSent:
    """Keep a wheel of the notebook's own (``POST /v1/packages/wheels/{digest}``).

    Raises
    ------
    RequestError
        It is not the one that the digest tells.
    """
    content = await request.body()
    return await asyncio.to_thread(service.environments.keep_wheel, request.path_params["digest"], content)


async def list_environments(service: GatewayService, caller: Caller, request: Request) -> EnvironmentsDocument:
    """Environments that are ready on nodes (``GET /v1/environments``, admins): by its digest each can be read."""
    return await service.environments.list_all()


async def build_environment(service: GatewayService, caller: Caller, request: Request) -> EnvironmentBuilt:
    """Build an environment on all nodes, before somebody needs it (``POST /v1/environments/build``, admins).

    Raises
    ------
    ClusterError
        A node cannot build it; the installer's last words are in it.
    """
    plan = await body_of(request, Plan)
    await service.check_python(caller, plan.interpreter)
    built = await service.environments.build_everywhere(plan)
    service.audit.write_entry(caller, "environment.build", plan.digest)
    return built


async def show_build(service: GatewayService, caller: Caller, request: Request) -> BuildProgress:
    """How far the nodes are that build an environment now (``POST /v1/environments/progress``, admins)."""
    return await service.environments.progress(await body_of(request, Plan))


async def remove_environment(service: GatewayService, caller: Caller, request: Request) -> EnvironmentsDocument:
    """Remove an environment on all nodes; what is in use stays, and is the answer (``POST /v1/environments/remove``).

    Raises
    ------
    RequestError
        No environment, or more than one, has a digest that begins so.
    """
    asked = await body_of(request, EnvironmentRemoval)
    left = await service.environments.remove(asked.digest)
    service.audit.write_entry(caller, "environment.remove", asked.digest)
    return left


async def ask_cache(service: GatewayService, caller: Caller, request: Request) -> CacheAnswer:
    """Runs of the caller that have the key asked about (``POST /v1/cache``)."""
    question = await body_of(request, CacheQuestion)
    return await service.lineage.candidates(caller, question, service.runs.live())


async def note_reuse(service: GatewayService, caller: Caller, request: Request) -> RunRow:
    """Note that a kernel bound the results of a run once more (``POST /v1/runs/{run}/reused``).

    Raises
    ------
    NoSuchRunError, ForbiddenError
        There is no run whose results the caller may load.
    """
    record = service.run_for(caller, request.path_params["run"], Act.LOAD)
    use = await body_of(request, CacheUse)
    await service.lineage.reused(record.run, use)
    service.holds.note_reuse(record.run)
    return record_row(record, caller, time.time())


MOST_ROWS: int = BUILT_IN["listed_runs"].default
#: how old a GPU's figures may be in an answer that tells of a change
_SHOWN_GPUS_AGE_S = 2.5


# ------------------------------------------------------------------------------------------- handlers
async def submit_run(service: GatewayService, caller: Caller, request: Request) -> RunView:
    """Take a run that no kernel waits for (``POST /v1/runs``); answered once it is committed.

    Raises
    ------
    RequestError, ImpossibleAskError, MissingPackageError
        The request is none, no node can ever satisfy it, or the nodes lack a package.
    ConflictError
        There is another run with this id.
    LedgerError
        It cannot be committed: nothing was queued.
    """
    asked = await body_of(request, RunRequest)
    unattached = msgspec.structs.replace(asked, session="")  # no socket, so no kernel whose end could end it
    record = await service.submit(caller, unattached)
    await service.committed(record)
    return service.visible(caller, record.view)


async def list_runs(service: GatewayService, caller: Caller, request: Request) -> Response:
    """Runs that the caller may see, newest first (``GET /v1/runs``), ``limit`` of them (100, at most 10,000)."""
    count = min(number(request, "limit", 100), MOST_ROWS)
    mine = flag(request, "mine")
    if caller.is_admin and not mine:
        service.audit.write_entry(caller, "runs.list")
    sweeps = list(filter(None, request.query_params.get("sweep", "").split(",")))
    stored_bytes = await service.usage.stored_bytes(caller.user)
    fresh = {record.run: record for record in service.runs.in_memory()}
    # 10,000 runs are some 10 MB of JSON: made in a thread, kernels' messages come first
    body = await asyncio.to_thread(
        partial(
            runs_document,
            mine=mine,
            brief=flag(request, "brief"),
            sweeps=sweeps,
            prices=service.queue_rules.file.prices,
            stored_bytes=stored_bytes,
        ),
        service.engine,
        fresh,
        caller,
        count,
        time.time(),
    )
    return Response(body, media_type="application/json")


async def show_run(service: GatewayService, caller: Caller, request: Request) -> RunRow:
    """One run (``GET /v1/runs/{run}``); raises :class:`NoSuchRunError` for one that the caller may not see."""
    record = service.run_for(caller, request.path_params["run"])
    return priced(record_row(record, caller, time.time()), service.queue_rules.file.prices)


async def show_report(service: GatewayService, caller: Caller, request: Request) -> ReportDocument:
    """GPU-hours held in the last ``seconds`` (30 days) (``GET /v1/report``): the caller's, for admins everybody's."""
    until_s = time.time()
    since_s = until_s - number(request, "seconds", 30 * 86400)
    if caller.is_admin:
        service.audit.write_entry(caller, "report")
    user = None if caller.is_admin else caller.user
    held = await asyncio.to_thread(read_held, service.engine, since_s, until_s, user)
    return report_document(service.queue_rules.file.prices, since_s, until_s, held)


async def show_outcome(service: GatewayService, caller: Caller, request: Request) -> RunView:
    """How a run ended (``GET /v1/runs/{run}/outcome``).

    Who asks for it is about to load the values: they are not collected meanwhile. Raises :class:`NoSuchRunError`.
    """
    record = service.run_for(caller, request.path_params["run"])
    session = request.query_params.get("session", "")
    if service.sessions.belongs_to(session, caller.user):
        service.holds.hold_results(session, record.run)
    elif record.view.user == caller.user:
        service.holds.note_load(record.run)
    return service.visible(caller, record.view)


async def cancel_run(service: GatewayService, caller: Caller, request: Request) -> RunRow:
    """End a run (``POST /v1/runs/{run}/cancel``): an interrupt, with ``kill`` or the second time a kill.

    One that is persisting gives its results up. Raises :class:`NoSuchRunError` and :class:`ForbiddenError`.
    """
    record = await service.cancel(caller, request.path_params["run"], kill=flag(request, "kill"))
    return record_row(record, caller, time.time())


async def preempt_run(service: GatewayService, caller: Caller, request: Request) -> RunRow:
    """Preempt a run for others (``POST /v1/runs/{run}/preempt``): it is saved and goes on later.

    Raises
    ------
    NoSuchRunError, ForbiddenError
        There is no run that the caller may change.
    ConflictError
        It is not restartable, cannot be saved, or does not run.
    """
    record = service.run_for(caller, request.path_params["run"], Act.CHANGE)
    service.lifecycle.preempt(record, "request", Reason("asked", {"user": caller.user}))
    return record_row(record, caller, time.time())


async def pin_run(service: GatewayService, caller: Caller, request: Request) -> RunRow:
    """Keep a run's results whatever the rules say, or no longer (``POST /v1/runs/{run}/pin`` and ``/unpin``)."""
    pinned = request.url.path.endswith("/pin")
    return record_row(await service.pin(caller, request.path_params["run"], pinned=pinned), caller, time.time())


async def import_bundle(service: GatewayService, caller: Caller, request: Request) -> RunRow:
    """Make a run of what was unpacked on the store (``POST /v1/imports/{name}``).

    Raises
    ------
    NoSuchRunError, RequestError, StoreError
        Nothing was unpacked under this name, it is no run, or the store refuses.
    ConflictError
        A run with this id is there already, and is another one.
    """
    by = request.query_params.get("exported_by", "")[:200]
    record = await import_run(service, caller, request.path_params["name"], by)
    service.audit.write_entry(caller, "run.import", record.run, detail=f"exported by {by}")
    return record_row(record, caller, time.time())


async def collect_runs(service: GatewayService, caller: Caller, request: Request) -> GcDocument:
    """Remove results by age in seconds, count and quota in bytes (``POST /v1/gc``).

    Limits that are named replace those of the gateway's settings. Who is no administrator collects the own runs only,
    and no unused environments.
    """
    limits = ("older_than_s", "keep", "quota_bytes")
    given = {name: number(request, name, 0) for name in limits if name in request.query_params}
    policy = RetentionPolicy(**given) if given else service.config.retention
    user = None if caller.is_admin else caller.user
    dry_run = flag(request, "dry_run")
    if not dry_run:
        service.audit.write_entry(caller, "runs.collect")
    document = await service.result_collector.collect(policy, user=user, dry_run=dry_run)
    if not caller.is_admin:
        return document
    gone = await service.environments.collect(time.time(), dry_run=dry_run)
    return msgspec.structs.replace(document, environments=gone)


async def show_status(service: GatewayService, caller: Caller, request: Request) -> Response:
    """Status: who holds what, and who waits (``GET /v1/status``).

    With ``after``, answered at the next change, after ``wait_ms`` milliseconds at the latest; the header
    ``Server-Timing`` tells which part of the time was waiting.
    """
    began_s, age_s = time.monotonic(), GPUS_AGE_S
    if "after" in request.query_params:
        wait_s = number(request, "wait_ms", 0) / 1000
        await service.status_feed.after_for(caller, service.tokens, request.query_params["after"], wait_s)
        age_s = _SHOWN_GPUS_AGE_S  # a change is told at once, also while a node's agent is slow
    waited_ms = (time.monotonic() - began_s) * 1000
    usage = await service.usage.usage_for(caller)
    document = shown_status(caller, await status_document(service, caller.user, age_s), usage)
    headers = {"Server-Timing": f"wait;dur={waited_ms:.1f}"}
    return Response(msgspec.json.encode(document), headers=headers, media_type="application/json")


async def show_queues(service: GatewayService, caller: Caller, request: Request) -> QueuesDocument:
    """Queues, who is in them, and which of them the caller may use (``GET /v1/queues``)."""
    return queues_document(service, caller.user)


async def ask_estimate(service: GatewayService, caller: Caller, request: Request) -> EstimateDocument:
    """When a run would start that the caller does not send (``POST /v1/outlook``).

    Raises
    ------
    OptionError, ImpossibleAskError
        It would be refused.
    """
    asked = await body_of(request, EstimateQuestion)
    if caller.is_assistant:
        asked = msgspec.structs.replace(asked, queue=service.queue_rules.file.queue_of_assistants(asked.queue))
    return await service.start_estimates.estimate_of(caller.user, asked)


async def show_estimate(service: GatewayService, caller: Caller, request: Request) -> EstimateDocument:
    """When a waiting run will start, and what would start sooner (``GET /v1/runs/{run}/outlook``)."""
    return await service.start_estimates.estimate_of_run(service.run_for(caller, request.path_params["run"]))


async def drain_node(service: GatewayService, caller: Caller, request: Request) -> StatusDocument:
    """Give a node, or a GPU of it, no new runs (``POST /v1/nodes/drain``, admins); those on it end as they would."""
    asked = await body_of(request, NodeDrain)
    drained = await service.drains.drain(asked.node, caller.user, asked.reason, passing=asked.passing)
    service.audit.write_entry(caller, "node.drain", str(drained), detail=asked.reason)
    service.on_nodes_drained()
    return await status_document(service, caller.user)


async def resume_node(service: GatewayService, caller: Caller, request: Request) -> StatusDocument:
    """Give runs to a node or GPU again (``POST /v1/nodes/resume``, admins)."""
    asked = await body_of(request, NodeDrain)
    resumed = await service.drains.resume(asked.node)
    service.audit.write_entry(caller, "node.resume", str(resumed))
    service.on_nodes_drained()
    return await status_document(service, caller.user)


async def show_health(service: GatewayService, caller: Caller, request: Request) -> Health:
    """Answer if runs can be taken now (``GET /v1/health``), and what is in the way."""
    return service.health()


async def show_checks(service: GatewayService, caller: Caller, request: Request) -> NodeChecks:
    """Probe each node now (``GET /v1/checks``): its agent, the store as it sees it, its ways to the other nodes.

    Takes 30 s at most.
    """
    checks = await service.node_checker.check(await service.named_environments.interpreters())
    troubles = [service.queue_rules.trouble, service.named_environments.trouble]
    return msgspec.structs.replace(checks, files=[FileTrouble(each.message, each.hint) for each in troubles if each])


async def show_notify(service: GatewayService, caller: Caller, request: Request) -> NotifyDocument:
    """How the caller is told of detached runs (``GET /v1/notify``); of the webhook its host alone."""
    return service.notifier.document(caller.user)


async def change_notify(service: GatewayService, caller: Caller, request: Request) -> NotifyDocument:
    """Change how the caller is told of detached runs (``POST /v1/notify``).

    Raises
    ------
    OptionError
        The address is none, or the operator allows no such one.
    LedgerError
        It cannot be committed.
    """
    change = await body_of(request, NotifyChange)
    document = await service.notifier.change(caller.user, change)
    named = [name for name in ("email", "webhook", "starts", "pauses", "ends") if getattr(change, name) is not None]
    service.audit.write_entry(caller, "notify.change", detail=", ".join(named))
    return document


async def try_notify(service: GatewayService, caller: Caller, request: Request) -> NotifyDocument:
    """Send the caller a message by each way now (``POST /v1/notify/test``); answered when it was taken or refused."""
    service.audit.write_entry(caller, "notify.test")
    return await service.notifier.test(caller.user)
