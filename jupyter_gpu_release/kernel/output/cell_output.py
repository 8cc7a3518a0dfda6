"""Places where a run's output is shown: below the cell that runs now, or below one that has returned already."""

from __future__ import annotations

import sys
import time
from typing import Any

from ...client.tracebacks import lines_of
from ...presentation.output_sink import OutputSink
from . import widget_models

_BUSY_EVERY_S = 0.5


class CellOutput(OutputSink):
    """Below the cell that runs now, as if it said so itself; a terminal in plain IPython."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._latest = "stdout"
        #: text was written, by us or before, that the kernel has perhaps not sent: it sends its streams at its leisure
        self._is_unsent = True
        #: when the page was last told that the kernel is busy; None: it knows by itself
        self._told_busy_s: float | None = None
        self.is_in_notebook = getattr(shell, "kernel", None) is not None

    def write(self, name: str, text: str) -> None:
        """Append text to ``stdout`` or ``stderr``."""
        if name != self._latest:
            self._flush()
            self._latest = name
        self._is_unsent = True
        (sys.stderr if name == "stderr" else sys.stdout).write(text)

    def publish(
        self, data: dict[str, Any], metadata: dict[str, Any], transient: dict[str, Any], *, update: bool = False
    ) -> None:
        """Show a display, or bring the one with the same ``display_id`` up to date."""
        self._shell.display_pub.publish(data=data, metadata=metadata, transient=transient, update=update)

    def clear(self, *, wait: bool) -> None:
        """Take away what the cell has shown (``wait``: when the next output comes)."""
        self._shell.display_pub.clear_output(wait=wait)

    def send_comm(self, data: dict[str, Any]) -> None:
        """Send a widget's message on as this kernel's own (its metadata names the widget protocol's version)."""
        kernel = getattr(self._shell, "kernel", None)
        if kernel is None:
            return
        content = data.get("content") or {}
        self._flush()  # what is printed in `with out:` stays between the two messages of `out`
        widget_models.note(kernel, data["msg_type"], content, data.get("buffers") or [])
        self._told_busy_s = self._told_busy_s or time.monotonic()
        kernel.session.send(
            kernel.iopub_socket,
            data["msg_type"],
            content,
            metadata=data.get("metadata") or {},
            parent=self._parent(kernel),
            ident=f"comm-{content.get('comm_id', '')}".encode(),
            buffers=data.get("buffers") or None,
        )

    def keep_busy(self) -> None:
        """Tell the page now and then that the kernel is busy: messages of widgets end with an ``idle`` of their own."""
        kernel, now_s = getattr(self._shell, "kernel", None), time.monotonic()
        if kernel is None or self._told_busy_s is None or now_s < self._told_busy_s + _BUSY_EVERY_S:
            return
        self._told_busy_s = now_s
        content = {"execution_state": "busy"}
        kernel.session.send(kernel.iopub_socket, "status", content, parent=self._parent(kernel), ident=b"status")

    def show_error(self, error: BaseException) -> None:
        """Show an exception that nobody raises any more."""
        self.write("stderr", "\n".join([*lines_of(error), ""]))

    def show_traceback(self, ename: str, evalue: str, lines: list[str]) -> None:
        """Show an error that does not end the cell."""
        kernel = getattr(self._shell, "kernel", None)
        if kernel is None:
            self.write("stderr", "\n".join([*lines, ""]))
            return
        self._flush()
        content = {"ename": ename, "evalue": evalue, "traceback": lines}
        kernel.session.send(kernel.iopub_socket, "error", content, parent=self._parent(kernel), ident=b"error")

    def write_payload(self, payload: dict[str, Any]) -> None:
        """Have the cell's reply open the pager, or fill the cell."""
        if self.is_in_notebook:
            self._shell.payload_manager.write_payload(payload)
        elif payload.get("source") == "page":
            self.write("stdout", f"{payload['data'].get('text/plain', '')}\n")
        elif payload.get("source") == "set_next_input":
            self._shell.set_next_input(payload["text"], payload["replace"])

    def _flush(self) -> None:
        if self._is_unsent:
            sys.stdout.flush()
            sys.stderr.flush()
            self._is_unsent = False

    def _parent(self, kernel: Any) -> Any:
        return kernel.get_parent()


class PinnedOutput(CellOutput):
    """Below the cell that makes this object, also when it has returned; usable from any thread.

    Messages carry the cell's header themselves: ipykernel's own streams send what threads print to whichever cell is
    the latest (it can pin threads from 7.4 on only).
    """

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self._kernel = getattr(shell, "kernel", None)
        self._header = self._kernel.get_parent() if self._kernel is not None else None

    def write(self, name: str, text: str) -> None:
        """Append text to ``stdout`` or ``stderr``."""
        if self._kernel is None:
            super().write(name, text)
        elif text:
            self._send("stream", {"name": name, "text": text}, f"stream.{name}")

    def publish(
        self, data: dict[str, Any], metadata: dict[str, Any], transient: dict[str, Any], *, update: bool = False
    ) -> None:
        """Show a display, or bring the one with the same ``display_id`` up to date."""
        if self._kernel is None:
            super().publish(data, metadata, transient, update=update)
        else:
            content = {"data": data, "metadata": metadata, "transient": transient}
            self._send("update_display_data" if update else "display_data", content, "display_data")

    def clear(self, *, wait: bool) -> None:
        """Take away what the cell has shown (``wait``: when the next output comes)."""
        if self._kernel is None:
            super().clear(wait=wait)
        else:
            self._send("clear_output", {"wait": wait}, "display_data")

    def write_payload(self, payload: dict[str, Any]) -> None:
        """The cell has replied already: a page is shown below it."""
        if payload.get("source") == "page":
            self.publish(payload["data"], {}, {})

    def show_error(self, error: BaseException) -> None:
        """Show an exception as the cell's own."""
        if self._kernel is None:
            super().show_error(error)
        else:
            self.show_traceback(type(error).__name__, str(error), lines_of(error))

    def keep_busy(self) -> None:
        """Nothing: the cell has returned."""

    def _send(self, kind: str, content: dict[str, Any], topic: str) -> None:
        kernel = self._kernel
        assert kernel is not None
        kernel.session.send(kernel.iopub_socket, kind, content, parent=self._header, ident=topic.encode(), metadata={})

    def _parent(self, kernel: Any) -> Any:
        return self._header


class SilentOutput(CellOutput):
    """Nowhere."""

    def write(self, name: str, text: str) -> None:
        """Nothing."""

    def publish(
        self, data: dict[str, Any], metadata: dict[str, Any], transient: dict[str, Any], *, update: bool = False
    ) -> None:
        """Nothing."""

    def clear(self, *, wait: bool) -> None:
        """Nothing."""

    def send_comm(self, data: dict[str, Any]) -> None:
        """Nothing."""

    def show_traceback(self, ename: str, evalue: str, lines: list[str]) -> None:
        """Nothing."""

    def write_payload(self, payload: dict[str, Any]) -> None:
        """Nothing."""
