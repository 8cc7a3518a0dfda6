"""The text beside a widget's view: what the widget read last, for pages that know nothing of its model."""

from __future__ import annotations

import time
from typing import Any

import ipywidgets
import pytest

from jupyter_gpu_release.server_extension.outputs import widget_texts
from jupyter_gpu_release.server_extension.outputs.cell_outputs import CellOutputs
from jupyter_gpu_release.server_extension.outputs.widget_texts import WIDGET_VIEW, WidgetTexts


class Clock:
    """A clock that is put forward by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def opened(model: str, kind: Any, **state: Any) -> dict[str, Any]:
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
        (
            [
                opened("m", "LabelModel", value="a"),
                opened("n", "LabelModel", value="b"),
                opened("v", "VBoxModel", children=["IPY_MODEL_m", "IPY_MODEL_n", "IPY_MODEL_v"]),
            ],
            "a\nb",
        ),
        ([opened("v", "ImageModel", value=None)], None),
        ([], None),
        ([*BAR, closed("box")], ""),
        ([opened("m", "LabelModel", value="a"), closed("m"), opened("m", "LabelModel", value="b")], "b"),
        ([opened("m", "CheckboxModel", value=True, description="fast")], "fast True"),
        ([opened("m", "ButtonModel", description="<b>Go</b>")], "Go"),
        ([opened("m", "PasswordModel", value="s3cret", description="key")], "key"),
        ([opened("m", "PasswordModel", value="s3cret")], ""),
        ([opened("m", "PasswordModel", value="s3cret"), opened("v", "VBoxModel", children=["IPY_MODEL_m"])], ""),
        ([opened("m", {}, value="s3cret")], None),
        ([opened("m", "SomebodysModel", value="s3cret", description="theirs")], "theirs"),
        ([opened("m", "FloatProgressModel", value="3", min=None, max=[7], description="at")], "at"),
        ([opened("m", "IntProgressModel", value=True, description="at")], "at"),
        ([opened("m", "IntProgressModel", value=1, min=False, max="7")], "|          |"),
        ([opened("m", "IntProgressModel", value=10**400, max=10**401)], "|          |"),
    ],
)
def test_what_other_widgets_read(messages: list[dict[str, Any]], text: str | None) -> None:
    top = messages[-1]["content"]["comm_id"] if messages else "nobody"
    assert read(top, *messages) == text


def test_the_kinds_are_those_of_ipywidgets() -> None:
    classes: list[Any] = [each for each in vars(ipywidgets).values() if isinstance(each, type)]
    kinds = {
        each.class_traits()["_model_name"].default_value for each in classes if issubclass(each, ipywidgets.Widget)
    }
    known = widget_texts._VALUED | widget_texts._PROGRESS | widget_texts._HTML | widget_texts._STACKED
    assert known | {widget_texts._PASSWORD} <= kinds
    assert widget_texts._PASSWORD not in known


@pytest.mark.parametrize(
    "message",
    [
        {"msg_type": "comm_msg", "content": {"comm_id": "m", "data": "text"}},
        {"msg_type": "comm_msg", "content": {"comm_id": "m", "data": ["update"]}},
        {"msg_type": "comm_msg", "content": {"comm_id": "m", "data": {"method": "update", "state": "text"}}},
        {"msg_type": "comm_msg", "content": {"comm_id": ["m"], "data": {"method": "update", "state": {}}}},
        {"msg_type": "comm_msg", "content": "text"},
        {"msg_type": "comm_msg"},
        {"msg_type": "comm_open", "content": {"comm_id": "o", "target_name": "jupyter.widget", "data": "text"}},
        {"msg_type": "comm_open", "content": {"comm_id": "o", "target_name": "theirs", "data": {"state": 1}}},
        changed("m", description=7, max={}, children="IPY_MODEL_m"),
    ],
)
def test_what_a_comm_says_may_be_anything(message: dict[str, Any]) -> None:
    assert read("m", opened("m", "LabelModel", value="a"), message) in ("a", "")
    assert read("o", message) is None


def test_only_what_was_opened_as_a_widget_is_one() -> None:
    theirs = opened("m", "LabelModel", value="a")
    theirs["content"]["target_name"] = "theirs"
    assert read("m", theirs, changed("m", value="b")) is None
    assert read("m", theirs, closed("m")) is None


@pytest.mark.parametrize(
    "messages",
    [
        [opened(str(n), "HBoxModel", children=[f"IPY_MODEL_{n + 1}"] * 2) for n in range(30)],
        [opened(str(n), "HBoxModel", children=[f"IPY_MODEL_{n + 1}"]) for n in range(5000)],
        [opened("0", "HBoxModel", children=["IPY_MODEL_1"] * 300_000), opened("1", "LabelModel", value="a")],
        [opened("0", "HTMLModel", value="<" * 10_000)],
    ],
    ids=["shared", "chain", "wide", "brackets"],
)
def test_a_text_takes_little_time_whatever_the_code_has_made(messages: list[dict[str, Any]]) -> None:
    texts = WidgetTexts()
    for message in messages:
        texts.note(message)
    begin_s = time.process_time()
    text = texts.text_of("0")
    assert time.process_time() - begin_s < 0.2
    assert text is None or len(text) <= 10_000


@pytest.mark.parametrize(
    ("value", "text"), [("", ""), (None, ""), ("x" * 10_001, ""), ("x" * 10_000, "x" * 10_000), ({}, ""), (7, "7")]
)
def test_a_widget_that_was_emptied_reads_nothing(value: Any, text: str) -> None:
    texts = WidgetTexts()
    texts.note(opened("m", "LabelModel", value=""))
    assert texts.text_of("m") is None  # what IPython prints of it stays
    texts.note(changed("m", value="old"))
    assert texts.text_of("m") == "old"
    texts.note(changed("m", value=value))
    assert texts.text_of("m") == text


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
    outputs.clear(wait=False)
    outputs.send_comm(changed("bar", value=1.0))
    assert outputs.take_changes(is_last=True) == [{"op": "clear"}]


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
