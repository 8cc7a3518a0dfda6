"""The page of a run whose cluster is gone: all that its folder on the store tells, and its files, but nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from server_bed import API, ServerBed

from jupyter_gpu_release.client.home import HomePaths
from jupyter_gpu_release.gateway.runs.manifests import manifest_of
from jupyter_gpu_release.protocol.lineage import UsedInput
from jupyter_gpu_release.protocol.runs import GpuUse, Outcome, ResourceAsk, RunRequest, RunView
from jupyter_gpu_release.store.layout import RunPaths
from jupyter_gpu_release.store.run_folders import create_run_folder, write_manifest

_OLD, _RUN, _LIVE = "20261122-010203-abcdef01", "20261123-010203-abcdef01", "20261123-020203-abcdef01"


@pytest.fixture(scope="module")
def paths(server: ServerBed) -> RunPaths:
    """One run that is over, and one that its cluster took with it."""
    store = HomePaths(server.folder / "gpu-home").store
    request = RunRequest(
        _RUN,
        "s",
        ResourceAsk(gpus=2, ranks=2),
        b"",
        code="fit(model)",
        timeout_s=3600.0,
        detach=True,
        is_gang=True,
        used=[UsedInput("model", "Net", 12, run=_OLD)],
    )
    use = GpuUse(mean_utilization=0.5, utilization=[0, 90, None, 70], memory=[1, 2, 3, 4], span_s=0.5, since=1000.5)
    outcome = Outcome("ok", started_s=1001.0, ended_s=1003.0, gpu_use=use)
    view = RunView(
        _RUN,
        "ada",
        "succeeded",
        gpus=2,
        submitted_at=990.0,
        granted_at=1000.0,
        running_at=1001.0,
        gone_at=1003.5,
        finished_at=1004.0,
        name="fit",
        notebook=str(server.folder / "notebooks" / "a.ipynb"),
        cell="cell-1",
    )
    found = create_run_folder(store, _RUN)
    write_manifest(found, manifest_of(view, outcome, request), durable=False)
    live = RunView(_LIVE, "ada", "running", submitted_at=2000.0, granted_at=2001.0)
    write_manifest(create_run_folder(store, _LIVE), manifest_of(live, None, request), durable=False)
    return found


def test_its_folder_tells_everything_without_a_cluster(server: ServerBed, paths: RunPaths) -> None:
    page = server.get(f"runs/{_RUN}")
    assert page["code"] == "fit(model)"
    assert page["options"] == {"gpus": "2", "ranks": "2", "timeout": "1 h", "detach": ""}
    assert (page["started_at"], page["ended_at"], page["run"]["gone_at"]) == (1001.0, 1003.0, 1003.5)
    assert page["gpu_use"]["utilization"] == [0, 90, None, 70]
    assert [(link["name"], link["source"]) for link in page["links"]] == [("model", _OLD)]
    assert page["is_cluster_known"] is False
    states = [(row["run"], row["state"]) for row in server.get("runs")["runs"]]
    assert [each for each in states if each[0] in (_LIVE, _RUN)] == [(_LIVE, "lost"), (_RUN, "succeeded")]
    assert server.http.get(f"{API}/runs/{_OLD}").status_code == 404


@pytest.mark.usefixtures("paths")
def test_a_notebook_is_told_its_cells_runs_without_a_cluster(server: ServerBed) -> None:
    (row,) = server.get("cells", notebook="a.ipynb")["cells"]
    assert (row["cell"], row["run"], row["ended_at"]) == ("cell-1", _RUN, 1003.5)
    assert server.get("cells", notebook="sub/a.ipynb")["cells"] == []


def test_files_are_fetched_and_nothing_behind_a_link(
    server: ServerBed, paths: RunPaths, tmp_path: Path, until: Callable[[Callable[[], object], str], None]
) -> None:
    content = bytes(range(256)) * 4096
    (paths.files / "checkpoints").mkdir()
    (paths.files / "checkpoints" / "ä best.bin").write_bytes(content)
    secret = tmp_path / "secret"
    secret.write_text("not of this run")
    (paths.files / "link").symlink_to(secret)
    (paths.files / "folder").symlink_to(tmp_path)
    until(lambda: server.get(f"runs/{_RUN}")["files"], "its folder to be listed anew")
    page = server.get(f"runs/{_RUN}")
    assert page["files"] == [{"path": "checkpoints/ä best.bin", "bytes": len(content)}]
    answer = server.http.get(f"{API}/runs/{_RUN}/files/checkpoints/ä best.bin")
    assert (answer.status_code, answer.content) == (200, content)
    assert answer.headers["content-disposition"].startswith("attachment;")
    assert answer.headers["content-type"] == "application/octet-stream"
    for path in ("link", "folder/secret", "checkpoints", "..%2fmanifest.json", "checkpoints/..%2f..%2fmanifest.json"):
        assert server.http.get(f"{API}/runs/{_RUN}/files/{path}").status_code == 404, path
