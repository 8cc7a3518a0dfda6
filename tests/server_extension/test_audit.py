"""The records of actions: the line in the audit log, the event, the count, and a log that cannot be written."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from jupyter_events import EventLogger

from jupyter_gpu_release.server_extension import metrics
from jupyter_gpu_release.server_extension.audit import CHANGED, IDLE_POLICY, REQUEST, SCHEMAS, ActionLog

_FACTS: dict[str, Any] = {"rule": "idle-limit", "reason": "has been idle", "kind": "kernel", "subject": "k1"}


def _made(path: str) -> tuple[ActionLog, list[tuple[str, dict[str, Any]]], list[str]]:
    """The log, the events that it emits, the lines that it says."""
    emitted: list[tuple[str, dict[str, Any]]] = []
    said: list[str] = []

    class Events(EventLogger):
        def emit(self, *, schema_id: str, data: dict[str, Any], timestamp_override: Any = None) -> None:
            emitted.append((schema_id, data))

    log = logging.Logger("audit")
    handler = logging.Handler()
    handler.emit = lambda record: said.append(f"{record.levelname} {record.getMessage()}")  # type: ignore[method-assign]
    log.addHandler(handler)
    return ActionLog(Events(), path, log=log), emitted, said


def test_an_action_is_a_line_an_event_and_a_count(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    records, emitted, said = _made(str(path))
    count = metrics.CULLS.labels("release", "idle-limit", "false", "true")
    before = count._value.get()
    facts = _FACTS | {"action": "release", "dry_run": False, "done": True}
    records.policy(5.0, **facts)
    records.request(6.0, "keep", "k1", "ann", "for 1 h")
    records.changed("cluster")
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"at": 5.0, "schema": IDLE_POLICY} | facts,
        {"at": 6.0, "schema": REQUEST, "action": "keep", "subject": "k1", "user": "ann", "result": "for 1 h"},
    ]
    assert [schema for schema, _ in emitted] == [IDLE_POLICY, REQUEST, CHANGED]
    assert emitted[-1][1] == {"what": "cluster"}
    assert count._value.get() == before + 1
    assert path.stat().st_mode & 0o777 == 0o600, "who held what is nobody else's"
    assert said == ["WARNING GPU policy: release kernel k1: has been idle", "INFO GPU: ann asked to keep k1"]
    assert records.schemas >= set(SCHEMAS)


@pytest.mark.parametrize("action", ["warn", "notify"])
def test_what_only_tells_is_no_warning(tmp_path: Path, action: str) -> None:
    records, _, said = _made("")
    records.policy(5.0, **_FACTS, action=action, dry_run=False, done=True)
    assert [line.split()[0] for line in said] == ["INFO"]
    assert list(tmp_path.iterdir()) == []


def test_a_log_that_cannot_be_written_is_said_once_until_it_can_be(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    records, emitted, said = _made(str(folder / "audit.jsonl"))
    for _ in range(2):
        records.request(6.0, "keep", "k1", "ann", "")
    assert records.problem == f"the audit log {folder}/audit.jsonl cannot be written: No such file or directory"
    assert len([line for line in said if line.startswith("ERROR")]) == 1
    assert len(emitted) == 2, "the action is told all the same"
    folder.mkdir()
    records.request(6.0, "keep", "k1", "ann", "")
    assert records.problem == ""
    (folder / "audit.jsonl").unlink()
    folder.rmdir()
    records.request(6.0, "keep", "k1", "ann", "")
    assert len([line for line in said if line.startswith("ERROR")]) == 2


def test_a_full_disk_is_a_log_that_cannot_be_written() -> None:
    records, _, _ = _made("/dev/full")
    records.request(6.0, "keep", "k1", "ann", "")
    assert records.problem.endswith("No space left on device")
