"""Recorded output and sentences of ours as plain text, for terminals and for ``logs()``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..protocol.events import Event

_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def without_colours(text: str) -> str:
    """Text for what is no terminal."""
    return _COLOURS.sub("", text)


def without_backticks(sentence: str) -> str:
    """A sentence of ours for a place where nothing turns what stands between backticks into code."""
    return sentence.replace("`", "")


def text_of(event: Event) -> str:
    """Text as it is, of rich output its plain text, of an error its traceback."""
    if event.kind == "stream":
        return str(event.data.get("text", ""))
    if event.kind == "note":
        return f"{event.data.get('text', '')}\n"
    if event.kind == "payload" and event.data.get("source") == "page":
        return f"{event.data['data'].get('text/plain', '')}\n"
    if event.kind in ("display", "update_display"):
        return f"{_plain(event)}\n"
    if event.kind in ("error", "traceback"):
        return traceback_of(event.data)
    return ""


def traceback_of(error: Mapping[str, Any], *, in_gang: bool = False) -> str:
    """The traceback of an event ``error``; above it the rank, where there are several."""
    rank = error.get("rank", 0)
    place = [f"in {error.get('who') or f'rank {rank}'}:"] if rank or in_gang else []
    return "\n".join([*place, *(error.get("traceback") or []), ""])


def is_stderr(event: Event) -> bool:
    """Tell if a terminal shows it on the error stream."""
    return event.data.get("name") == "stderr" or event.kind in ("note", "error", "traceback")


def _plain(event: Event) -> str:
    data = event.data.get("data") or {}
    text = data.get("text/plain")
    return "".join(text) if text else f"[{', '.join(data) or 'a display'}]"
