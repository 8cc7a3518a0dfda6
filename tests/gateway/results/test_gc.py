"""Collecting on a real store with a real ledger: what goes, what stays, what a crash leaves."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import select
from starlette.requests import Request
from store_bed import DAY_S, OLD, StoreBed, blob, collect, gone, is_whole, run_id

from jupyter_gpu_release.errors import ConflictError, StoreError
from jupyter_gpu_release.gateway.api.handlers import collect_runs
from jupyter_gpu_release.gateway.auth.permissions import Caller
from jupyter_gpu_release.gateway.db import database, lineage, retention, schema
from jupyter_gpu_release.gateway.runs.sessions import Session
from jupyter_gpu_release.protocol.admin import GcDocument, StudyRow
from jupyter_gpu_release.protocol.config import RetentionPolicy
from jupyter_gpu_release.protocol.lineage import CacheUse
from jupyter_gpu_release.protocol.runs import ResourceAsk, RunRequest, RunView
from jupyter_gpu_release.store.graph_file import open_graph, write_graph
from jupyter_gpu_release.store.run_folders import read_manifest
from jupyter_gpu_release.store.saved_kernels import saved_kernel_path
from jupyter_gpu_release.store.studies import list_studies, remove_study, study_path

MIB = 1 << 20


@pytest.fixture
def bed(tmp_path: Path) -> StoreBed:
    return StoreBed(tmp_path)


def test_old_results_go_and_what_only_they_used(bed: StoreBed) -> None:
    old, young = bed.add(1, blob("a"), blob("b")), bed.add(2, blob("b"), age_days=2)
    bed.age_blobs()
    document = collect(bed)
    assert gone(document) == [old]
    assert MIB <= document.removals[0].bytes < 2 * MIB  # the other blob is still used
    assert (document.blobs, MIB <= document.freed_bytes < 2 * MIB) == (1, True)
    assert os.listdir(bed.paths(1).folder) == ["manifest.json"]
    assert read_manifest(bed.paths(1))["collected_because"] == "not used for 50 days"
    assert is_whole(bed, 2)
    assert young not in gone(document)
    assert gone(collect(bed)) == []


def test_what_the_ledger_knows_of_results_goes_with_them(bed: StoreBed) -> None:
    old, young = bed.add(1), bed.add(2, age_days=2)
    engine = database.open_ledger(bed.folder / "ledger.sqlite")
    tables = (schema.removals, schema.uses, schema.cache_keys, schema.cache_uses)
    with engine.begin() as link:
        for run in (old, young):
            retention.put_load(link, run, 1.0)
            asked = RunRequest(run, "s", ResourceAsk(), b"", cache_key="k")
            lineage.put_key(link, RunView(run, "ann", "succeeded"), asked, "packages")
            lineage.put_use(link, run, CacheUse())
    collect(bed)
    with engine.connect() as link:
        left = [[row.run for row in link.execute(select(table.c.run))] for table in tables]
    engine.dispose()
    assert left == [[], [young], [young], [young]]


def test_the_run_says_so_afterwards(bed: StoreBed) -> None:
    run = bed.add(1)

    async def go() -> None:
        async with bed.service() as service:
            await service.result_collector.collect(OLD)
        async with bed.service() as service:
            view = service.runs.find(run).view
            assert (view.collected_because, view.state) == ("not used for 50 days", "succeeded")
            assert view.collected_at > time.time() - 60
            assert [value.name for value in view.outcome.results] == ["x"]
            assert not service.manifests.has_values(view.user, run, view.outcome)  # so nothing reuses them
            with pytest.raises(StoreError, match=rf"results of run {run} were removed .*not used for 50 days"):
                open_graph(bed.paths(1).folder / view.outcome.values.file, view.outcome.values.digest)
            with pytest.raises(ConflictError, match="were removed already: not used for 50 days"):
                await service.pin(Caller("ann"), run, pinned=True)

    asyncio.run(go())


@pytest.mark.parametrize("pinned", [True, False])
def test_a_pin_is_in_the_manifest(bed: StoreBed, pinned: bool) -> None:
    run = bed.add(1, pinned=not pinned)
    before = read_manifest(bed.paths(1))

    async def go() -> None:
        async with bed.service() as service:
            await service.pin(Caller("ann"), run, pinned=pinned)
            await service.manifests.flush()

    asyncio.run(go())
    assert read_manifest(bed.paths(1)) == before | {"pinned": pinned}


def test_a_dry_run_says_the_same_and_changes_nothing(bed: StoreBed) -> None:
    bed.add(1, blob("a"))
    bed.add(2, blob("b"), age_days=2)
    bed.age_blobs()
    dry = collect(bed, dry_run=True)
    assert is_whole(bed, 1)
    done = collect(bed)
    assert not bed.paths(1).values.exists()
    assert (dry.removals, dry.blobs, dry.freed_bytes) == (done.removals, done.blobs, done.freed_bytes)


def test_a_dry_run_lists_what_is_stored_to_its_owners(bed: StoreBed) -> None:
    old, young = bed.add(1, blob("a"), pinned=True), bed.add(2, blob("a"), age_days=2, user="bob")

    async def go(user: str | None, *, dry_run: bool) -> GcDocument:
        async with bed.service() as service:
            return await service.result_collector.collect(RetentionPolicy(), user=user, dry_run=dry_run)

    everybody = asyncio.run(go(None, dry_run=True)).stored
    assert [(row.run, row.user) for row in everybody] == [(old, "ann"), (young, "bob")]
    assert all(MIB <= row.bytes < 2 * MIB for row in everybody)
    assert asyncio.run(go("bob", dry_run=True)).stored == everybody[1:]
    assert asyncio.run(go(None, dry_run=False)).stored == []


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("asked", "caller", "expected"),
    [
        ("", Caller("root", "admin"), [1, 2]),
        ("keep=0", Caller("root", "admin"), []),  # no limit at all
        ("older_than_s=5000000", Caller("root", "admin"), []),
        ("quota_bytes=1&dry_run=true", Caller("root", "admin"), [1, 2]),
        ("", Caller("bob", "user"), [2]),
    ],
)
async def test_limits_that_a_request_names_replace_those_of_the_settings(
    bed: StoreBed, asked: str, caller: Caller, expected: list[int]
) -> None:
    bed.config = msgspec.structs.replace(bed.config, retention=OLD)
    bed.add(1)
    bed.add(2, user="bob")
    scope = {"type": "http", "method": "POST", "path": "/", "headers": [], "query_string": asked.encode()}
    async with bed.service() as service:
        document = await collect_runs(service, caller, Request(scope))
    assert gone(document) == list(map(run_id, expected))
    assert is_whole(bed, 1) is (1 not in expected or "dry_run" in asked)


def test_without_limits_only_garbage_goes(bed: StoreBed) -> None:
    bed.add(1, blob("a"))
    bed.add(2, blob("b"))
    bed.paths(2).values.unlink()
    bed.age_blobs()
    document = collect(bed, RetentionPolicy())
    assert (document.has_limits, document.removals, document.blobs) == (False, [], 1)
    assert is_whole(bed, 1)


def test_pinned_live_and_held_runs_stay(bed: StoreBed) -> None:
    bed.add(1, pinned=True)
    bed.add(2, state="running")
    bed.add(3, session="a kernel")
    held, free = bed.add(4), bed.add(5)

    async def go() -> tuple[GcDocument, GcDocument]:
        async with bed.service() as service:
            for name in ("a kernel", "another"):
                service.sessions._sessions[name] = Session(name, "ann")
            service.holds.hold_results("another", held)
        async with bed.service() as service:  # holds survive the gateway's death
            for name in ("a kernel", "another"):
                service.sessions._sessions[name] = Session(name, "ann")
            first = await service.result_collector.collect(OLD)
            service.sessions._sessions.clear()
            second = await service.result_collector.collect(RetentionPolicy(keep=1))
        return first, second

    first, second = asyncio.run(go())
    assert gone(first) == [free]
    assert first.kept == {"pinned": 1, "not over": 1, "held by a connected kernel": 2}
    assert gone(second) == [run_id(3)]  # run 4 was loaded within the hour


def test_who_attaches_while_it_is_decided_keeps_the_results(bed: StoreBed) -> None:
    first, second = bed.add(1), bed.add(2)

    async def go() -> GcDocument:
        async with bed.service() as service:
            service.sessions._sessions["s"] = Session("s", "ann")
            removing = service.result_collector._remove

            async def attach_meanwhile(removal: object, work: object) -> None:
                service.holds.hold_results("s", second)
                await removing(removal, work)

            service.result_collector._remove = attach_meanwhile
            return await service.result_collector.collect(OLD)

    assert gone(asyncio.run(go())) == [first]
    assert is_whole(bed, 2)


def test_a_user_collects_the_own_runs_only(bed: StoreBed) -> None:
    mine, _ = bed.add(1), bed.add(2, user="bob")
    assert gone(collect(bed, user="ann")) == [mine]
    assert is_whole(bed, 2)


def test_a_blob_that_was_just_put_stays(bed: StoreBed) -> None:
    bed.add(1, blob("a"))
    bed.age_blobs()
    bed.add(2, blob("c"), age_days=0)
    bed.paths(2).values.unlink()  # its graph is not written yet
    collect(bed, RetentionPolicy())
    assert len(bed.blobs()) == 2


def test_blobs_of_a_run_that_has_been_saving_for_days_stay(bed: StoreBed) -> None:
    bed.add(1, blob("a"), state="persisting", gone_at=time.time() - 3 * DAY_S)
    bed.add(2, state="persisting", gone_at=time.time())
    bed.paths(1).values.unlink()
    bed.age_blobs(days=2.5)  # put half a day after its save began

    async def go() -> tuple[int, int]:
        async with bed.service() as service:
            with service.engine.connect() as connection:
                for stored in database.live_runs(connection):
                    service.runs.adopt(stored)
            saving = await service.result_collector.collect(RetentionPolicy())
        over = await bed.collect(RetentionPolicy())
        return saving.blobs, over.blobs

    assert asyncio.run(go()) == (0, 1)


def test_orphans_go_and_strangers_stay(bed: StoreBed) -> None:
    bed.add(1)
    for number in (7, 8, 9):
        folder = bed.paths(number).folder
        (folder / "files").mkdir(parents=True)
        (folder / "inputs.graph").write_bytes(b"half")
    (bed.paths(9).folder / "manifest.json").write_text("{}")  # some gateway accepted it
    old_s = time.time() - DAY_S
    for path in [*bed.paths(7).folder.rglob("*"), bed.paths(7).folder, *bed.paths(9).folder.rglob("*")]:
        os.utime(path, (old_s, old_s))
    document = collect(bed, RetentionPolicy())
    assert document.orphans == [run_id(7)]
    assert document.freed_bytes > 0
    assert not bed.paths(7).folder.exists()
    assert bed.paths(8).folder.exists()
    assert bed.paths(9).folder.exists()
    assert any("1 runs on the store are not in this gateway's ledger" in note for note in document.notes)


@pytest.mark.asyncio
async def test_each_blob_counts_once_for_each_user(bed: StoreBed) -> None:
    bed.add(1, blob("a"), blob("b"))
    bed.add(2, blob("b"))
    bed.add(3, blob("b"), user="bob")
    async with bed.service() as service, asyncio.timeout(60):
        while await service.usage.stored_bytes("ann") is None:
            await asyncio.sleep(0.01)
        stored = [await service.usage.stored_bytes(user) for user in ("ann", "bob", "eve")]
    assert [0 if size is None else size >> 20 for size in stored] == [2, 1, 0]


def test_variables_of_kernels_that_were_ended_long_ago_go(bed: StoreBed) -> None:
    bed.add(1, age_days=1)
    path = saved_kernel_path(bed.store, "kernel")
    path.write_bytes(b"12345")
    assert collect(bed).freed_bytes == 0
    os.utime(path, (0, 0))
    assert collect(bed, dry_run=True).freed_bytes == 5
    assert path.exists()
    assert collect(bed).freed_bytes == 5
    assert not path.exists()


def test_temp_files_of_dead_writers_go(bed: StoreBed) -> None:
    bed.add(1)
    old, new = bed.paths(1).folder / ".values.graph.aa.tmp", bed.paths(1).folder / ".values.graph.bb.tmp"
    for path, age_s in ((old, DAY_S), (new, 60)):
        path.write_bytes(b"half")
        os.utime(path, (time.time() - age_s,) * 2)
    collect(bed, RetentionPolicy())
    assert (old.exists(), new.exists()) == (False, True)


def test_a_removal_that_a_crash_interrupted_is_finished(bed: StoreBed) -> None:
    run = bed.add(1, blob("a"))

    async def go() -> None:
        async with bed.service() as service:

            def killed(*_: object) -> None:
                raise SystemExit("killed")

            service.result_collector._trash.remove_results = killed
            with pytest.raises(SystemExit):
                await service.result_collector.collect(OLD)
        assert bed.paths(1).values.exists()
        async with bed.service() as service:
            assert service.runs.find(run).view.collected_because  # marked: nobody looks for it any more
            await service.result_collector.tidy(RetentionPolicy())
            with service.engine.connect() as connection:
                assert retention.unfinished_removals(connection) == []
        assert os.listdir(bed.paths(1).folder) == ["manifest.json"]

    asyncio.run(go())


def test_whatever_is_pinned_while_it_is_decided_stays(bed: StoreBed) -> None:
    first, second = bed.add(1), bed.add(2)

    async def go() -> GcDocument:
        async with bed.service() as service:
            removing = service.result_collector._remove

            async def pin_meanwhile(removal: object, work: object) -> None:
                record = service.runs.find(second)
                assert record is not None
                service.runs.change(record, pinned=True)
                await removing(removal, work)

            service.result_collector._remove = pin_meanwhile
            return await service.result_collector.collect(OLD)

    assert gone(asyncio.run(go())) == [first]
    assert is_whole(bed, 2)


def _left_by_the_dead(bed: StoreBed) -> list[Path]:
    """An old folder of a run that nobody accepted, half a file beside a run, half an import."""
    bed.add(1, age_days=1)
    orphan, half = bed.paths(7).folder, bed.paths(1).folder / ".values.graph.aa.tmp"
    imported = bed.store / "incoming" / "half"
    for folder in (orphan, imported):
        folder.mkdir(parents=True)
        (folder / "inputs.graph").write_bytes(b"half")
    half.write_bytes(b"half")
    old_s = time.time() - DAY_S
    for path in (half, *orphan.iterdir(), orphan, *imported.iterdir(), imported):
        os.utime(path, (old_s, old_s))
    return [orphan, half, imported]


def test_a_dry_run_names_what_the_dead_left_and_touches_none_of_it(bed: StoreBed) -> None:
    left = _left_by_the_dead(bed)
    dry = collect(bed, RetentionPolicy(), dry_run=True)
    assert (dry.orphans, dry.dry_run) == ([run_id(7)], True)
    assert [path.exists() for path in left] == [True] * 3
    done = collect(bed, RetentionPolicy())
    assert (done.orphans, done.freed_bytes) == (dry.orphans, dry.freed_bytes)
    assert [path.exists() for path in left] == [False] * 3


def test_an_import_that_goes_on_and_what_a_link_leads_to_stay(bed: StoreBed, tmp_path: Path) -> None:
    incoming, elsewhere = bed.store / "incoming", tmp_path / "elsewhere"
    for folder in (incoming / "young", elsewhere):
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(b"x")
    (incoming / "linked").symlink_to(elsewhere)
    bed.add(1, age_days=1)
    for path in (elsewhere / "file", elsewhere):
        os.utime(path, (0, 0))
    collect(bed, RetentionPolicy())
    assert (incoming / "young" / "file").exists()
    assert (elsewhere / "file").exists()


def test_blobs_of_what_the_dead_left_are_counted_by_a_dry_run(bed: StoreBed) -> None:
    """The graph of a run that nobody accepted keeps no blob."""
    bed.add(1, age_days=1)
    run = bed.paths(2).folder
    run.mkdir()
    write_graph(run / "values.graph", b"stream", [blob("a")], durable=False)
    bed.age_blobs()
    for path in (*run.rglob("*"), run):
        os.utime(path, (time.time() - DAY_S,) * 2)
    dry = collect(bed, RetentionPolicy(), dry_run=True)
    assert (dry.orphans, dry.blobs, len(bed.blobs())) == ([run_id(2)], 1, 1)
    done = collect(bed, RetentionPolicy())
    assert (done.blobs, done.freed_bytes, bed.blobs()) == (1, dry.freed_bytes, set())


def test_users_with_stores_of_their_own_are_collected_together(tmp_path: Path) -> None:
    """One ledger, a store for each: what is not of a store is not looked for there."""
    shared, own = StoreBed(tmp_path), StoreBed(tmp_path, tmp_path / "own")
    for bed, number in ((shared, 1), (own, 2)):
        bed.add(number, blob("ab"[number - 1]))
        bed.age_blobs()
    kept = own.add(3, blob("c"), age_days=2)

    async def go(*, dry_run: bool = False) -> tuple[GcDocument, dict[str, int]]:
        async with shared.service() as service:
            service.result_collector._list_stores = lambda: [own.store]
            document = await service.result_collector.collect(OLD, dry_run=dry_run)
            return document, await service.result_collector.used_bytes()

    dry, before = asyncio.run(go(dry_run=True))
    done, after = asyncio.run(go())
    assert sorted(gone(done)) == [run_id(1), run_id(2)]
    assert (done.removals, done.blobs, done.freed_bytes) == (dry.removals, dry.blobs, dry.freed_bytes)
    assert done.blobs == 2
    assert done.freed_bytes >= 2 * MIB
    assert (before["ann"] // MIB, after["ann"] // MIB) == (3, 1)
    assert is_whole(own, 3)
    assert kept not in gone(done)


def test_a_removal_in_a_users_own_store_that_a_crash_interrupted_is_finished_there(tmp_path: Path) -> None:
    shared, own = StoreBed(tmp_path), StoreBed(tmp_path, tmp_path / "own")
    shared.add(1, age_days=1)
    run = own.add(2)

    async def go() -> None:
        async with shared.service() as service:
            with service.engine.begin() as link:
                retention.begin_removal(link, run, "not used for 50 days", 1, time.time())
            service.result_collector._list_stores = lambda: [own.store]
            await service.result_collector.tidy(RetentionPolicy())
            with service.engine.connect() as link:
                assert retention.unfinished_removals(link) == []

    asyncio.run(go())
    assert not own.paths(2).values.exists()
    assert is_whole(shared, 1)


def test_nothing_is_collected_while_it_is_paused(bed: StoreBed) -> None:
    run = bed.add(1)

    async def go() -> list[str]:
        async with bed.service() as service:
            async with service.result_collector.paused():
                collecting = asyncio.ensure_future(service.result_collector.collect(OLD))
                done, _ = await asyncio.wait([collecting], timeout=0.2)
                assert not done
                assert bed.paths(1).values.exists()
            return gone(await collecting)

    assert asyncio.run(go()) == [run]


def test_a_store_that_cannot_be_read_ends_no_gateway(bed: StoreBed, caplog: pytest.LogCaptureFixture) -> None:
    """The gateway's own collecting is done again later."""
    bed.add(1)
    (bed.store / "runs").rename(bed.store / "elsewhere")
    (bed.store / "runs").write_text("no folder")

    async def go() -> None:
        async with bed.service() as service:
            await service.result_collector.tidy(OLD)

    asyncio.run(go())
    assert "collecting: cannot list" in caplog.text


def _study(bed: StoreBed, name: str, age_days: float = 50, user: str = "ann") -> Path:
    path = study_path(bed.store, user, name)
    (bed.store / "runs").mkdir(parents=True, exist_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("12345")
    at_s = time.time() - age_days * DAY_S
    os.utime(path, (at_s, at_s))
    return path


def test_a_study_of_a_sweep_goes_by_age_like_results(bed: StoreBed) -> None:
    """With what a lock has left; each user removes their own, and other limits are none of its."""
    bed.add(1, age_days=2)
    old, young, others = _study(bed, "old/one"), _study(bed, "young", 2), _study(bed, "of bob", user="bob")
    lock = old.with_name(f"{old.name}.lock")
    lock.symlink_to(old)
    stranger = young.with_name("notes.txt")
    stranger.touch()
    assert collect(bed, RetentionPolicy(keep=1, quota_bytes=1)).studies == []
    for dry_run in (True, False):
        document = collect(bed, user="ann", dry_run=dry_run)
        assert document.studies == [StudyRow("old/one", "ann", "not used for 50 days", 5)]
        assert document.freed_bytes == 5
        assert old.exists() is os.path.lexists(lock) is dry_run
    assert [study.name for study in collect(bed).studies] == ["of bob"]
    assert (young.exists(), stranger.exists(), others.parent.exists()) == (True, True, False)


def test_no_study_goes_while_its_user_has_a_sweep_under_way(bed: StoreBed) -> None:
    """Its one trial may run for longer than results stay."""
    study, others = _study(bed, "long"), _study(bed, "short", user="bob")
    bed.add(1, state="running", sweep=run_id(9))

    async def go() -> GcDocument:
        async with bed.service() as service:
            with service.engine.connect() as connection:
                for stored in database.live_runs(connection):
                    service.runs.adopt(stored)
            return await service.result_collector.collect(OLD)

    assert [row.user for row in asyncio.run(go()).studies] == ["bob"]
    assert study.exists()
    assert not others.exists()


def test_a_study_that_was_used_since_the_look_and_one_behind_a_link_stay(bed: StoreBed) -> None:
    study = _study(bed, "used")
    (found,) = list_studies(bed.store)
    study.touch()
    assert not remove_study(found)
    elsewhere = bed.folder / "elsewhere"
    study.parent.rename(elsewhere)
    study.parent.symlink_to(elsewhere)
    assert list_studies(bed.store) == []
    os.utime(study, (1, 1))
    assert collect(bed).studies == []
    assert study.exists()


def test_a_study_that_cannot_be_removed_is_a_note(bed: StoreBed, monkeypatch: pytest.MonkeyPatch) -> None:
    study, other = _study(bed, "kept"), _study(bed, "gone")
    really = Path.unlink

    def unlink(path: Path, **more: bool) -> None:
        if path == study:
            raise PermissionError(13, "Permission denied")
        really(path, **more)

    monkeypatch.setattr(Path, "unlink", unlink)
    document = collect(bed)
    assert [row.name for row in document.studies] == ["gone"]
    assert "cannot remove study kept: Permission denied" in document.notes[0]
    assert not other.exists()
