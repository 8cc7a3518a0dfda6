"""When a waiting run starts, in words."""

from __future__ import annotations

import pytest

from jupyter_gpu_release.presentation.run_display import describe_run
from jupyter_gpu_release.presentation.run_row import run_row
from jupyter_gpu_release.presentation.wording import about, describe_estimate, describe_start
from jupyter_gpu_release.protocol.rest import EstimateDocument, SoonerAsk
from jupyter_gpu_release.protocol.runs import RunView, StartEstimate


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "1 s"),
        (7.4, "7 s"),
        (43, "45 s"),
        (61, "1 min"),
        (237, "4 min"),
        (7100, "2 h"),
        (100_000, "28 h"),
        (140_000, "2 days"),
    ],
)
def test_a_time_is_as_exact_as_an_estimate_is(seconds: float, words: str) -> None:
    assert about(seconds) == f"about {words}"


@pytest.mark.parametrize(
    ("in_s", "at_least_s", "at_most_s", "after", "words"),
    [
        (240, 230, 250, "ann", "starts in about 4 min, when ann's run has ended"),
        (240, 120, 540, "ann", "starts in about 4 min (2 to 9 min), when ann's run has ended"),
        (240, 30, 7200, "", "starts in about 4 min (30 s to 2 h)"),
        (
            240,
            120,
            None,
            "bob",
            "starts in about 4 min (2 min at the earliest, or much later), when your own run has ended",
        ),
        (0, 0, 0, "", "starts any moment"),
        (0, 0, 0, "ann", "starts as soon as ann's run has ended"),
        (0, 0, 29, "bob", "starts as soon as your own run has ended, within about 30 s"),
        (0, 0, 29, "", "starts within about 30 s"),
        (0, 0, None, "ann", "starts as soon as ann's run has ended"),
        (None, 60, None, "", "starts in about 1 min at the earliest"),
        (None, 0, 7200, "", "starts within about 2 h"),
        (None, None, None, "", ""),
    ],
)
def test_how_sure_it_is_is_said_where_it_matters(
    in_s: float | None, at_least_s: float | None, at_most_s: float | None, after: str, words: str
) -> None:
    assert describe_start(in_s, at_least_s, at_most_s, after, me="bob") == words


def test_the_line_below_a_waiting_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1000.0)
    view = RunView("r", "bob", "queued", reason="3rd in research: needs 4 GPUs, 1 of 8 is free", gpus=4)
    start = StartEstimate(1240.0, 1238.0, 1242.0, "ann")
    said = describe_run(RunView("r", "bob", "queued", reason=view.reason, gpus=4, start=start))
    assert said == f"{describe_run(view)} · starts in about 4 min, when ann's run has ended"


def test_what_an_estimate_says() -> None:
    at_once = EstimateDocument(1, "research", 50, 0, "", 0.0, 0.0, 0.0)
    assert describe_estimate(at_once, "bob") == "it would start at once"
    waits = EstimateDocument(
        1,
        "research",
        50,
        3,
        "3rd in research: needs 4 GPUs, 1 of 8 is free",
        240.0,
        240.0,
        240.0,
        "ann",
        [SoonerAsk("--gpus 1", 0.0), SoonerAsk("--gpu-type a100", 70.0)],
    )
    assert describe_estimate(waits, "bob") == (
        "3rd in research: needs 4 GPUs, 1 of 8 is free; it would start in about 4 min, when ann's run has ended; "
        "sooner: --gpus 1 (now), --gpu-type a100 (in about 1 min)"
    )
    unknown = EstimateDocument(1, "research", 50, 1, "1st in research: needs 4 GPUs, 1 of 8 is free")
    assert describe_estimate(unknown, "bob").endswith("; nobody knows when it would start")


def test_a_row_has_the_seconds_until_each_time_of_its_start() -> None:
    view = RunView("r", "ann", "queued", start=StartEstimate(at=130.0, earliest=110.0, latest=190.0))
    row = run_row(view, 100.0)
    assert (row.start_estimate_s, row.start_at_least_s, row.start_at_most_s) == (30.0, 10.0, 90.0)
