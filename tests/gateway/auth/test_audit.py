"""The audit log: one line an act, private, rotated, no flood, no secret, and never in a request's way."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu_release.gateway.auth.audit import QUIET_S, AuditLog
from jupyter_gpu_release.gateway.auth.permissions import Caller

ANN = Caller("ann", "admin", "0123456789", "10.0.0.7")


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_800_000_000.25

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log" / "audit.jsonl"


@pytest.fixture
def audit(path: Path, clock: Clock) -> AuditLog:
    return AuditLog(path, clock=clock)


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_who_what_which_from_where_and_the_result(audit: AuditLog, path: Path) -> None:
    audit.write_entry(ANN, "run.change", "20260101-000000-00000000", detail="owner bob")
    assert lines(path) == [
        {
            "at": "2027-01-15T08:00:00.250Z",
            "action": "run.change",
            "result": "ok",
            "user": "ann",
            "role": "admin",
            "token": "0123456789",
            "origin": "10.0.0.7",
            "target": "20260101-000000-00000000",
            "detail": "owner bob",
        }
    ]
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_the_same_again_is_counted(audit: AuditLog, path: Path, clock: Clock) -> None:
    for _ in range(5):
        audit.write_entry(ANN, "run.read", "r1")
    audit.write_entry(ANN, "run.read", "r2")
    assert [line["target"] for line in lines(path)] == ["r1", "r2"]
    clock.now_s += QUIET_S
    audit.write_counts()
    assert [(line["target"], line.get("repeated")) for line in lines(path)[2:]] == [("r1", 4)]
    audit.write_entry(ANN, "run.read", "r1")
    assert len(lines(path)) == 4


def test_a_flood_of_different_lines_takes_no_more_memory_than_so_much(audit: AuditLog, path: Path) -> None:
    audit.write_entry(ANN, "run.read", "first")
    audit.write_entry(ANN, "run.read", "first")
    for number in range(1100):
        audit.write_entry(ANN, "run.read", str(number))
    assert len(audit._recent) <= 1000
    assert {"first": 1}.items() <= {
        line["target"]: line["repeated"] for line in lines(path) if "repeated" in line
    }.items()


def test_what_may_be_a_token_is_not_written(audit: AuditLog, path: Path) -> None:
    secret = "jgr_" + secrets.token_urlsafe(32)
    audit.write_entry(ANN, "x", f"/v1/runs/{secret}", detail=f"foreign Origin https://{secret}.example\n{{")
    assert secret[:40] not in path.read_text()
    assert lines(path)[0]["target"] == "/v1/runs/…"


def test_it_is_rotated_by_size(path: Path, clock: Clock) -> None:
    audit = AuditLog(path, most_bytes=1000, clock=clock)
    for number in range(100):
        audit.write_entry(ANN, "run.read", f"r{number}")
    files = sorted(file.name for file in path.parent.iterdir())
    assert set(files) <= {"audit.jsonl", *(f"audit.jsonl.{n}" for n in range(1, 6))}
    assert len(files) >= 5
    assert all(file.stat().st_size < 1200 and file.stat().st_mode & 0o777 == 0o600 for file in path.parent.iterdir())
    assert lines(path.with_name("audit.jsonl.1"))[-1]["target"] in {"r99", "r98", "r97", "r96", "r95", "r94", "r93"}


def test_a_log_that_cannot_be_written_stops_nobody(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "elsewhere").write_text("")
    (tmp_path / "audit.jsonl").symlink_to(tmp_path / "elsewhere")
    AuditLog(tmp_path / "audit.jsonl", clock=clock).write_entry(ANN, "run.read", "r1")
    assert "misses a line" in caplog.text
    assert (tmp_path / "elsewhere").read_text() == ""  # a link laid in its place is not followed
