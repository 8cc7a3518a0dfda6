"""``load`` of a run that has not left its results yet says what it is at."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_gpu_release.client import loading
from jupyter_gpu_release.core.messages import Outcome, PersistWait, RunView
from jupyter_gpu_release.core.surroundings import Surroundings
from jupyter_gpu_release.errors import StillTrainingError
from jupyter_gpu_release.storage.rebuild import Realm
from jupyter_gpu_release.storage.runs import create_run_folder, write_manifest

RUN = "20260101-000000-00000001"


@pytest.mark.parametrize(("state", "says"), [("running", "is not over"), ("persisting", "are still being written")])
def test_by_the_store_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, says: str) -> None:
    write_manifest(create_run_folder(tmp_path, RUN), {"run": RUN, "state": state}, durable=False)
    around = Surroundings(realm=lambda: Realm({}, at_home=True), find_target=None, store=lambda: str(tmp_path))
    monkeypatch.setattr(loading, "here", lambda: around)
    with pytest.raises(StillTrainingError, match=says):
        loading.load_results(RUN)


def test_by_the_gateway_with_what_it_waits_for() -> None:
    wait = PersistWait("/store/runs/x/values.graph", 1 << 30, "No space left on device")
    view = RunView(RUN, "u", "persisting", outcome=Outcome("ok"), waits_for=wait)
    around = Surroundings(realm=lambda: Realm({}, at_home=True), find_target=None)
    with pytest.raises(StillTrainingError, match=r"being written: 1.0 GiB .*No space left on device"):
        loading._from_view(view, None, around)  # type: ignore[arg-type]
