"""OutputSink: anything that takes a cell's output, as a kernel would send it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class OutputSink(ABC):
    """Takes output in its order. Called by whoever follows a run, on that one's thread; no method may block."""

    #: a display can be brought up to date in place
    is_in_notebook: bool

    @abstractmethod
    def write(self, name: str, text: str) -> None:
        """Append text to ``stdout`` or ``stderr``."""

    @abstractmethod
    def publish(
        self, data: dict[str, Any], metadata: dict[str, Any], transient: dict[str, Any], *, update: bool = False
    ) -> None:
        """Show a display, or bring the one with the same ``display_id`` up to date."""

    @abstractmethod
    def clear(self, *, wait: bool) -> None:
        """Take away what the cell has shown (``wait``: when the next output comes)."""

    @abstractmethod
    def send_comm(self, data: dict[str, Any]) -> None:
        """Pass a widget's message on."""

    @abstractmethod
    def show_traceback(self, ename: str, evalue: str, lines: list[str]) -> None:
        """Show an error that does not end the cell."""

    @abstractmethod
    def write_payload(self, payload: dict[str, Any]) -> None:
        """Have the cell's reply open the pager, or fill the cell."""
