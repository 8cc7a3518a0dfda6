"""The routes of warm leases: end one, keep one for longer. Every use is audited."""

from __future__ import annotations

from starlette.requests import Request

from ..core.documents import LeaseExtension, WarmRow
from ..core.run import LeaseState, is_run_id
from ..errors import ConflictError, NoSuchRunError, RequestError
from .access import Act, Caller
from .broker import Broker
from .documents import warm_row
from .leases import Lease
from .parameters import body_of
from .warm_ledger import Kept


async def release_lease(broker: Broker, caller: Caller, request: Request) -> WarmRow:
    """POST /v1/leases/{lease}/release: returns when the GPUs are free."""
    lease, kept = _warm(broker, caller, request.path_params["lease"])
    given_back = broker.warm.give_up(lease, f"released by {caller.user}")
    broker.audit.note(caller, "lease.release", lease.run, detail=f"owner {kept.user}")
    if given_back is not None:
        await given_back
    return warm_row(broker, lease, kept, LeaseState.GONE.value)


async def extend_lease(broker: Broker, caller: Caller, request: Request) -> WarmRow:
    """POST /v1/leases/{lease}/extend."""
    lease, _kept = _warm(broker, caller, request.path_params["lease"])
    wanted = await body_of(request, LeaseExtension)
    if wanted.keep_s == 0:
        raise RequestError("keep_s 0 is not a time", mend="send a number of seconds above 0")
    kept = broker.warm.extend(lease, wanted.keep_s)
    broker.audit.note(caller, "lease.extend", lease.run, detail=f"owner {kept.user}, {wanted.keep_s:g} s")
    return warm_row(broker, lease, kept)


def _warm(broker: Broker, caller: Caller, name: str) -> tuple[Lease, Kept]:
    """The warm lease that is called by its run, for who may change it.

    Raises :class:`NoSuchRunError`, :class:`ForbiddenError` for another user's, :class:`ConflictError` when it is not
    warm.
    """
    record = broker.runs.find(name) if is_run_id(name) else None
    if record is None:
        raise NoSuchRunError(f"there is no lease {name[:80]}", mend="`jupyter gpu status` shows what is kept")
    broker.run_for(caller, name, Act.LEASE)
    lease = broker.leases.of_run(name)
    if lease is None:
        raise ConflictError(f"run {name} holds no GPU any more: its lease has ended", mend="run the cell again")
    if lease.kept is None:
        what = "is being given back" if lease.state is LeaseState.RELEASING else "is not warm: its run is under way"
        raise ConflictError(f"the lease of run {name} {what}", mend=f"`jupyter gpu cancel {name}` ends a run")
    return lease, lease.kept
