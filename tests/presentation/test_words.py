"""Words and numbers that people read; ``words.json`` holds Python to them, and the sidebar by a test of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jupyter_gpu_release import units
from jupyter_gpu_release.presentation.wording import (
    GPU_WORDS,
    RUN_WORDS,
    about,
    person,
    reason_for,
    reason_words,
    state_words,
    word_of,
)
from jupyter_gpu_release.protocol.runs import Reason, RunView
from jupyter_gpu_release.protocol.states import RunState
from jupyter_gpu_release.scheduling.queues.prices import Prices

WORDS: dict[str, Any] = json.loads((Path(__file__).parent / "words.json").read_text())


def test_states_have_the_words_that_the_sidebar_has() -> None:
    assert WORDS["run_states"] == RUN_WORDS
    assert WORDS["gpu_states"] == GPU_WORDS
    assert set(RUN_WORDS) == {state.word for state in RunState}


def _price(hourly: float, unit: str, warn_above: float | None, timeout_s: float | None) -> str:
    return Prices({"*": hourly}, unit, warn_above).of_ask(1, "any", timeout_s)


def test_numbers_are_rounded_as_in_the_sidebar() -> None:
    for name, function in {
        "people": person,
        "bytes": units.format_bytes,
        "parts": units.format_part,
        "seconds": units.format_seconds,
        "percent": units.format_percent,
        "gpu_hours": units.format_gpu_hours,
        "estimates": about,
        "prices": _price,
    }.items():
        for *given, words in WORDS[name]:
            assert function(*given) == words, (name, given)


def test_a_state_and_its_reason_are_one_sentence() -> None:
    own = RunView("r", "ann", "cancelled", reason="cancelled by you", cause=Reason("cancelled", {"user": "ann"}))
    assert state_words(own) == "cancelled by you"
    assert state_words(RunView("r", "ann", "lost", reason="its node died")) == "lost: its node died"
    assert state_words(RunView("r", "ann", "submitted")) == "queued"
    pruned = RunView("r", "ann", "cancelled", reason="pruned: other trials do better", cause=Reason("pruned"))
    assert (word_of(pruned), state_words(pruned)) == ("pruned", reason_words(Reason("pruned"), "ann"))
    running = RunView("r", "ann", "releasing", reason="pruned: other trials do better", cause=Reason("pruned"))
    assert state_words(running) == "releasing: pruned: other trials do better"


def test_your_own_act_is_yours() -> None:
    cancelled = Reason("cancelled", {"user": "ann"})
    assert [reason_words(cancelled, me) for me in ("ann", "bob", "")] == ["cancelled by you", *["cancelled by ann"] * 2]
    dropped = Reason("cancelled", {"user": "ann", "results": "loss; 8 B"})
    words = "cancelled by you before its results (loss; 8 B) were durable: they are given up"
    assert reason_words(dropped, "ann") == words
    moved = Reason("consolidate", {"user": "ann", "run": "r", "hosts": "gpu1"})
    assert reason_words(moved, "ann") == "another run of yours fits when it is moved to gpu1"
    assert reason_words(moved, "bob") == "ann's run fits when it is moved to gpu1"
    nobodys = Reason("preempt", {"run": "r"})
    assert reason_words(nobodys, "") == "r has the higher priority in this queue"
    assert reason_words("nearby ann", "ann") == "nearby ann"


def test_a_reason_of_another_version_is_as_that_has_worded_it() -> None:
    newer = RunView("r", "ann", "queued", reason="held by ann", cause=Reason("held", {"user": "ann"}))
    assert reason_for(newer, "ann") == "held by ann"
    assert reason_for(RunView("r", "ann", "cancelled", reason="cancelled by ann"), "ann") == "cancelled by ann"
    damaged = RunView("r", "ann", "cancelled", reason="", cause=Reason("behind"))
    assert reason_for(damaged, "ann").endswith("which would start later")
