"""Routes about what runs were made from, and about results that are used again."""

from __future__ import annotations

import time

from starlette.requests import Request

from ..core.cache import CacheAnswer, CacheQuestion, CacheUse
from ..core.documents import RunRow
from ..core.provenance import Lineage
from .access import Act, Caller
from .broker import Broker
from .documents import record_row
from .parameters import body_of


async def show_lineage(broker: Broker, caller: Caller, request: Request) -> Lineage:
    """GET /v1/runs/{run}/lineage."""
    record = broker.run_for(caller, request.path_params["run"])
    return await broker.store_threads.run(broker.provenance.lineage, caller, record)


async def ask_cache(broker: Broker, caller: Caller, request: Request) -> CacheAnswer:
    """POST /v1/cache."""
    question = await body_of(request, CacheQuestion)
    return await broker.provenance.candidates(caller, question, broker.runs.live())


async def note_reuse(broker: Broker, caller: Caller, request: Request) -> RunRow:
    """POST /v1/runs/{run}/reused."""
    record = broker.run_for(caller, request.path_params["run"], Act.LOAD)
    use = await body_of(request, CacheUse)
    await broker.provenance.reused(record.run, use)
    broker.keeping.note_reuse(record.run)
    return record_row(record, caller, time.time())
