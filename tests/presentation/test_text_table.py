"""Tables fit 80 columns with the longest names there are: ids and states stay whole."""

from __future__ import annotations

import io
import time

import msgspec
import pytest
from rich.console import Console

from jupyter_gpu_release.cli.tables import print_runs, print_status, print_tokens
from jupyter_gpu_release.kernel.magics.tables import runs_table, status_tables
from jupyter_gpu_release.presentation.text_table import text_lines
from jupyter_gpu_release.protocol.admin import TokenRow
from jupyter_gpu_release.protocol.rest import RunRow, RunsDocument, StatusDocument

RUN = "20261121-034512-9f3a12bc"
USER = "katherine.johnson@mathematics.example.org"
BOOK = "projects/2026/vision/experiments/ResNet-with-a-long-name.ipynb"
GIB = 1 << 30
GPUS = [
    {
        "index": str(number),
        "uuid": "u",
        "name": "NVIDIA H100 80GB HBM3",
        "memory_bytes": 80 * GIB,
        "state": state,
        "used_bytes": 12.5 * GIB,
        "utilization": 0.87,
        "user": USER,
        "run": RUN,
        "warm_until": until,
    }
    for number, (state, until) in enumerate([("running", None), ("unattributed", None), ("warm", time.time() + 200)])
]
REASON = "next in the queue: needs 8 GPUs together on 2 nodes, 3 of 5 are free"
STATUS = msgspec.convert(
    {
        "schema_version": 1,
        "simulated": False,
        "gpus": {"total": 3, "held": 3, "free": 0, "external": 0},
        "gateway": {"url": "https://gpu-gateway.example.org:8765", "version": "1"},
        "user": "ann",
        "nodes": [{"id": "n", "host": "gpu-node-0017.cluster.example.org", "gpus": GPUS}],
        "queue": [
            {
                "run": RUN[:-1] + "d",
                "user": USER,
                "queue": "research/vision-transformers",
                "priority": "normal",
                "gpus": 8,
                "position": 1,
                "reason": REASON,
                "start_estimate_s": 720.0,
            }
        ],
        "runs": [
            {
                "run": RUN,
                "user": USER,
                "state": "persisting",
                "gpus": 16,
                "notebook": BOOK,
                "queued_s": 12.3,
                "held_s": 8 * 86400.0,
            }
        ],
    },
    StatusDocument,
    strict=False,
)
ROW = {
    "run": RUN,
    "user": USER,
    "state": "succeeded",
    "gpus": 16,
    "ranks": 16,
    "name": "",
    "notebook": BOOK,
    "cell": "c",
    "queue": "q",
    "priority": "normal",
    "simulated": False,
    "submitted_at": 1e9,
    "granted_at": 1e9,
    "running_at": 1e9,
    "gone_at": 1e9,
    "finished_at": 1e9,
    "queued_s": 1e5,
    "held_s": 8e5,
    "release_ms": 31.5,
    "position": None,
    "reason": "",
    "hosts": [],
    "gpu_ids": [],
    "gpu_name": "",
    "results": [{"name": "model" * 9, "type": "x"}] * 9,
    "files": [],
    "error": {"ename": "OutOfMemoryError", "evalue": "CUDA out of memory. Tried to allocate 2.00 GiB"},
}
RUNS = [msgspec.convert({**ROW, **more}, RunRow) for more in ({}, {"name": "a label that somebody chose to be long"})]
TOKEN = TokenRow("3f2a9c41d0", USER, "admin", "for the pipeline that runs each night", "active", 1e9, 2e9, 1.5e9)


def _printed() -> list[str]:
    text = io.StringIO()
    console = Console(file=text, width=80)
    print_status(console, STATUS)
    print_runs(console, RUNS)
    print_tokens(console, [TOKEN])
    return text.getvalue().splitlines()


def _shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", "80")
    tables = [*status_tables(STATUS), runs_table(RunsDocument(1, RUNS))]
    return [line for table in tables for line in repr(table).splitlines()]


def test_every_table_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    for lines in (_printed(), _shown(monkeypatch)):
        assert [line for line in lines if len(line) > 80] == []
        text = "\n".join(lines)
        assert text.count(RUN) >= 4
        for word in ("persisting", "unattributed", "succeeded", "katherine", "ResNet-with", "3 of 5"):
            assert word in " ".join(text.split()), word


def test_sentences_that_would_be_narrow_stand_below_their_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command with its run can be copied from one line."""
    monkeypatch.setenv("COLUMNS", "80")
    waits = msgspec.convert({**ROW, "state": "running", "error": None, "detached": True}, RunRow, strict=False)
    lines = repr(runs_table(RunsDocument(1, [*RUNS, waits]))).splitlines()
    assert lines[-1].strip() == f"%gpu_attach {RUN}"
    assert "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB" in [line.strip() for line in lines]
    assert [table.title for table in status_tables(STATUS)][-1] == "Queued"


def test_a_list_says_how_a_run_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "240")
    for more, own, state in (
        ({}, (), "running"),
        ({}, (RUN,), "running (async)"),
        ({"detached": True}, (), "detached"),
    ):
        row = msgspec.convert({**ROW, "state": "running", "error": None, **more}, RunRow, strict=False)
        assert state in repr(runs_table(RunsDocument(1, [row]), own=own))
        assert ("(" in repr(runs_table(RunsDocument(1, [row]), own=own)).splitlines()[-1]) is (state != "running")


def test_a_wide_terminal_has_all_columns() -> None:
    text = io.StringIO()
    print_status(Console(file=text, width=240), STATUS)
    print_runs(Console(file=text, width=240), RUNS)
    for words in (USER, BOOK.rpartition("/")[2], "12.5 of 80 GiB", "87 %", "research/vision-transformers", "32 ms"):
        assert words in text.getvalue(), words


def test_a_column_goes_only_where_it_is_empty_in_all_rows() -> None:
    heads, *_ = text_lines(("run", "user", "name"), [("1", "", "a"), ("2", "", "")], 80)
    assert heads.split() == ["run", "name"]
