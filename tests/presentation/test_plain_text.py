"""Recorded output as text: what each kind of event is in a terminal, and on which stream."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpu_release.presentation.plain_text import is_stderr, text_of
from jupyter_gpu_release.protocol.events import Event

_PLAIN = {"data": {"text/plain": "4", "text/html": "<b>4</b>"}}


@pytest.mark.parametrize(
    ("kind", "data", "text", "is_error"),
    [
        ("stream", {"name": "stdout", "text": "a\n"}, "a\n", False),
        ("stream", {"name": "stderr", "text": "a"}, "a", True),
        ("note", {"text": "of ours"}, "of ours\n", True),
        ("payload", {"source": "page", **_PLAIN}, "4\n", False),
        ("payload", {"source": "set_next_input", "text": "x"}, "", False),
        ("display", _PLAIN, "4\n", False),
        ("update_display", {"data": {"image/png": "iVBO"}}, "[image/png]\n", False),
        ("display", {}, "[a display]\n", False),
        ("error", {"traceback": ["line 1", "line 2"]}, "line 1\nline 2\n", True),
        ("traceback", {"traceback": ["line"], "rank": 2}, "in rank 2:\nline\n", True),
        ("error", {"traceback": ["line"], "who": "the evaluator", "rank": 3}, "in the evaluator:\nline\n", True),
        ("clear_output", {}, "", False),
    ],
)
def test_events_in_a_terminal(kind: str, data: dict[str, Any], text: str, is_error: bool) -> None:
    event = Event(1, 0.0, kind, data)
    assert (text_of(event), is_stderr(event)) == (text, is_error)
