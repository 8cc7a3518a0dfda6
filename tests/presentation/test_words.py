"""Words and numbers that people read; ``words.json`` holds Python to them, and the sidebar by a test of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jupyter_gpu_release import units
from jupyter_gpu_release.presentation.wording import GPU_WORDS, RUN_WORDS, about, addressed, person, state_words
from jupyter_gpu_release.protocol.states import RunState

WORDS: dict[str, Any] = json.loads((Path(__file__).parent / "words.json").read_text())


def test_states_have_the_words_that_the_sidebar_has() -> None:
    assert WORDS["run_states"] == RUN_WORDS
    assert WORDS["gpu_states"] == GPU_WORDS
    assert set(RUN_WORDS) == {state.word for state in RunState}


def test_numbers_are_rounded_as_in_the_sidebar() -> None:
    for name, function in {
        "people": person,
        "bytes": units.format_bytes,
        "parts": units.format_part,
        "seconds": units.format_seconds,
        "percent": units.format_percent,
        "gpu_hours": units.format_gpu_hours,
        "estimates": about,
    }.items():
        for *given, words in WORDS[name]:
            assert function(*given) == words, (name, given)


def test_a_state_and_its_reason_are_one_sentence() -> None:
    assert state_words("cancelled", "cancelled by you") == "cancelled by you"
    assert state_words("lost", "its node died") == "lost: its node died"
    assert state_words("submitted", "") == "queued"


def test_your_own_act_is_yours() -> None:
    assert addressed("cancelled by ann", "ann") == "cancelled by you"
    assert addressed("cancelled by ann@x.org", "ann") == "cancelled by ann@x.org"
    assert addressed("cancelled by anna", "ann") == "cancelled by anna"
    assert addressed("ann's run fits when it is moved", "ann") == "another run of yours fits when it is moved"
    assert addressed("mary.ann's run goes first", "ann") == "mary.ann's run goes first"
    assert addressed("cancelled by ann before its results were durable", "ann").startswith("cancelled by you before")
    assert addressed("nearby ann", "ann") == "nearby ann"
