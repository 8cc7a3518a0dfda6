"""A run that the ledger could not record did not happen, though it was granted GPUs meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from broker_bed import ANN, BrokerBed, until

from jupyter_gpu_release.gateway.db.writer import LedgerError
from jupyter_gpu_release.gateway.runs.record import RunRecord
from jupyter_gpu_release.protocol.cell import CellPayload
from jupyter_gpu_release.protocol.runs import ResourceAsk, RunRequest
from jupyter_gpu_release.protocol.states import RunState, new_run_id
from jupyter_gpu_release.protocol.wire import encode


@pytest.mark.asyncio
async def test_it_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bed = BrokerBed(tmp_path, monkeypatch, a=4)
    async with bed.life() as service:

        def fail(record: RunRecord) -> None:
            record.committed = asyncio.get_running_loop().create_future()
            record.committed.set_exception(LedgerError("the disk is full"))

        monkeypatch.setattr(service.runs, "record", fail)
        asked = RunRequest(new_run_id(), "s", ResourceAsk(), encode(CellPayload(source="x")))
        refused = await service.submit(ANN, asked)
        with pytest.raises(LedgerError):
            await service.committed(refused)
        await until(lambda: refused.state is RunState.CANCELLED)
        assert refused.run not in service.lifecycle.queue
        assert service.leases.of_run(refused.run) is None
