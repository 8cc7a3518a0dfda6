"""Output of a run for somebody who may read it and not load its values: nothing in it acts where it is shown.

A run's output holds pickles (what it publishes, what items return), HTML, scripts and widgets, all made by its owner's
code. What is not known to be text or a picture is shown as text, or left out. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from ...protocol.events import Event, with_data, without_pickles

#: a front end draws them; whatever else a display is (HTML, SVG, Markdown, LaTeX, widgets, scripts), it may run
_PASSIVE = ("text/plain", "image/png", "image/jpeg", "image/gif", "image/webp")
_AS_IT_IS = ("stream", "clear_output", "note", "error", "traceback")


def as_text(event: Event, run: str, owner: str) -> Event:
    """The event as others than the ``owner`` of its run see it."""
    if event.kind in ("display", "update_display"):
        return with_data(event, _passive(event.data, run))
    if event.kind == "payload" and event.data.get("source") == "page":
        return _printed(event, "\n".join(_passive(event.data, run)["data"].values()))
    if event.kind == "published":
        return without_pickles(event, f"it belongs to {owner}, and loading it runs code")
    return event if event.kind in _AS_IT_IS else _printed(event, "")


def _passive(data: Mapping[str, Any], run: str) -> dict[str, Any]:
    """A display as text or a picture; its id is no other display's."""
    bundle, transient = _mapping(data.get("data")), _mapping(data.get("transient"))
    shown = {kind: value for kind, value in bundle.items() if kind in _PASSIVE and isinstance(value, str)}
    if not shown:
        shown = {"text/plain": "\n".join(_sources(bundle))}
    name = transient.get("display_id")
    return {"data": shown, "metadata": {}, "transient": {"display_id": f"{run}:{name}"} if name else {}}


def _mapping(found: Any) -> Mapping[str, Any]:
    """A mapping, whatever a rank has sent: users' code runs there."""
    return found if isinstance(found, Mapping) else {}


def _sources(bundle: Mapping[str, Any]) -> Iterator[str]:
    for kind, value in bundle.items():
        yield value if isinstance(value, str) else f"({kind})"


def _printed(event: Event, text: str) -> Event:
    """Text in its place (none: followers count on consecutive numbers)."""
    printed = {"name": "stdout", "text": f"{text}\n" if text else ""}
    return with_data(msgspec.structs.replace(event, kind="stream"), printed)
