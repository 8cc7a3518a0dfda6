"""Numbers of views: clients take none that is not higher than the last one that they were told."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_bed import BrokerBed


@pytest.mark.asyncio
async def test_views_of_later_lives_are_newer_though_no_life_has_committed_what_it_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed, told = BrokerBed(tmp_path, monkeypatch, a=1), 0
    async with bed.life() as service:
        await bed.running(service, 1)
        waits = await bed.submitted(service, 1)
        await bed.in_ledger(service)
    for _ in range(3):
        async with bed.life() as service:
            record = service.runs.get(waits.run)
            assert record is not None
            assert record.view.seq > told
            for place in range(500):
                service.runs.move(record, place, "others go first")
            told = record.view.seq
