"""A cell's outputs as a page that was reopened gets them."""

from __future__ import annotations

from typing import Any

from jupyter_gpu_release.server_extension.outputs.cell_outputs import CellOutputs


def _texts(outputs: CellOutputs) -> list[Any]:
    """The outputs after all changes, as a page has them."""
    shown: list[Any] = []
    for change in outputs.take_changes():
        if change["op"] == "clear":
            shown.clear()
        elif change["op"] == "set":
            shown[change["index"]] = change["output"]
        else:
            shown.append(change["output"])
    return [each.get("text") or each["data"]["text/plain"] for each in shown]


def _publish(outputs: CellOutputs, text: str, display: str = "", *, update: bool = False) -> None:
    outputs.publish({"text/plain": text}, {}, {"display_id": display}, update=update)


def test_all_displays_of_one_id_are_updated_wherever_they_are() -> None:
    outputs = CellOutputs()
    _publish(outputs, "0 %", "bar")
    outputs.write("stdout", "between\n")
    _publish(outputs, "a table")
    _publish(outputs, "0 %", "bar")
    _publish(outputs, "100 %", "bar", update=True)
    _publish(outputs, "nobody's", "other", update=True)
    assert _texts(outputs) == ["100 %", "between\n", "a table", "100 %"]


def test_what_was_cleared_is_updated_no_more() -> None:
    outputs = CellOutputs()
    _publish(outputs, "gone", "bar")
    outputs.clear(wait=False)
    outputs.write("stdout", "one ")
    outputs.write("stdout", "text")
    _publish(outputs, "100 %", "bar", update=True)
    assert _texts(outputs) == ["one text"]
    outputs.write("stdout", ", which goes on")
    _publish(outputs, "0 %", "bar")
    for text in ("50 %", "100 %"):
        _publish(outputs, text, "bar", update=True)
    *_, last = outputs.take_changes()
    assert (last["index"], last["output"]["data"]) == (1, {"text/plain": "100 %"})
