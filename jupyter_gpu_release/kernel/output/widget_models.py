"""The models of widgets that GPU cells made: they stay in the kernel, so that a page that is loaded again finds them.

The widgets' own objects ended with their cell. A page asks a kernel for the models in one of two ways, and is answered
as by a plain kernel: where ipywidgets is imported, it sends all that its table of widgets has
(:class:`JoinIpywidgets`); else the page asks each comm by itself.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

_TARGET = "jupyter.widget"
_VERSION = {"version": "2.1.0"}


class WidgetModel:
    """One model as the page knows it: a comm of the kernel's, and a row in the table of ipywidgets."""

    target_name = _TARGET

    def __init__(self, kernel: Any, comm_id: str, state: dict[str, Any]) -> None:
        self._kernel = kernel
        self.comm_id = self.model_id = comm_id
        self._state = state

    @property
    def _model_name(self) -> Any:
        return self._state.get("_model_name")

    @property
    def _model_module(self) -> Any:
        return self._state.get("_model_module")

    @property
    def _model_module_version(self) -> Any:
        return self._state.get("_model_module_version")

    def update(self, data: dict[str, Any], buffers: list[Any]) -> None:
        """Take over what a message changes."""
        self._state.update(_state_of(data, buffers))

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> dict[str, Any]:
        """The state, as ipywidgets asks each of its widgets for it."""
        return dict(self._state)

    def _get_embed_state(self, drop_defaults: bool = False) -> dict[str, Any]:
        """The state as a page that is saved embeds it."""
        state, _, _ = without_buffers(self._state)
        return {
            "model_name": self._model_name,
            "model_module": self._model_module,
            "model_module_version": self._model_module_version,
            "state": state,
        }

    def handle_msg(self, msg: dict[str, Any]) -> None:
        """A page's message: it asks for the state, or the user moved something, which nobody hears any more."""
        data = msg["content"].get("data") or {}
        if data.get("method") == "update":
            self.update(data, msg.get("buffers") or [])
        elif data.get("method") == "request_state":
            state, paths, buffers = without_buffers(self._state)
            content = {"comm_id": self.comm_id, "data": {"method": "update", "state": state, "buffer_paths": paths}}
            self._kernel.session.send(
                self._kernel.iopub_socket,
                "comm_msg",
                content,
                metadata=_VERSION,
                parent=msg,
                buffers=buffers or None,
                ident=f"comm-{self.comm_id}".encode(),
            )

    def handle_close(self, msg: dict[str, Any]) -> None:
        """A page closed it."""
        forget(self._kernel, self.comm_id)

    def close(self) -> None:
        """Close it, with all of ipywidgets' own (``Widget.close_all``)."""
        forget(self._kernel, self.comm_id)


def note(kernel: Any, kind: str, content: dict[str, Any], buffers: list[Any]) -> None:
    """Keep up with a widget's message that is sent on to the page."""
    manager, comm_id = getattr(kernel, "comm_manager", None), content.get("comm_id", "")
    if manager is None:
        return
    known, data = manager.comms.get(comm_id), content.get("data") or {}
    if kind == "comm_open" and content.get("target_name") == _TARGET:
        manager.comms[comm_id] = WidgetModel(kernel, comm_id, _state_of(data, buffers))
        _join_after_each_cell(kernel)
    elif isinstance(known, WidgetModel) and kind == "comm_close":
        forget(kernel, comm_id)
    elif isinstance(known, WidgetModel) and data.get("method") in ("update", "echo_update"):
        known.update(data, buffers)


def forget(kernel: Any, comm_id: str) -> None:
    """Let go of a model that was closed."""
    kernel.comm_manager.comms.pop(comm_id, None)
    table = _table_of_ipywidgets()
    if table is not None and isinstance(table.get(comm_id), WidgetModel):
        del table[comm_id]


class JoinIpywidgets:
    """Puts the models into the table from which ipywidgets answers a page: after each cell, it may just be imported."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __call__(self, result: Any = None) -> None:
        """IPython calls it after each cell."""
        table = _table_of_ipywidgets()
        if table is None:
            return
        for comm_id, model in list(self._kernel.comm_manager.comms.items()):
            if isinstance(model, WidgetModel):
                table.setdefault(comm_id, model)


def _join_after_each_cell(kernel: Any) -> None:
    events = kernel.shell.events
    if not any(isinstance(each, JoinIpywidgets) for each in events.callbacks["post_run_cell"]):
        events.register("post_run_cell", JoinIpywidgets(kernel))


def _table_of_ipywidgets() -> dict[str, Any] | None:
    module = sys.modules.get("ipywidgets.widgets.widget")
    table = getattr(module, "_instances", None)
    return table if isinstance(table, dict) else None


def _state_of(data: dict[str, Any], buffers: list[Any]) -> dict[str, Any]:
    """The message's state with its buffers where they belong."""
    state: dict[str, Any] = dict(data.get("state") or {})
    for path, buffer in zip(data.get("buffer_paths") or [], buffers, strict=False):
        *parents, last = path
        place: Any = state
        for step in parents:
            place = place[step]
        place[last] = bytes(buffer)
    return state


def without_buffers(state: dict[str, Any]) -> tuple[Any, list[list[Any]], list[bytes]]:
    """The state without what JSON cannot say, and where that belongs."""
    found = list(_buffers(state, []))
    return _plain(state), [path for path, _ in found], [buffer for _, buffer in found]


def _buffers(value: Any, path: list[Any]) -> Iterator[tuple[list[Any], bytes]]:
    if isinstance(value, bytes):
        yield path, value
        return
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, part in steps:
        yield from _buffers(part, [*path, step])


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items() if not isinstance(part, bytes)}
    if isinstance(value, list):
        return [None if isinstance(part, bytes) else _plain(part) for part in value]
    return value
