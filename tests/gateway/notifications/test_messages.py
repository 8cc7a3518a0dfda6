"""Messages about runs that never had a GPU, or ended without an error of their own."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpu_release.gateway.notifications.messages import END, text_of
from jupyter_gpu_release.protocol.runs import ErrorInfo, Outcome, RunView

RUN = "20261121-031200-9f3a12b0"


def _over(state: str, **facts: Any) -> RunView:
    return RunView(RUN, "ann", state, **({"gpus": 2, "name": "fit", "submitted_at": 1000.0} | facts))


@pytest.mark.parametrize(
    ("view", "outcome", "lines"),
    [
        (
            _over("cancelled", finished_at=1060.0, reason="cancelled by root"),
            None,
            ["It never had its GPUs.", "The reason: cancelled by root."],
        ),
        (_over("cancelled", finished_at=1060.0, gpus=0), None, ["It never began."]),
        (
            _over("succeeded", gpus=0, granted_at=1090.0, gone_at=4690.0, reason="kept for later"),
            Outcome("ok"),
            ["It waited for 1 min 30 s and ran without a GPU for 1 h."],
        ),
        (
            _over("failed", granted_at=1090.0, gone_at=1150.0, reason="no GPU within 3 s"),
            Outcome("timeout", ErrorInfo("RunFailedError", "no GPU within 3 s", code="run_failed")),
            ["It waited for 1 min 30 s and held 2 GPUs for 1 min.", "The reason: no GPU within 3 s."],
        ),
    ],
)
def test_the_end_is_told_by_the_facts_that_there_are(view: RunView, outcome: Outcome | None, lines: list[str]) -> None:
    first, *told, last = text_of(view, END, outcome, "").splitlines()
    assert first.startswith(f"Your run fit, {RUN}: it ")
    assert told == lines
    assert last.startswith("For its output: ")
