"""Times in lines and receipts: the zone is said, and a page finds the moment that is meant."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from jupyter_gpu_release.presentation.receipt import to_html
from jupyter_gpu_release.presentation.run_display import describe_run
from jupyter_gpu_release.presentation.wording import format_clock
from jupyter_gpu_release.protocol.runs import Holder, RunView, StartEstimate

#: 2026-03-29 00:59:50 UTC: ten seconds before Berlin's clocks go forward
_BEFORE_SUMMER = 1774745990.0


@pytest.fixture(params=["Europe/Berlin", "America/Sao_Paulo", "Asia/Kolkata", "UTC"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("off_s", [0, 60, 6 * 3600, -11 * 3600, 86400, -40 * 86400])
def test_a_clock_that_was_written_is_the_moment_that_was_meant(zone: str, off_s: int) -> None:
    at_s = float(round(time.time()) + off_s)
    text = f"kept until {format_clock(at_s)}: `%gpu_release` gives it back"
    assert bool(re.search(r"\d{4}-\d\d-", text)) == (abs(off_s) > 43000), "the day is said where it is not near"
    page = to_html(text, (at_s,))
    assert f'class="jgr-clock jgr-at-{round(at_s)}"' in page
    assert time.strftime('datetime="%Y-%m-%dT%H:%M:%SZ"', time.gmtime(at_s)) in page
    assert re.sub(r"<[^>]*>", "", page) == text.replace("`", "")


def test_clocks_go_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        written = [format_clock(_BEFORE_SUMMER), format_clock(_BEFORE_SUMMER + 20)]
        assert written == ["2026-03-29 01:59:50 CET", "2026-03-29 03:00:10 CEST"]
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_waiting_cell_says_who_holds_what_it_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    holders = [Holder("bob", 3, 280.0), Holder("ann", 2, 940.0), Holder("eve", 1, 990.0)]
    view = RunView(
        "r",
        "ann",
        "queued",
        gpus=2,
        position=1,
        reason="needs 2 GPUs, 1 of 8 is free",
        start=StartEstimate(1240.0, 1240.0, 1240.0, "bob", holders),
    )
    assert describe_run(view) == (
        "queued for 2 GPUs · place 1 · needs 2 GPUs, 1 of 8 is free · bob holds 3 GPUs for 12 min, "
        "you hold 2 GPUs for 1 min, and 1 other · starts in about 4 min, when bob's run has ended"
    )


def test_a_waiting_cell_comes_to_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Words that differ at each look never last, and only what lasts is said."""
    start = StartEstimate(None, None, None, "", [Holder("bob", 4, 1000.0)])
    view = RunView("r", "ann", "queued", gpus=2, position=1, reason="needs 2 GPUs, 0 of 4 are free", start=start)
    said = []
    for tick in range(480):
        monkeypatch.setattr(time, "time", lambda now_s=1000.0 + tick / 4: now_s)
        said.append(describe_run(view))
    assert len(set(said)) == 7
    assert said[0].endswith("bob holds 4 GPUs")
    assert said[-1].endswith("bob holds 4 GPUs for 1 min")
