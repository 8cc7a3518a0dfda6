"""Exporting from one cluster and importing into another, through gateways and the command line."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from bundle_bed import read
from ray_bed import GatewayBed, RayBed
from store_bed import OLD, StoreBed, blob, is_whole, open_values, run_id

from jupyter_gpu_release.cli.main import main
from jupyter_gpu_release.errors import ConflictError, NoSuchRunError, RequestError
from jupyter_gpu_release.gateway.api.run_imports import import_run
from jupyter_gpu_release.gateway.auth.permissions import Caller
from jupyter_gpu_release.gateway.db import database, lineage
from jupyter_gpu_release.gateway.runs.record import RunRecord
from jupyter_gpu_release.store.bundle import incoming_folder, unpack_bundle, write_bundle
from jupyter_gpu_release.store.graph_file import open_graph
from jupyter_gpu_release.store.layout import RunPaths
from jupyter_gpu_release.store.run_folders import read_manifest, write_manifest

BOB = Caller("bob")


@pytest.fixture
def here(tmp_path: Path) -> StoreBed:
    bed = StoreBed(tmp_path / "here")
    bed.add(1, blob("a"), blob("b"), name="fit", gpu_name="H100")
    return bed


@pytest.fixture
def there(tmp_path: Path) -> StoreBed:
    (tmp_path / "there").mkdir()
    return StoreBed(tmp_path / "there")


def staged(here: StoreBed, there: StoreBed, number: int = 1) -> str:
    bundle = here.folder / "b.tar"
    write_bundle(here.store, run_id(number), bundle, exported_by="ann@here", secret="s")
    return unpack_bundle(there.store, read(bundle))


def imported(there: StoreBed, name: str, caller: Caller = BOB) -> RunRecord:
    async def go() -> RunRecord:
        async with there.service() as service:
            return await import_run(service, caller, name, "ann@here")

    return asyncio.run(go())


def test_it_becomes_a_run_like_any(here: StoreBed, there: StoreBed) -> None:
    record = imported(there, staged(here, there))
    view = record.view
    assert (view.user, view.imported_from, view.name, view.state) == ("bob", "ann@here", "fit", "succeeded")
    assert (view.session, view.pinned, view.gpu_name) == ("", False, "H100")
    values = view.outcome.values
    opened = open_graph(there.paths(1).folder / values.file, values.digest, verify=True)
    assert [bytes(buffer[:1]) for buffer in opened.buffers] == [b"a", b"b"]
    manifest = read_manifest(there.paths(1))
    assert (manifest["user"], manifest["imported_from"], manifest["code"]) == ("bob", "ann@here", "x = 1")
    assert list(there.store.glob("incoming/*")) == []
    engine = database.open_ledger(there.folder / "ledger.sqlite")
    with engine.connect() as connection:
        assert lineage.facts_of(connection, view.run).code == "x = 1"
    engine.dispose()


def test_pickles_that_somebody_wrote_into_a_manifest_stay_there(here: StoreBed, there: StoreBed) -> None:
    name = staged(here, there)
    folder = incoming_folder(there.store, name)
    manifest = read_manifest(RunPaths(folder))
    error = {"ename": "E", "evalue": "e", "pickled": base64.b64encode(b"cposix\nsystem\n.").decode()}
    graph = {"stream": base64.b64encode(b"cposix\nsystem\n.").decode()}
    manifest["outcome"] |= {"error": error, "save": {"number": 1, "values": graph}}
    manifest["outcome"]["values"] |= graph
    del manifest["schema_version"]
    write_manifest(RunPaths(folder), manifest, durable=False)
    outcome = imported(there, name).view.outcome
    assert outcome is not None
    assert outcome.error is not None
    assert outcome.values is not None
    assert (outcome.error.evalue, outcome.error.pickled, outcome.frames, outcome.save) == ("e", b"", {}, None)
    assert (outcome.values.stream, bool(outcome.values.digest)) == (b"", True)


def test_it_is_not_collected_right_away(here: StoreBed, there: StoreBed) -> None:
    imported(there, staged(here, there))
    document = asyncio.run(there.collect(OLD))
    assert (document.removals, document.kept) == ([], {"used within 1 h": 1})


def test_again_changes_nothing(here: StoreBed, there: StoreBed) -> None:
    first = imported(there, staged(here, there))
    second = imported(there, staged(here, there))
    assert second.view.imported_from == first.view.imported_from
    assert second.ordinal == first.ordinal


def test_an_id_with_other_content_is_refused_and_keeps_what_is_there(here: StoreBed, there: StoreBed) -> None:
    there.add(1, blob("z"))
    with pytest.raises(ConflictError, match=f"another run {run_id(1)} here"):
        imported(there, staged(here, there))
    values = there.paths(1).values
    from jupyter_gpu_release.store.graph_file import digest_in

    assert bytes(open_graph(values, digest_in(values)).buffers[0][:1]) == b"z"


def test_another_users_run_is_refused(here: StoreBed, there: StoreBed) -> None:
    imported(there, staged(here, there), Caller("carol"))
    with pytest.raises(ConflictError, match="of another user"):
        imported(there, staged(here, there))


def test_collected_results_come_back_to_their_owner(here: StoreBed) -> None:
    bundle = here.folder / "b.tar"
    write_bundle(here.store, run_id(1), bundle, exported_by="ann@here", secret="s")
    here.age_blobs()
    asyncio.run(here.collect(OLD))
    assert here.blobs() == set()

    def again(caller: Caller) -> RunRecord:
        return imported(here, unpack_bundle(here.store, read(bundle)), caller)

    with pytest.raises(ConflictError, match="of another user"):
        again(BOB)
    assert not here.paths(1).values.exists()
    view = again(Caller("ann")).view
    assert (view.collected_at, view.collected_because, view.name, view.session) == (None, "", "fit", "old session")
    assert [bytes(buffer[:1]) for buffer in open_values(here, 1)] == [b"a", b"b"]
    manifest = read_manifest(here.paths(1))
    assert ("collected_at" in manifest, manifest["code"]) == (False, "x = 1")
    assert '"run.restore"' in (here.folder / "log" / "audit.jsonl").read_text()
    document = asyncio.run(here.collect(OLD))  # what an earlier removal began is not gone on with
    assert (document.removals, document.kept, is_whole(here, 1)) == ([], {"used within 1 h": 1}, True)


def test_a_gateway_that_died_between_rename_and_commit(here: StoreBed, there: StoreBed) -> None:
    name = staged(here, there)

    async def die() -> None:
        async with there.service() as service:

            def killed(*_: object, **__: object) -> None:
                raise SystemExit("killed")

            service.ledger.write = killed  # type: ignore[method-assign]
            with pytest.raises(SystemExit):
                await import_run(service, BOB, name, "ann@here")
            assert service.runs.find(run_id(1)) is None  # not in any list

    asyncio.run(die())
    assert imported(there, staged(here, there)).view.user == "bob"


def test_a_folder_of_an_unknown_run_is_not_overwritten(here: StoreBed, there: StoreBed) -> None:
    there.paths(1).files.mkdir(parents=True)
    write_manifest(there.paths(1), {"run": run_id(1), "mine": True}, durable=False)
    with pytest.raises(ConflictError, match="is there already and holds another run"):
        imported(there, staged(here, there))
    assert read_manifest(there.paths(1))["mine"] is True


def test_what_was_not_unpacked_by_us(here: StoreBed, there: StoreBed) -> None:
    with pytest.raises(NoSuchRunError):
        imported(there, "0" * 16)
    for name in ("../runs", "x", ""):
        with pytest.raises(RequestError, match="is not the name of an import"):
            imported(there, name)
    name = staged(here, there)
    folder = incoming_folder(there.store, name)
    manifest = msgspec.json.decode((folder / "manifest.json").read_bytes())
    for change in (
        {"state": "running"},
        {"state": "dancing"},
        {"run": "../x"},
        {"submitted_at": "yesterday"},
        {"gpus": 2**63},
        {"inputs": [{"name": "x", "type": "y", "bytes": 2**90}]},
    ):
        (folder / "manifest.json").write_bytes(msgspec.json.encode(manifest | change))
        with pytest.raises(RequestError):
            imported(there, name)
    assert not there.paths(1).folder.exists()


# ------------------------------------------------------------------------------------ the command line
@pytest.fixture
def exporting(ray_bed: RayBed, here: StoreBed) -> Iterator[GatewayBed]:
    made = GatewayBed(ray_bed, here.folder, ledger=str(here.folder / "ledger.sqlite"))
    Path(made.config.store).mkdir(exist_ok=True)
    assert made.deploy().ok
    yield made
    made.end()


def use(gateway: GatewayBed, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("URL", gateway.url), ("TOKEN", gateway.token), ("STORE", gateway.config.store)):
        monkeypatch.setenv(f"JUPYTER_GPU_{name}", value)


@pytest.mark.thorough
def test_from_the_command_line(
    exporting: GatewayBed,
    gateway: GatewayBed,
    here: StoreBed,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from jupyter_gpu_release.host.accounts import own_name

    mine = here.add(2, blob("m"), user=own_name())
    monkeypatch.chdir(tmp_path)
    use(exporting, monkeypatch)
    assert main(["runs", "export", run_id(1)]) == 1
    assert "belongs to ann: its values are the owner's" in capsys.readouterr().err
    assert main(["runs", "export", mine]) == 0
    assert f"{mine} is in {mine}.jgr.tar" in capsys.readouterr().out
    assert main(["runs", "export", mine]) == 2
    assert "is there already" in capsys.readouterr().err
    assert main(["runs", "import", f"{mine}.jgr.tar"]) == 0  # it is here, and that is said
    assert f"{mine} is here" in capsys.readouterr().out

    use(gateway, monkeypatch)
    assert main(["runs", "import", f"{mine}.jgr.tar"]) == 2
    refusal = capsys.readouterr().err
    assert "was not exported here by you" in refusal
    assert "runs import --trust" in refusal
    assert main(["runs", "import", "--trust", f"{mine}.jgr.tar"]) == 0
    assert "trusted because you said so" in capsys.readouterr().out
    assert main(["runs", "--limit", "1000"]) == 0  # others of the shared gateway's are newer
    (line,) = [line for line in capsys.readouterr().out.splitlines() if mine in line]
    assert "imported" in line
    assert main(["runs", "show", mine]) == 0
    assert f"exported by {own_name()}@" in capsys.readouterr().out
    with gateway.rest() as client:
        assert client.view(mine).outcome.values.digest
    assert [os.listdir(Path(bed.config.store) / "incoming") for bed in (exporting, gateway)] == [[], []]


def test_files_that_are_none(
    gateway: GatewayBed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(gateway, monkeypatch)
    assert main(["runs", "import", str(tmp_path / "missing.tar")]) == 2
    assert "missing.tar: No such file" in capsys.readouterr().err
    (tmp_path / "x.tar").write_bytes(b"x" * 2000)
    assert main(["runs", "import", str(tmp_path / "x.tar")]) == 1
    assert "x.tar is not imported: it is no tar of a run" in capsys.readouterr().err
