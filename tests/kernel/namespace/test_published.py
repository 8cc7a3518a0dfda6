"""Values that a run has published, as they arrive piece by piece."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jupyter_gpu_release.kernel.namespace import published
from jupyter_gpu_release.kernel.namespace.published import PublishedValues
from jupyter_gpu_release.protocol.events import Event
from jupyter_gpu_release.store.layout import RunPaths


def _published(number: int, name: str, value: float) -> Event:
    return Event(number, 1.0, "published", {"name": name, "value": value})


def test_what_was_published_earlier_stays_and_the_latest_of_a_name_counts() -> None:
    notebook: Any = SimpleNamespace(names=SimpleNamespace(realm=None))  # plain values need no more
    session: Any = None
    values = PublishedValues(notebook)
    values.note_published(session, "run", [_published(1, "loss", 3.0), _published(2, "accuracy", 0.5)])
    values.note_published(session, "run", [_published(3, "loss", 2.0)])
    values.note_published(session, "run", [Event(4, 1.0, "stream", {"name": "stdout", "text": "x"})])
    assert values.of_run("run") == {"loss": 2.0, "accuracy": 0.5}
    assert values.find("accuracy", None) == (0.5,)
    assert values.find("nothing", "run") is None


def test_of_two_runs_the_one_that_published_last_counts() -> None:
    values = PublishedValues(SimpleNamespace(names=SimpleNamespace(realm=None)))  # type: ignore[arg-type]
    session: Any = None
    for number, (run, value) in enumerate([("first", 3.0), ("second", 2.0), ("first", 1.0)]):
        values.note_published(session, run, [_published(number, "loss", value)])
        assert values.find("loss", None) == (value,)
    assert values.find("loss", "second") == (2.0,)


def test_until_the_event_of_a_newer_file_is_here_the_last_value_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, session = "20260101-000000-00000001", cast(Any, None)
    monkeypatch.setattr(published, "store_of", lambda _: tmp_path)
    file = RunPaths.of(tmp_path, run).published / "loss.graph"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"of a newer publication")
    notebook: Any = SimpleNamespace(names=SimpleNamespace(realm=None))
    values = PublishedValues(notebook)
    values.note_published(session, run, [_published(1, "loss", 3.0)])
    assert values.of_run(run) == {"loss": 3.0}
    values.note_published(
        session, run, [Event(2, 1.0, "published", {"name": "loss", "file": file.name, "digest": "0"})]
    )
    assert values.of_run(run) == {"loss": 3.0}
