"""A real cell's run, exported and imported by the command line of a real cluster."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from feeds import Reading

from jupyter_gpu_release.cli.bundles import _store
from jupyter_gpu_release.cli.main import main
from jupyter_gpu_release.client.autostart import Ready
from jupyter_gpu_release.client.discovery import find_gateway
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.protocol.cell import CellPayload
from jupyter_gpu_release.protocol.runs import ResourceAsk, RunRequest
from jupyter_gpu_release.protocol.states import new_run_id
from jupyter_gpu_release.protocol.wire import encode
from jupyter_gpu_release.store.bundle import BundleReader, incoming_folder, unpack_bundle
from jupyter_gpu_release.store.layout import RunPaths
from jupyter_gpu_release.store.run_folders import read_manifest, write_manifest

_CELL = (
    "import os\nbig = bytearray(3 << 20)\nopen(os.environ['GPU_RUN_DIR'] + '/log.txt', 'w').write('hi')\nprint('said')"
)


@contextlib.contextmanager
def _late_manifest(paths: RunPaths) -> Iterator[None]:
    """The manifest says for a while that the run is releasing: it follows the gateway's word, it does not lead it."""
    manifest = read_manifest(paths)
    del manifest["schema_version"]
    write_manifest(paths, manifest | {"state": "releasing"}, durable=False)
    later = threading.Timer(0.5, write_manifest, [paths, manifest], {"durable": False})
    later.start()
    try:
        yield
    finally:
        later.join()


@pytest.mark.slow("the first of a session starts its cluster")
@pytest.mark.parametrize("cell", [_CELL, "x = 1"], ids=["large values", "small values"])
def test_a_real_run(
    cluster: Ready,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    until: Callable[[Callable[[], object], str], None],
    cell: str,
) -> None:
    monkeypatch.setenv("JUPYTER_GPU_HOME", str(Path(cluster.connection.token_file).parent))
    monkeypatch.chdir(tmp_path)
    target = find_gateway()
    assert target is not None
    session = GatewaySession(target, f"exports {len(cell)}")
    session.connect(60.0)
    run = new_run_id()
    payload = encode(CellPayload(source=cell))
    try:
        view = Reading(session.submit(RunRequest(run, session.session_id, ResourceAsk(), payload, code=cell))).end()
        assert view.state == "succeeded", view
        paths = RunPaths.of(Path(target.store or ""), run)
        until(lambda: paths.manifest.exists() and read_manifest(paths)["state"] == "succeeded", "the run's manifest")
        with _late_manifest(paths):
            assert main(["runs", "export", run]) == 0
        other = tmp_path / "other store"
        with Path(f"{run}.jgr.tar").open("rb") as file:
            reader = BundleReader(file, run)
            assert reader.is_proved(target.token)
            folder = incoming_folder(other, unpack_bundle(other, reader))
        assert (folder / "values.graph").exists()
        assert (folder / "events.log").exists() == ("print" in cell)
        assert main(["runs", "import", f"{run}.jgr.tar"]) == 0  # it is here: nothing changes
        assert main(["gc", "--dry-run", "--older-than", "1s"]) == 0
        said = capsys.readouterr().out
        assert f"{run} is here" in said
        assert "held by a connected kernel" in said
    finally:
        session.close()


def test_a_user_who_names_the_gateway_alone_has_its_store(
    cluster: Ready, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kernels take the path that the gateway names; so do exports and doctor."""
    monkeypatch.setenv("JUPYTER_GPU_HOME", str(tmp_path / "home of a user"))
    monkeypatch.setenv("JUPYTER_GPU_URL", cluster.connection.url)
    monkeypatch.setenv("JUPYTER_GPU_TOKEN_FILE", cluster.connection.token_file)
    target = find_gateway()
    assert target is not None
    assert _store(target) == Path(cluster.connection.store)
    main(["doctor", "--json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    stores = {(found["level"], found["finding"]) for found in findings if found["check"] == "store"}
    assert ("ok", f"{cluster.connection.store} can be written and read from here") in stores
    assert {level for level, _ in stores} == {"ok"}
