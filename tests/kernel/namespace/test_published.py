"""Values that a run has published, as they arrive piece by piece."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from jupyter_gpu_release.kernel.namespace.published import PublishedValues
from jupyter_gpu_release.protocol.events import Event


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
