"""Models of widgets that outlive their GPU cell: what a page is told that asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from ipywidgets import Widget
from ipywidgets.widgets import widget as ipywidgets_widget

from jupyter_gpu_release.kernel.output.widget_models import WidgetModel, note

STATE = {"_model_name": "ImageModel", "_model_module": "@jupyter-widgets/controls", "_model_module_version": "2.0.0"}


class _Session:
    def __init__(self) -> None:
        self.sent: list[tuple[str, dict[str, Any], dict[str, Any]]] = []

    def send(self, stream: Any, kind: str, content: dict[str, Any], **more: Any) -> None:
        self.sent.append((kind, content, more))


class _Events:
    def __init__(self) -> None:
        self.callbacks: dict[str, list[Any]] = {"post_run_cell": []}

    def register(self, event: str, function: Any) -> None:
        self.callbacks[event].append(function)


@pytest.fixture
def kernel() -> Iterator[Any]:
    made = SimpleNamespace(
        comm_manager=SimpleNamespace(comms={}),
        session=_Session(),
        iopub_socket=None,
        shell=SimpleNamespace(events=_Events()),
    )
    yield made
    for comm in list(made.comm_manager.comms.values()):
        comm.close()
    assert not [each for each in ipywidgets_widget._instances.values() if isinstance(each, WidgetModel)]


def _open(kernel: Any, comm_id: str, **state: Any) -> None:
    data = {"state": {**STATE, **state}, "buffer_paths": [["value"], ["tiles", 1, "raw"]]}
    content = {"comm_id": comm_id, "target_name": "jupyter.widget", "data": data}
    note(kernel, "comm_open", content, [memoryview(b"png"), b"tile"])


def test_a_page_that_asks_for_a_model_gets_its_last_state(kernel: Any) -> None:
    _open(kernel, "m1", tiles=[{"at": 0}, {"at": 1}], width="3")
    change = {"method": "update", "state": {"width": "9"}, "buffer_paths": [["value"]]}
    note(kernel, "comm_msg", {"comm_id": "m1", "data": change}, [b"newer"])
    note(kernel, "comm_msg", {"comm_id": "m1", "data": {"method": "custom", "content": 1}}, [])
    note(kernel, "comm_msg", {"comm_id": "m1", "data": {"method": "echo_update", "state": {"min": 2}}}, [])
    moved = {"content": {"data": {"method": "update", "state": {"max": 7}}}}
    kernel.comm_manager.comms["m1"].handle_msg(moved)
    asked = {"content": {"data": {"method": "request_state"}}, "header": {"msg_id": "ask"}}
    kernel.comm_manager.comms["m1"].handle_msg(asked)
    [(kind, content, more)] = kernel.session.sent
    assert (kind, content["comm_id"], more["parent"]) == ("comm_msg", "m1", asked)
    assert content["data"]["state"] == {**STATE, "tiles": [{"at": 0}, {"at": 1}], "width": "9", "min": 2, "max": 7}
    told = dict(zip(map(str, content["data"]["buffer_paths"]), more["buffers"], strict=True))
    assert told == {"['tiles', 1, 'raw']": b"tile", "['value']": b"newer"}


def test_ipywidgets_sends_them_with_its_own(kernel: Any) -> None:
    _open(kernel, "m2", tiles=[{}, {}])
    _open(kernel, "m3", tiles=[{}, {}])
    [after_cell] = kernel.shell.events.callbacks["post_run_cell"]  # once, however many there are
    after_cell()
    told: dict[str, Any] = Widget.get_manager_state()["state"]
    assert told["m2"]["model_name"] == "ImageModel"
    assert "value" not in told["m2"]["state"]
    assert ipywidgets_widget._instances["m2"].get_state()["value"] == b"png"
    note(kernel, "comm_close", {"comm_id": "m2"}, [])
    assert "m2" not in Widget.get_manager_state()["state"]
    assert list(kernel.comm_manager.comms) == ["m3"]


def test_comms_of_others_are_left_alone(kernel: Any) -> None:
    note(kernel, "comm_open", {"comm_id": "x", "target_name": "bokeh", "data": {}}, [])
    note(kernel, "comm_msg", {"comm_id": "y", "data": {"method": "update", "state": {}}}, [])
    assert kernel.comm_manager.comms == {}
