"""The text that widgets read: it stands in place of their views where their models are gone."""

from __future__ import annotations

import html
import re
from typing import Any

#: what an output names a widget's model by
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"

_MODEL = "IPY_MODEL_"
_TAG = re.compile(r"<[^>]*>")
_BAR_WIDTH = 10
#: longer values are no text that stands in a line
_MOST_LETTERS = 10_000
#: the part of a model's state that is text, or leads to it
_KEPT = ("_model_name", "value", "min", "max", "description", "children")
_PROGRESS = ("FloatProgressModel", "IntProgressModel")
_HTML = ("HTMLModel", "HTMLMathModel")
#: boxes that have each child on a line of its own
_STACKED = ("VBoxModel", "AccordionModel", "TabModel", "StackModel")

State = dict[str, Any]


class WidgetTexts:
    """Keeps up with the models of one run's widgets."""

    def __init__(self) -> None:
        self._states: dict[str, State] = {}
        self._closed: set[str] = set()

    def note(self, message: dict[str, Any]) -> None:
        """Take a widget's message."""
        content = message.get("content") or {}
        model, data = str(content.get("comm_id") or ""), content.get("data") or {}
        if message.get("msg_type") == "comm_close":
            self._states.pop(model, None)
            self._closed.add(model)
        elif message.get("msg_type") == "comm_open" or data.get("method") == "update":
            state = data.get("state") or {}
            self._states.setdefault(model, {}).update((key, state[key]) for key in _KEPT if _is_kept(state, key))

    def text_of(self, model: str) -> str | None:
        """The text of a model with all within; of a closed one none is left; None: it has none that is known."""
        if model in self._closed:
            return ""
        return self._text(model, frozenset()) or None

    def _text(self, model: str, above: frozenset[str]) -> str:
        state = self._states.get(model, {})
        children = state.get("children")
        if not isinstance(children, list | tuple):
            return _text_of(state)
        around = above | {model}
        within = [str(child).removeprefix(_MODEL) for child in children]
        texts = [self._text(child, around) for child in within if child not in around]
        return ("\n" if state.get("_model_name") in _STACKED else " ").join(filter(None, texts))


def _is_kept(state: State, key: str) -> bool:
    value = state.get(key)
    return isinstance(value, bool | int | float | list | tuple) or (
        isinstance(value, str) and len(value) <= _MOST_LETTERS
    )


def _text_of(state: State) -> str:
    """A widget without others in it: its description and its value."""
    value, kind = state.get("value"), state.get("_model_name")
    if value is None or isinstance(value, list | tuple):
        return ""
    text = _bar(state) if kind in _PROGRESS else _plain(str(value)) if kind in _HTML else str(value)
    return " ".join(filter(None, (_plain(str(state.get("description") or "")), text)))


def _plain(page: str) -> str:
    return html.unescape(_TAG.sub("", page)).replace("\N{NO-BREAK SPACE}", " ").strip()


def _bar(state: State) -> str:
    """``|████      |``."""
    low, high, value = (float(state.get(key) or 0) for key in ("min", "max", "value"))
    part = min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.0
    filled = int(part * _BAR_WIDTH)
    return f"|{'█' * filled}{' ' * (_BAR_WIDTH - filled)}|"
