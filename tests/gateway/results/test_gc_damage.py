"""Collecting beside damaged, foreign and newer runs: who harms whom, and the gateway that does it by itself."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from ray_bed import GatewayBed, RayBed
from store_bed import OLD, StoreBed, blob, collect, gone, is_whole, run_id

from jupyter_gpu_release.errors import StoreError
from jupyter_gpu_release.protocol.admin import GcDocument
from jupyter_gpu_release.protocol.config import RetentionPolicy
from jupyter_gpu_release.store.gc.trash import Trash

MIB = 1 << 20


@pytest.fixture
def bed(tmp_path: Path) -> StoreBed:
    return StoreBed(tmp_path)


def test_a_damaged_run_harms_no_other(bed: StoreBed) -> None:
    for number in range(1, 5):
        bed.add(number, blob("abcd"[number - 1]))
    bed.age_blobs()
    bed.paths(1).values.chmod(0o600)
    bed.paths(1).values.write_bytes(bed.paths(1).values.read_bytes()[:-7])  # truncated
    bed.paths(2).values.write_bytes(b"")
    bed.paths(3).manifest.write_bytes(b"{half")
    bed.add(5, blob("e"), age_days=2)
    document = collect(bed)
    assert len(document.removals) == 4
    assert is_whole(bed, 5)
    assert len(bed.blobs()) == 1


def test_a_graph_of_a_newer_version_stops_freeing_and_is_named(bed: StoreBed) -> None:
    bed.add(1, blob("a"))
    bed.add(2, blob("b"), age_days=2)
    bed.age_blobs()
    newer = bed.paths(2).values
    newer.write_bytes(b"jgr-graph-9\n" + newer.read_bytes()[12:])
    document = collect(bed)
    assert (len(document.removals), document.blobs, len(bed.blobs())) == (1, 0, 2)
    (note,) = document.notes
    assert note.startswith(f"no blob is freed: {newer}")
    assert note.endswith(f"or move away: {newer.parent}")
    assert collect(bed, dry_run=True).notes == [note]  # what doctor asks for


def test_a_run_that_cannot_be_moved_is_named_and_the_others_go(bed: StoreBed) -> None:
    bed.add(1)
    bed.add(2)
    real = Trash.remove_results

    async def go() -> GcDocument:
        async with bed.service() as service:

            def refuse(run: str, reason: str, now_s: float) -> None:
                if run == run_id(1):
                    raise StoreError(f"cannot move {bed.paths(1).values} away: Operation not permitted")
                real(service.result_collector._trash, run, reason, now_s)

            service.result_collector._trash.remove_results = refuse
            return await service.result_collector.collect(OLD)

    document = asyncio.run(go())
    assert os.listdir(bed.paths(2).folder) == ["manifest.json"]
    assert [str(bed.paths(1).values) in note for note in document.notes] == [True]
    collect(bed, RetentionPolicy())  # the next time
    assert os.listdir(bed.paths(1).folder) == ["manifest.json"]


def test_a_linked_run_is_not_followed(bed: StoreBed, tmp_path: Path) -> None:
    bed.add(1)
    elsewhere = tmp_path / "elsewhere"
    bed.paths(1).folder.rename(elsewhere)
    bed.paths(1).folder.symlink_to(elsewhere)
    document = collect(bed)
    assert document.removals == []
    assert (elsewhere / "values.graph").exists()


def test_a_store_that_cannot_be_read_is_said(bed: StoreBed) -> None:
    bed.add(1)
    (bed.store / "runs").rename(bed.store / "elsewhere")
    (bed.store / "runs").write_text("no folder")
    with pytest.raises(StoreError, match=r"cannot list .*runs: Not a directory"):
        collect(bed)


def test_the_document_is_json(bed: StoreBed) -> None:
    bed.add(1)
    document = msgspec.json.decode(msgspec.json.encode(collect(bed)))
    assert document["schema_version"] == 1
    assert document["removals"][0]["reason"] == "not used for 50 days"


def test_the_gateway_does_it_by_itself_where_limits_are_set(
    ray_bed: RayBed, tmp_path: Path, until: Callable[..., None]
) -> None:
    bed = StoreBed(tmp_path)
    bed.add(1, blob("a"))
    bed.add(2, age_days=2)
    bed.age_blobs()
    gateway = GatewayBed(ray_bed, tmp_path, retention=OLD, gc_interval_s=10.0, ledger=str(tmp_path / "ledger.sqlite"))
    try:
        assert gateway.deploy().ok
        until(lambda: not bed.blobs(), "the old run's blob to be freed")
        with gateway.rest() as client:
            assert client.run(run_id(1)).collected_because == "not used for 50 days"
            assert client.run(run_id(2)).collected_at is None
            assert client.collect(dry_run=True, older_than_s=86400).removals[0].run == run_id(2)
            assert gone(client.collect(older_than_s=86400)) == [run_id(2)]
            assert not client.collect(keep=0).has_limits  # 0: no limit
    finally:
        gateway.end()
