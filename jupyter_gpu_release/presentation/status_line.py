"""One line that says where a run stands: the heading above its output, or what becomes the receipt."""

from __future__ import annotations

import secrets
import sys
from typing import Any

from .output_sink import OutputSink
from .plain_text import without_backticks
from .receipt import boxed_html, bundle_of, to_html


class StatusLine:
    """A display that is updated in place; in a terminal, a line on stderr."""

    def __init__(self, output: OutputSink, mark: dict[str, Any] | None = None) -> None:
        """``mark``: metadata of the line until it is finished."""
        self._output = output
        self._mark = mark or {}
        self._display_id = f"jgr-{secrets.token_hex(8)}"
        self.is_in_notebook = output.is_in_notebook
        self._text = ""
        self._is_open = False

    @property
    def is_shown(self) -> bool:
        """Tell if a display stands in the notebook that :meth:`finish` would replace."""
        return self.is_in_notebook and bool(self._text)

    def show_text(self, text: str, moments: tuple[float, ...] = ()) -> None:
        """Show ``text``, which tells ``moments`` as times, in place of what the line said before."""
        if text != self._text:
            self.show_bundle(text, bundle_of(text, boxed_html(to_html(text, moments))))

    def show_bundle(self, text: str, bundle: dict[str, str]) -> None:
        """Show a display in the line's place; a terminal gets the ``text``, which says as well what is new."""
        if text == self._text:
            return
        if self.is_in_notebook:
            self._publish(bundle, self._mark, update=bool(self._text))
        else:
            self._say_in_terminal(without_backticks(text))
        self._text = text

    def clear_line(self) -> None:
        """Leave the terminal's line to the cell's own output (nothing to do in a notebook)."""
        if self._is_open:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
            self._is_open = False

    def forget_display(self) -> None:
        """Forget what was shown: it is gone from the notebook (``clear_output``); the next text is a new display."""
        self._text = ""

    def finish(self, bundle: dict[str, str], metadata: dict[str, Any]) -> None:
        """Replace the line by the receipt, or show it below when no line stands."""
        self.clear_line()
        self._publish(bundle, metadata, update=self.is_shown)
        self._text = ""

    def end(self, text: str) -> None:
        """End the message that was shown while waiting: it must not go on saying so. A terminal's line is wiped."""
        if self.is_shown:
            self.finish_plain(text)
        else:
            self.clear_line()

    def finish_plain(self, text: str, metadata: dict[str, Any] | None = None, moments: tuple[float, ...] = ()) -> None:
        """End with a plain ``text`` in place of a receipt."""
        self.finish(bundle_of(text, boxed_html(to_html(text, moments))), metadata or {})

    def _publish(self, bundle: dict[str, str], metadata: dict[str, Any], *, update: bool) -> None:
        transient = {"display_id": self._display_id}
        self._output.publish(bundle, metadata, transient, update=update)

    def _say_in_terminal(self, text: str) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[2K{text}")
            self._is_open = True
        else:
            sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
