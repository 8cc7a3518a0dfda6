"""Runs whose GPUs are free and whose results are not durable yet: given up, saved, or waited for."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from ...errors import ClusterError
from ...protocol.runs import Outcome, PersistWait
from ...protocol.states import RunState
from ...store.layout import RunPaths
from ..runs.outcomes import given_up
from ..runs.record import RunRecord
from ..service import GatewayService

log = logging.getLogger(__name__)


async def give_up(service: GatewayService, record: RunRecord, reason: str) -> None:
    """End the wait for a persisting run's results: they are dropped.

    Raises :class:`ClusterError` when the node that keeps them does not answer.
    """
    text = given_up(record.outcome or Outcome(status="ok"), reason)
    nodes = [node for node in service.nodes.ready() if node.host in record.view.hosts]
    before, record.cancellation.reason = record.cancellation.reason, text
    agents = [service.nodes.agent(node.node) for node in nodes]
    dropped = await asyncio.gather(*(agent.give_up_results(record.attempt_id, reason) for agent in agents))
    if record.state is not RunState.PERSISTING:
        return
    if not nodes:  # what a node that is away keeps, it drops when it comes back
        service.lifecycle.end_unkept(record, text)
    elif not any(dropped):  # they are durable by now
        record.cancellation.reason = before


async def save_inline(service: GatewayService, record: RunRecord, node: str) -> bool:
    """Have a node write small results that the gateway has and an agent that died did not come to write."""
    outcome = record.outcome
    if record.state is not RunState.PERSISTING or outcome is None or outcome.values is None or outcome.values.file:
        return False
    try:
        await service.nodes.agent(node).keep_results(
            record.attempt_id, service.manifests.folder(record.view.user, record.run), outcome
        )
    except ClusterError as error:
        log.warning("run %s: %s", record.run, error.message)
        return False
    return True


def await_node(service: GatewayService, record: RunRecord) -> None:
    """Wait for the node that keeps the results; its agent says whether it still does when it introduces itself."""
    view = record.view
    values = record.outcome.results if record.outcome is not None else []
    path = str(RunPaths(Path(service.manifests.folder(view.user, record.run)), record.attempt).values)
    reason = f"waiting for {', '.join(view.hosts) or 'its node'}"
    wait = PersistWait(path, sum(value.bytes for value in values), reason, kept="gone")
    service.lifecycle.on_waits(record, wait)
