"""CellOutputs: a cell's outputs as a notebook document holds them, and what has changed in them."""

from __future__ import annotations

from typing import Any

from ...presentation.output_sink import OutputSink

#: an output in the format of notebooks (nbformat)
Output = dict[str, Any]
#: ``{"op": "add", "output"}``, ``{"op": "set", "index", "output"}`` or ``{"op": "clear"}``. A stream's text
#: that is added goes on in the stream before it, if that has the same name, as in JupyterLab's own model
Change = dict[str, Any]


class CellOutputs(OutputSink):
    """Turns output into changes of a list of outputs; remembers of each only what later ones depend on."""

    is_in_notebook = True

    def __init__(self) -> None:
        self._changes: list[Change] = []
        #: of each output its stream's name, or empty
        self._streams: list[str] = []
        self._displays: dict[str, list[int]] = {}

    def take_changes(self) -> list[Change]:
        """Return the changes since the last call."""
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
                self._set(index, output)
            return
        if display:
            self._displays.setdefault(display, []).append(len(self._streams))
        self._add(output)

    def clear(self, *, wait: bool) -> None:
        """Take away all there is; what comes next is at hand already where ``wait`` is meant."""
        self._changes = [{"op": "clear"}]
        self._streams.clear()
        self._displays.clear()

    def send_comm(self, data: dict[str, Any]) -> None:
        """Nothing: widgets live between kernel and page."""

    def show_traceback(self, ename: str, evalue: str, lines: list[str]) -> None:
        """Add an error."""
        self._add({"output_type": "error", "ename": ename, "evalue": evalue, "traceback": lines})

    def write_payload(self, payload: dict[str, Any]) -> None:
        """Nothing: what a reply does to the page is not repeated."""

    def _add(self, output: Output) -> None:
        self._streams.append("")
        self._changes.append({"op": "add", "output": output})

    def _set(self, index: int, output: Output) -> None:
        last = self._changes[-1] if self._changes else None
        if last is not None and last["op"] == "set" and last["index"] == index:
            last["output"] = output
        else:
            self._changes.append({"op": "set", "index": index, "output": output})
