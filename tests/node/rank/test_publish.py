"""``publish`` in a real rank: what becomes an event, what a file, and that it costs a cell little."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jupyter_gpu_release.client.published_values import ReplacedError, value_of
from jupyter_gpu_release.errors import StoreError
from jupyter_gpu_release.protocol.events import Event, Publication, publication_of
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo

IMPORT = "import jupyter_gpu_release as gpu_release\n"
REALM = NamespaceInfo({}, at_home=True)


def published(events: list[Event]) -> list[Publication]:
    return [publication_of(event) for event in events if event.kind == "published"]


def test_numbers_travel_as_they_are_and_the_last_one_arrives(node: Any):
    run = node.run(IMPORT + "for n in range(100_000):\n    gpu_release.publish(step=n, name='x', loss=n / 2)")
    found = published(run.events)
    assert len(found) < 500
    last = {each.name: each.value for each in found}
    assert last == {"step": 99_999, "name": "x", "loss": 99_999 / 2}


def test_small_objects_travel_in_the_event_and_large_ones_by_a_file(node: Any):
    source = "import numpy as np\nhistory = [1, 2]\ncurve = np.arange(100_000.0)\n"
    run = node.run(IMPORT + source + "gpu_release.publish(history=history, curve=curve)")
    by_name = {each.name: each for each in published(run.events)}
    where = (run.order.run, REALM, lambda: node.store)
    assert value_of(by_name["history"], *where) == [1, 2]
    assert by_name["curve"].graph is None
    assert np.array_equal(value_of(by_name["curve"], *where), np.arange(100_000.0))
    file = Path(run.order.folder) / "published" / "curve"
    assert oct(file.stat().st_mode & 0o777) == "0o600"
    file.write_bytes(b"other")
    with pytest.raises(ReplacedError):
        value_of(by_name["curve"], *where)
    damaged = Publication("curve", file="curve", digest=hashlib.blake2b(b"other", digest_size=16).hexdigest())
    with pytest.raises(StoreError, match="damaged"):
        value_of(damaged, *where)
    with pytest.raises(StoreError, match="no file name"):
        value_of(Publication("curve", file="../values.graph"), *where)


def test_a_store_that_is_away_is_not_made_anew(node: Any, tmp_path: Path):
    away = tmp_path / "away"
    source = f"import os\nimport numpy as np\nos.rename({str(node.store)!r}, {str(away)!r})\n"
    run = node.start(IMPORT + source + "gpu_release.publish(curve=np.arange(100_000.0))")
    run.wait_for(lambda run: run.phase("released"))
    was_made = node.store.exists()
    if not was_made:
        away.rename(node.store)
    run.wait_for(lambda run: run.phase("final"))
    assert not was_made
    assert any("could not be published" in str(event.data) for event in run.events)


def test_what_was_held_back_for_its_price_arrives_in_the_end(node: Any):
    source = "import numpy as np\nfor n in range(200):\n    gpu_release.publish(big=np.full(300_000, n))"
    run = node.run(IMPORT + source)
    last = published(run.events)[-1]
    assert value_of(last, run.order.run, REALM, lambda: node.store)[0] == 199


def test_nothing_fails_the_cell(node: Any):
    source = (
        "import threading, os\nfolder = os.path.dirname(gpu_release.run_dir)\n"
        "open(os.path.join(folder, 'published'), 'w').close()\n"
        "for _ in range(3): gpu_release.publish(lock=threading.Lock(), big=bytes(1 << 20))\ndone = True"
    )
    run = node.run(IMPORT + source)
    assert run.outcome.status == "ok", run.outcome
    notes = [event.data["text"] for event in run.events if event.kind == "note"]
    assert sorted(note.split("could")[0] for note in notes) == ["`big` ", "`lock` "]


def test_results_of_other_runs_are_read_from_the_store(node: Any, make_manifest: Callable[..., None]):
    first = node.run("values = [1, 2]")
    make_manifest(first)
    run = node.run(IMPORT + f"total = sum(gpu_release.load('{first.order.run}')['values'])\nprint(total)")
    assert "".join(e.data["text"] for e in run.events if e.kind == "stream") == "3\n"


@pytest.fixture
def make_manifest() -> Callable[..., None]:
    """Writes what the gateway would: there is none here."""
    from jupyter_gpu_release.gateway.runs.manifests import manifest_of
    from jupyter_gpu_release.protocol.runs import ResourceAsk, RunRequest, RunView
    from jupyter_gpu_release.store.layout import RunPaths
    from jupyter_gpu_release.store.run_folders import write_manifest

    def make(run: Any) -> None:
        name = run.order.run
        view = RunView(run=name, user="u", state="succeeded")
        request = RunRequest(name, "s", ResourceAsk(1, 1), b"")
        write_manifest(RunPaths(Path(run.order.folder)), manifest_of(view, run.outcome, request), durable=False)

    return make
