"""CellOutputs: a cell's outputs as a notebook document holds them, and what has changed in them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ...presentation.output_sink import OutputSink
from .widget_texts import WIDGET_VIEW, WidgetTexts

#: an output in the format of notebooks (nbformat)
Output = dict[str, Any]
#: ``{"op": "add", "output"}``, ``{"op": "set", "index", "output"}`` or ``{"op": "clear"}``. A stream's text
#: that is added goes on in the stream before it, if that has the same name, as in JupyterLab's own model
Change = dict[str, Any]
#: a bar moves many times a second; its text, which is written into documents, does not
_TEXTS_EVERY_S = 1.0


class CellOutputs(OutputSink):
    """Turns output into changes of a list of outputs; remembers of each only what later ones depend on.

    A widget's view has the text that it reads beside it, for pages that know nothing of its model.
    """

    is_in_notebook = True

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changes: list[Change] = []
        #: of each output its stream's name, or empty
        self._streams: list[str] = []
        self._displays: dict[str, list[int]] = {}
        self._widgets = WidgetTexts()
        #: by their place: outputs that are views of widgets
        self._views: dict[int, Output] = {}
        #: widgets have changed since their texts were told
        self.has_news_of_widgets = False
        self._told_widgets_s = clock()

    def take_changes(self, *, is_last: bool = False) -> list[Change]:
        """Return the changes since the last call; what widgets read only now and then, and at the end."""
        if self.has_news_of_widgets and (is_last or self._clock() >= self._told_widgets_s + _TEXTS_EVERY_S):
            self._tell_widgets()
        changes, self._changes = self._changes, []
        return changes

    def write(self, name: str, text: str) -> None:
        """Append text to ``stdout`` or ``stderr``."""
        if not text:
            return
        goes_on = bool(self._streams) and self._streams[-1] == name
        last = self._changes[-1] if self._changes else None
        if goes_on and last is not None and last["op"] == "add":
            last["output"]["text"] += text
            return
        self._changes.append({"op": "add", "output": {"output_type": "stream", "name": name, "text": text}})
        if not goes_on:
            self._streams.append(name)

    def publish(
        self, data: dict[str, Any], metadata: dict[str, Any], transient: dict[str, Any], *, update: bool = False
    ) -> None:
        """Add a display, or replace those with the same ``display_id``."""
        display = str(transient.get("display_id") or "")
        output = {"output_type": "display_data", "data": data, "metadata": metadata}
        if update:
            for index in self._displays.get(display, ()):
                self._set(index, self._seen(index, output))
            return
        if display:
            self._displays.setdefault(display, []).append(len(self._streams))
        self._add(self._seen(len(self._streams), output))

    def clear(self, *, wait: bool) -> None:
        """Take away all there is; what comes next is at hand already where ``wait`` is meant."""
        self._changes = [{"op": "clear"}]
        self._streams.clear()
        self._displays.clear()
        self._views.clear()

    def send_comm(self, data: dict[str, Any]) -> None:
        """Widgets live between kernel and page; here only their text does."""
        self._widgets.note(data)
        self.has_news_of_widgets = True

    def show_traceback(self, ename: str, evalue: str, lines: list[str]) -> None:
        """Add an error."""
        self._add({"output_type": "error", "ename": ename, "evalue": evalue, "traceback": lines})

    def write_payload(self, payload: dict[str, Any]) -> None:
        """Nothing: what a reply does to the page is not repeated."""

    def _seen(self, index: int, output: Output) -> Output:
        """The output, with its text where it is a widget's view; that place is remembered."""
        self._views.pop(index, None)
        view = output["data"].get(WIDGET_VIEW)
        if not isinstance(view, dict):
            return output
        text = self._widgets.text_of(str(view.get("model_id")))
        if text is not None:
            output = {**output, "data": {**output["data"], "text/plain": text}}
        self._views[index] = output
        return output

    def _tell_widgets(self) -> None:
        self.has_news_of_widgets, self._told_widgets_s = False, self._clock()
        for index, before in list(self._views.items()):
            now = self._seen(index, before)
            if now != before:
                self._set(index, now)

    def _add(self, output: Output) -> None:
        self._streams.append("")
        self._changes.append({"op": "add", "output": output})

    def _set(self, index: int, output: Output) -> None:
        last = self._changes[-1] if self._changes else None
        if last is not None and last["op"] == "set" and last["index"] == index:
            last["output"] = output
        else:
            self._changes.append({"op": "set", "index": index, "output": output})
