"""The text that widgets read: it stands in place of their views where their models are gone."""

from __future__ import annotations

import html
import re
from typing import Any

#: what an output names a widget's model by
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"

_TARGET = "jupyter.widget"
_MODEL = "IPY_MODEL_"
_TAG = re.compile(r"<[^<>]*>")
_BAR_WIDTH = 10
#: longer values are no text that stands in a line
_MOST_LETTERS = 10_000
#: what is looked at for one text: boxes in boxes, and widgets in all
_DEEPEST, _MOST_WIDGETS = 20, 200
_PROGRESS = frozenset({"FloatProgressModel", "IntProgressModel"})
_HTML = frozenset({"HTMLModel", "HTMLMathModel"})
#: kinds whose value reads as it is; of all others only the description is shown
_VALUED = frozenset(
    {
        "LabelModel",
        "TextModel",
        "TextareaModel",
        "ComboboxModel",
        "ColorPickerModel",
        "IntTextModel",
        "FloatTextModel",
        "BoundedIntTextModel",
        "BoundedFloatTextModel",
        "IntSliderModel",
        "FloatSliderModel",
        "FloatLogSliderModel",
        "PlayModel",
        "CheckboxModel",
        "ToggleButtonModel",
        "ValidModel",
    }
)
#: what IPython prints of it has its value, too: its own text takes that place even where there is none
_PASSWORD = "PasswordModel"
#: boxes that have each child on a line of its own
_STACKED = frozenset({"VBoxModel", "AccordionModel", "TabModel", "StackModel"})

State = dict[str, Any]


class WidgetTexts:
    """Keeps up with the models of one run's widgets."""

    def __init__(self) -> None:
        self._states: dict[str, State] = {}
        self._closed: set[str] = set()
        #: these had a text: one that is empty takes its place
        self._read: set[str] = set()

    def note(self, message: dict[str, Any]) -> None:
        """Take a comm's message, if it is a widget's; user code may send anything by a comm."""
        content = _dict(message.get("content"))
        model, data = content.get("comm_id"), _dict(content.get("data"))
        kind = message.get("msg_type")
        if not isinstance(model, str):
            return
        if kind == "comm_open" and content.get("target_name") == _TARGET:
            self._states[model] = {}
            self._closed.discard(model)
            self._update(model, data)
        elif model not in self._states:
            return
        elif kind == "comm_close":
            del self._states[model]
            self._closed.add(model)
        elif data.get("method") == "update":
            self._update(model, data)

    def text_of(self, model: str) -> str | None:
        """The text of a model with all within; of a closed one none is left; None: it has none that is known."""
        if model in self._closed:
            return ""
        reading = _Reading(self._states)
        text = reading.text_of(model, frozenset())
        if text or reading.has_password:
            self._read.add(model)
        return text if model in self._read else None

    def _update(self, model: str, data: State) -> None:
        state = self._states[model]
        for key, value in _dict(data.get("state")).items():
            if key not in _KEPT:
                continue
            if _KEPT[key](value):
                state[key] = value
            else:
                state.pop(key, None)


class _Reading:
    """Reads one widget: how much there is within, the code decides that made it."""

    def __init__(self, states: dict[str, State]) -> None:
        self._states = states
        self._left = _MOST_WIDGETS
        self.has_password = False

    def text_of(self, model: str, above: frozenset[str]) -> str:
        self._left -= 1
        state = self._states.get(model, {})
        kind, children = state.get("_model_name"), state.get("children")
        self.has_password |= kind == _PASSWORD
        if children is None:
            return _text_of(state)
        around, texts = above | {model}, []
        for child in children if len(around) < _DEEPEST else ():
            if self._left <= 0:
                break
            if isinstance(child, str) and (within := child.removeprefix(_MODEL)) not in around:
                texts.append(self.text_of(within, around))
        return ("\n" if kind in _STACKED else " ").join(filter(None, texts))


def _dict(value: object) -> State:
    return value if isinstance(value, dict) else {}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= _MOST_LETTERS


def _is_value(value: object) -> bool:
    return isinstance(value, int | float) or _is_text(value)


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple)


#: the part of a model's state that is text, or leads to it, and what each has to be
_KEPT = {
    "_model_name": _is_text,
    "value": _is_value,
    "min": _is_number,
    "max": _is_number,
    "description": _is_text,
    "children": _is_list,
}


def _text_of(state: State) -> str:
    """A widget without others in it: its description and its value."""
    value, kind = state.get("value"), state.get("_model_name")
    text = ""
    if kind in _PROGRESS:
        text = _bar(state) if _is_number(value) else ""
    elif kind in _HTML:
        text = _plain(str(value)) if value is not None else ""
    elif kind in _VALUED and value is not None:
        text = str(value)
    return " ".join(filter(None, (_plain(state.get("description", "")), text)))


def _plain(page: str) -> str:
    return html.unescape(_TAG.sub("", page)).replace("\N{NO-BREAK SPACE}", " ").strip()


def _bar(state: State) -> str:
    """``|████      |``."""
    try:
        low, high, value = (float(state.get(key, 0)) for key in ("min", "max", "value"))
    except OverflowError:  # an int that is no float
        low = high = value = 0.0
    part = min(1.0, max(0.0, (value - low) / (high - low))) if high > low else 0.0
    filled = int(part * _BAR_WIDTH)
    return f"|{'█' * filled}{' ' * (_BAR_WIDTH - filled)}|"
