"""``jupyter gpu gc``: which limits are asked for, what is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from jupyter_gpu_release.cli.admin import gc
from jupyter_gpu_release.cli.main import main
from jupyter_gpu_release.client.home import HomePaths
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.errors import OptionError
from jupyter_gpu_release.local_cluster.settings import gateway_config
from jupyter_gpu_release.protocol.admin import GcDocument, RemovalRow, StoredRow, StudyRow
from jupyter_gpu_release.protocol.config import GatewayConfig, RetentionPolicy

RUN = "20260101-000003-00000003"


class Answering(GatewayClient):
    def __init__(self, document: GcDocument) -> None:
        super().__init__("http://127.0.0.1:9", "t")
        self.document = document
        self.asked: list[tuple[bool, dict[str, int]]] = []

    def collect(self, *, dry_run: bool = False, **limits: int) -> GcDocument:
        self.asked.append((dry_run, limits))
        return self.document


def answering(monkeypatch: pytest.MonkeyPatch, document: GcDocument) -> Answering:
    gateway = Answering(document)
    monkeypatch.setattr(gc, "open_gateway", lambda timeout_s: gateway)
    return gateway


def test_limits_are_read_and_removals_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    row = RemovalRow(RUN, "ann", "not used for 50 days", 3 << 30)
    study = StudyRow("widths", "bob", "not used for 40 days", 5)
    document = GcDocument(1, True, True, [row], 4 << 30, 2, ["o"], {"pinned": 3}, ["a note"], ["abcd"], [study])
    gateway = answering(monkeypatch, document)
    assert main(["gc", "--dry-run", "--older-than", "30d", "--keep", "20", "--quota", "50GiB"]) == 0
    assert gateway.asked == [(True, {"older_than_s": 30 * 86400, "keep": 20, "quota_bytes": 50 << 30})]
    said = capsys.readouterr().out
    assert f"{RUN}  ann   3 GiB  not used for 50 days" in said
    assert "study widths              bob   5 B    not used for 40 days" in said
    assert "results of 1 run, 2 unused blobs, 1 folder of submissions that never ran, 1 study of a sweep, " in said
    assert "1 unused environment would be removed: 4 GiB would be freed" in said
    assert "3 pinned" in said
    assert "· a note" in said


def test_without_limits_it_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    gateway = answering(monkeypatch, GcDocument(1, False, False, [], 0, 0))
    assert main(["gc"]) == 0
    assert gateway.asked == [(False, {})]
    assert "No limits are set" in capsys.readouterr().out
    assert main(["gc", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["has_limits"] is False


def test_a_dry_run_tells_how_much_is_whose(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    stored = [
        StoredRow("run-1", "ann", "a.ipynb", 1 << 30),
        StoredRow("run-2", "bob", "", 5 << 30),
        StoredRow("run-3", "ann", "b.ipynb", 7 << 30),
        StoredRow("run-4", "ann", "a.ipynb", 2 << 30),
    ]
    answering(monkeypatch, GcDocument(1, True, False, [], 0, 0, stored=stored))
    assert main(["gc", "--dry-run"]) == 0
    table = [line.split() for line in capsys.readouterr().out.partition("\n\n")[0].splitlines()[2:]]
    assert [" ".join(row) for row in table] == [
        "ann all 3 10 GiB",
        "ann b.ipynb 1 7 GiB run-3 (7 GiB)",
        "ann a.ipynb 2 3 GiB run-4 (2 GiB)",
        "bob all 1 5 GiB",
        "bob (no notebook) 1 5 GiB run-2 (5 GiB)",
    ]


@pytest.mark.parametrize(
    "words", [["--older-than", "soon"], ["--older-than", "0s"], ["--keep", "0"], ["--quota", "lots"], ["--quota", "0"]]
)
def test_limits_that_are_none(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gc", *words]) == 2
    assert words[0] in capsys.readouterr().err


def test_without_a_cluster_nothing_is_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JUPYTER_GPU_HOME", str(tmp_path))
    assert main(["gc"]) == 1
    said = capsys.readouterr().err
    assert "nobody knows which results are pinned or in use, so nothing is removed" in said
    assert "jupyter gpu start" in said


def test_the_operators_limits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def config() -> GatewayConfig:
        return gateway_config(HomePaths(tmp_path), store="", runtime="", ray_address="")

    assert config().retention == RetentionPolicy()
    for name, value in (("OLDER_THAN", "30d"), ("KEEP", "20"), ("QUOTA", "50GiB"), ("EVERY", "2h")):
        monkeypatch.setenv(f"JUPYTER_GPU_GC_{name}", value)
    assert config().retention == RetentionPolicy(30 * 86400, 20, 50 << 30)
    assert config().gc_interval_s == 7200
    monkeypatch.setenv("JUPYTER_GPU_GC_KEEP", "many")
    with pytest.raises(OptionError, match="JUPYTER_GPU_GC_KEEP=many: not a number of runs"):
        config()
