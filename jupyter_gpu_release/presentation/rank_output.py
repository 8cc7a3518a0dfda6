"""Output of the ranks above 0: one collapsed part per rank, below the cell's own output, brought up to date."""

from __future__ import annotations

import html
import secrets
import time
from collections import deque

from .output_sink import OutputSink
from .plain_text import without_colours

_PAUSE_S = 0.3
_MOST_LINES = 200
_LONGEST_LINE = 2000
_TAIL_LINES = 3
_STYLE = "margin:0;max-height:20em;overflow:auto"


class _Fold:
    """The last lines of one rank; of a progress bar its last state."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_MOST_LINES)
        self._line = ""
        self.count = 0

    def write(self, text: str) -> None:
        *whole, rest = without_colours(text).split("\n")
        for piece in whole:
            self._write_over(piece)
            self._lines.append(self._line.removesuffix("\r"))
            self._line = ""
            self.count += 1
        self._write_over(rest)

    def _write_over(self, piece: str) -> None:
        for number, part in enumerate(piece.split("\r")):
            if number and part:
                self._line = ""
            self._line = (self._line + part)[:_LONGEST_LINE]

    def lines(self) -> list[str]:
        return [*self._lines, *([self._line] if self._line else [])]


class RankFolds:
    """One display for all ranks; everything is in the run's log (``%gpu_logs``) as well."""

    def __init__(self, output: OutputSink) -> None:
        self._output = output
        self._folds: dict[int, _Fold] = {}
        self._names: dict[int, str] = {}
        self._display = {"display_id": f"gpu-ranks-{secrets.token_hex(8)}"}
        self._is_shown = False
        self._is_behind = False
        self._next_at = 0.0

    def write(self, rank: int, name: str, text: str) -> None:
        """Add text of ``rank``; ``name``: how it is called."""
        self._names[rank] = name
        self._folds.setdefault(rank, _Fold()).write(text)
        self._is_behind = True

    def show(self, *, at_once: bool = False) -> None:
        """Bring the display up to date, a few times a second at most."""
        if not self._is_behind or (time.monotonic() < self._next_at and not at_once):
            return
        self._is_behind, self._next_at = False, time.monotonic() + _PAUSE_S
        data = {"text/html": self._html(), "text/plain": self._plain()}
        self._output.publish(data, {}, self._display, update=self._is_shown)
        self._is_shown = True

    def _html(self) -> str:
        parts = []
        for rank, fold in sorted(self._folds.items()):
            lines = fold.lines()
            cut = f"… the last {len(lines)} of {fold.count} lines\n" if fold.count > len(lines) else ""
            last = html.escape(next((line for line in reversed(lines) if line.strip()), "")[:120])
            body = html.escape(cut + "\n".join(lines))
            parts.append(
                f"<details><summary>[{html.escape(self._names[rank])}] {last}</summary>"
                f'<pre style="{_STYLE}">{body}</pre></details>'
            )
        return "".join(parts)

    def _plain(self) -> str:
        return "\n".join(
            f"[{self._names[rank]}] {line}"
            for rank, fold in sorted(self._folds.items())
            for line in fold.lines()[-_TAIL_LINES:]
        )
