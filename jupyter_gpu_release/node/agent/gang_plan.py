"""From one order to its ranks' orders, and from the ranks' outcomes back to one. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

import msgspec

from ...errors import CannotSendError
from ...protocol.cell import OTHERS_TOGETHER_BYTES, Graph
from ...protocol.node import StartOrder
from ...protocol.runs import ErrorInfo, Outcome, RankPart, Save
from ..gang.layout import EVALUATOR, RANK, SERVER, RankSpec
from ..ipc.frames import RankOrder, SpoolConfig
from ..supervisor import limits

#: preempted, as the rest of the gang
PREEMPTED = "preempted"
#: ended because the rest of the gang was done
DISMISSED = "dismissed"
#: times the time that a process has to obey an interrupt, in a gang: one that is stuck in a collective ends, and with
#: it the collective, so that rank 0 has time to hand its names over, on a busy node too
_FIRST, _OTHERS = 2.0, 0.4
_IN_USE = re.compile(r"EADDRINUSE|address already in use", re.IGNORECASE)
_FINE = ("ok", "interrupted", DISMISSED, PREEMPTED)
#: not of the cell's own doing: what other ranks report then is a consequence
_FROM_OUTSIDE = ("died", "memory", "hung", "lost", "timeout")


def rank_specs_of(order: StartOrder, host: str) -> list[RankSpec]:
    """The places of a gang, rank 0 first, without ports; further nodes' hosts are known from the order."""
    counts = [(order.ranks, host), *((member.ranks, member.host) for member in order.gang.members)]
    specs: list[RankSpec] = []
    for node, (count, where) in enumerate(counts):
        specs += [RankSpec(len(specs) + local, RANK, node, local, count, where) for local in range(count)]
    roles = [SERVER] * order.gang.ps + [EVALUATOR] * order.gang.evaluator
    return [*specs, *(RankSpec(len(specs) + number, role, host=host) for number, role in enumerate(roles))]


def rank_order(
    order: StartOrder, keep: SpoolConfig, spec: RankSpec, specs: Sequence[RankSpec], mark: str = ""
) -> RankOrder:
    """The order for one process."""
    ranks = sum(other.role == RANK for other in specs)
    share = _OTHERS if spec.index else _FIRST if ranks > 1 else 1.0
    return RankOrder(
        run=order.run,
        payload=order.payload,
        folder=order.folder,
        rank=spec.index,
        ranks=ranks,
        role=spec.role,
        sharers=sum(other.node == spec.node for other in specs),
        simulated=order.simulated,
        memory_bytes=order.memory_bytes,
        cpus=order.cpus,
        timeout_s=order.timeout_s,
        grace_s=share * order.grace_s,
        keep=keep,
        stall_s=limits.STALL_S,
        mark=mark,
        tells_leaving=len(specs) == 1,
        attempt=order.attempt,
        is_unbegun=order.is_unbegun,
        restartable=order.restartable,
        preempt_grace_s=order.preempt_grace_s,
        is_elastic=order.gang.is_elastic,
        save=order.save,
        owner=order.owner,
        as_owner=order.as_owner and not order.has_owners_server,
        access=order.access,
    )


def share_gpus(gpu_ids: Sequence[str], ranks: int) -> list[list[str]]:
    """The GPUs of each rank: dealt out evenly, in order."""
    share = len(gpu_ids) // max(ranks, 1)
    return [list(gpu_ids[rank * share : (rank + 1) * share]) for rank in range(ranks)]


def merge_outcomes(outcomes: Mapping[int, Outcome], specs: Sequence[RankSpec]) -> Outcome:
    """Rank 0's outcome with the gang's times; the failure is that of whoever failed first."""
    first = outcomes[0]
    if len(outcomes) == 1:
        return first
    changes: dict[str, object] = {
        "ended_s": max((o.ended_s for o in outcomes.values() if o.ended_s), default=first.ended_s),
        "released_s": max((o.released_s for o in outcomes.values() if o.released_s), default=None),
        "tracked": list({file: None for _, outcome in sorted(outcomes.items()) for file in outcome.tracked}),
    }
    if first.status == PREEMPTED:  # it has all that the others had
        return msgspec.structs.replace(first, **changes)
    culprit = first_to_fail(outcomes)
    changes |= {"failed_rank": culprit or 0, "frames": _frames(outcomes)}
    if culprit is not None and outcomes[culprit].status == "timeout" and first.status in ("timeout", "interrupted"):
        changes["status"] = "timeout"  # all of it: no rank is to blame
    elif culprit is not None:
        outcome, name = outcomes[culprit], specs[culprit].name(_ranks(specs))
        changes |= {"status": outcome.status, "error": _placed(outcome, culprit, specs)}
        if culprit:
            what = "still ran" if outcome.status == "timeout" else "failed"
            changes["notes"] = [*first.notes, *outcome.notes, f"{name} of {len(outcomes)} {what}"]
    return msgspec.structs.replace(first, **changes)


def explain_stolen_port(
    outcome: Outcome, specs: Sequence[RankSpec], master_port: int, taken: Collection[int]
) -> Outcome:
    """Say what it means when a process could not listen on a port that was kept for the gang.

    ``taken``: those of them at which something listens although all processes of the gang have ended. The error alone
    does not tell: some frameworks' names the port, others' do not.
    """
    if outcome.error is None:
        return outcome
    text = outcome.error.evalue
    named = {int(number) for number in re.findall(r"\d+", text)} if _IN_USE.search(text) else set()
    notes = [
        f"{name} was free when the ranks were started: something on {host} listens there now (a process "
        "group that was not destroyed, or another program); run the cell again for another port"
        for port, (name, host) in _kept_ports(specs, master_port).items()
        if port in taken or port in named
    ]
    return msgspec.structs.replace(outcome, notes=[*outcome.notes, *notes]) if notes else outcome


def _kept_ports(specs: Sequence[RankSpec], master_port: int) -> dict[int, tuple[str, str]]:
    """The purpose of each port, and its host."""
    kept = {}
    for spec in specs:
        variables = "TF_CONFIG" if spec.index else "TF_CONFIG, JAX_COORDINATOR_ADDRESS"
        kept[spec.port] = (f"the port {spec.port} of {spec.name(_ranks(specs))} ({variables})", spec.host)
    kept[master_port] = (f"MASTER_PORT {master_port}", specs[0].host)
    return {port: found for port, found in kept.items() if port}


def merge_saves(saves: Mapping[int, Save]) -> Save:
    """Rank 0's save, with the others' as its parts."""
    others = [saves[rank] for rank in sorted(saves) if rank]
    parts = [RankPart(values=save.values) for save in others]
    return msgspec.structs.replace(saves[0], parts=parts, bytes=sum(save.bytes for save in saves.values()))


def first_to_fail(outcomes: Mapping[int, Outcome]) -> int | None:
    """The rank whose failure caused the others' (connections that break when a rank is gone); None: nobody failed."""
    failed = [index for index, outcome in outcomes.items() if outcome.status not in _FINE]
    return min(failed, key=lambda index: _seniority(outcomes[index]), default=None)


def _frames(outcomes: Mapping[int, Outcome]) -> dict[int, Graph]:
    """Frames of the first ranks to fail, as far as there is room."""
    kept: dict[int, Graph] = {}
    left = OTHERS_TOGETHER_BYTES
    for outcome in sorted(outcomes.values(), key=_seniority):
        for rank, frames in outcome.frames.items():
            left -= len(frames.stream) + sum(map(len, frames.buffers))
            kept |= {rank: frames} if left >= 0 else {}
    return kept


def _seniority(outcome: Outcome) -> tuple[bool, float]:
    return outcome.status not in _FROM_OUTSIDE, outcome.ended_s or outcome.released_s or float("inf")


def _placed(outcome: Outcome, index: int, specs: Sequence[RankSpec]) -> ErrorInfo | None:
    """The error with its rank and node: above the traceback of the user's own, in the sentence of ours."""
    error, spec = outcome.error, specs[index]
    if error is None or (error.code and error.ename == CannotSendError.__name__):  # that names its ranks itself
        return error
    where = f"{spec.name(_ranks(specs))} on {spec.host}"
    if not error.code:
        lines = error.traceback or [f"{error.ename}: {error.evalue}"]
        return msgspec.structs.replace(error, traceback=[f"in {where}:", *lines])
    text = error.evalue if index == 0 else error.evalue.replace("; its names are gone", "")  # the values are rank 0's
    return msgspec.structs.replace(error, evalue=f"{where}: {text}")


def _ranks(specs: Sequence[RankSpec]) -> int:
    return sum(spec.role == RANK for spec in specs)
