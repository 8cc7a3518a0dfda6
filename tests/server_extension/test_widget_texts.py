"""The text beside a widget's view: what the widget read last, for pages that know nothing of its model."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpu_release.server_extension.outputs.cell_outputs import CellOutputs
from jupyter_gpu_release.server_extension.outputs.widget_texts import WIDGET_VIEW, WidgetTexts


class Clock:
    """A clock that is put forward by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def opened(model: str, kind: str, **state: Any) -> dict[str, Any]:
    content = {"comm_id": model, "target_name": "jupyter.widget", "data": {"state": {"_model_name": kind, **state}}}
    return {"msg_type": "comm_open", "content": content}


def changed(model: str, **state: Any) -> dict[str, Any]:
    return {"msg_type": "comm_msg", "content": {"comm_id": model, "data": {"method": "update", "state": state}}}


def closed(model: str) -> dict[str, Any]:
    return {"msg_type": "comm_close", "content": {"comm_id": model, "data": {}}}


#: as tqdm makes it
BAR = [
    opened("left", "HTMLModel", value="43%"),
    opened("bar", "FloatProgressModel", value=3.0, min=0.0, max=7.0),
    opened("right", "HTMLModel", value=" 3/7 [00:01&lt;00:02,&nbsp;2.9it/s]"),
    opened("box", "HBoxModel", children=["IPY_MODEL_left", "IPY_MODEL_bar", "IPY_MODEL_right"]),
]


def read(model: str, *messages: dict[str, Any]) -> str | None:
    texts = WidgetTexts()
    for message in messages:
        texts.note(message)
    return texts.text_of(model)


def test_a_bar_reads_as_in_a_terminal() -> None:
    assert read("box", *BAR) == "43% |████      | 3/7 [00:01<00:02, 2.9it/s]"
    ended = [changed("left", value="100%"), changed("bar", value=7.0), changed("right", value=" 7/7 [00:02&lt;00:00]")]
    assert read("box", *BAR, *ended) == "100% |██████████| 7/7 [00:02<00:00]"


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([opened("m", "HTMLModel", value="<b>loss</b> &lt; 1")], "loss < 1"),
        ([opened("m", "IntSliderModel", value=5, description="depth")], "depth 5"),
        ([opened("m", "LabelModel", value="a"), opened("n", "LabelModel", value="b"),
          opened("v", "VBoxModel", children=["IPY_MODEL_m", "IPY_MODEL_n", "IPY_MODEL_v"])], "a\nb"),
        ([opened("v", "ImageModel", value=None)], None),
        ([], None),
        ([*BAR, closed("box")], ""),
    ],
)  # fmt: skip
def test_what_other_widgets_read(messages: list[dict[str, Any]], text: str | None) -> None:
    top = messages[-1]["content"]["comm_id"] if messages else "nobody"
    assert read(top, *messages) == text


def view(model: str, text: str) -> dict[str, Any]:
    return {"text/plain": text, WIDGET_VIEW: {"model_id": model, "version_major": 2}}


def test_a_view_has_its_text_beside_it_which_follows_now_and_then_and_at_the_end() -> None:
    clock = Clock()
    outputs = CellOutputs(clock)
    for message in BAR:
        outputs.send_comm(message)
    outputs.write("stdout", "before\n")
    outputs.publish(view("box", "  0%|          | 0/7"), {}, {})
    _, shown = outputs.take_changes()
    assert shown["output"]["data"] == view("box", "43% |████      | 3/7 [00:01<00:02, 2.9it/s]")
    outputs.send_comm(changed("bar", value=4.0))
    assert outputs.take_changes() == []
    assert outputs.has_news_of_widgets
    clock.now_s = 2.0
    (change,) = outputs.take_changes()
    assert (change["op"], change["index"]) == ("set", 1)
    assert "|█████     |" in change["output"]["data"]["text/plain"]
    outputs.send_comm(changed("bar", value=7.0))
    (change,) = outputs.take_changes(is_last=True)
    assert "|██████████|" in change["output"]["data"]["text/plain"]


def test_what_took_the_place_of_a_view_stays() -> None:
    clock = Clock()
    outputs = CellOutputs(clock)
    outputs.send_comm(BAR[0])
    outputs.publish(view("left", "HTML()"), {}, {"display_id": "d"})
    outputs.publish({"text/plain": "done"}, {}, {"display_id": "d"}, update=True)
    outputs.send_comm(changed("left", value="50%"))
    clock.now_s = 2.0
    assert [change["output"]["data"]["text/plain"] for change in outputs.take_changes()] == ["43%", "done"]


def test_an_output_that_is_no_widget_is_left_as_it_is() -> None:
    outputs = CellOutputs()
    outputs.publish(view("unknown", "HTML()"), {}, {})
    outputs.clear(wait=False)
    outputs.publish(view("unknown", "HTML()"), {}, {})
    assert outputs.take_changes(is_last=True)[-1]["output"]["data"] == view("unknown", "HTML()")
