"""Documents for programs say all their fields, also when there is nothing in them."""

from __future__ import annotations

import msgspec
import pytest

from jupyter_gpu_release.protocol.rest import run_row
from jupyter_gpu_release.protocol.runs import Attempt, FileInfo, RunView, ValueInfo


@pytest.mark.parametrize("row", [FileInfo("empty"), ValueInfo("nothing", "NoneType")])
def test_a_size_of_zero_is_said(row: msgspec.Struct) -> None:
    assert msgspec.json.decode(msgspec.json.encode(row))["bytes"] == 0


_PAST = [Attempt(granted_at=12.0, gone_at=40.0)]


@pytest.mark.parametrize(
    ("view", "since_s"),
    [
        (RunView("r", "ada", "queued", submitted_at=10.0), 50.0),
        (RunView("r", "ada", "running", submitted_at=10.0, granted_at=12.0), 48.0),
        (RunView("r", "ada", "queued", submitted_at=10.0, attempts=_PAST), 20.0),
        (RunView("r", "ada", "running", submitted_at=10.0, granted_at=55.0, attempts=_PAST), 5.0),
        (RunView("r", "ada", "succeeded", submitted_at=10.0, granted_at=12.0, gone_at=30.0, finished_at=31.0), None),
    ],
)
def test_a_run_that_stepped_aside_waits_since_then_and_holds_its_gpus_since_it_goes_on(
    view: RunView, since_s: float | None
) -> None:
    assert run_row(view, 60.0).since_s == since_s
