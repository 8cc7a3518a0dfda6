"""Recorded output, made short: of a progress bar its last state, of an updated display its last version.

Works on events as they are read, in bounded memory, so that hours of output cost no more than seconds of it. What is
shown in the end is what a reader of the live output saw in the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from ..protocol.events import Event
from ..protocol.fetch import FETCH, ITEM, NEXT, REPORT

_TOKENS = re.compile(r"[^\r\n\b\x1b]+|[\r\n\b]|\x1b\[([0-9;]*)([A-Za-z])|\x1b")
_CUT = re.compile(r"\x1b(\[[0-9;]*)?\Z")
_MOVES = re.compile(r"[\r\b]|\x1b\[[0-9]*[ABKJ]")
#: lines that a nested progress bar may go back over
_MOST_LINES = 20
#: updated displays and widgets whose last version is held back
_MOST_HELD = 200
#: output between two ``clear_output`` that is held back, as a picture that is drawn again and again
_MOST_CLEARED_BYTES = 8 << 20


class _Line:
    __slots__ = ("is_rewritten", "text")

    def __init__(self) -> None:
        self.text = ""
        self.is_rewritten = False


class _TerminalLines:
    """The last lines of one stream, with a cursor, as a terminal has them."""

    def __init__(self) -> None:
        self._lines = [_Line()]
        self._row = self._column = 0
        self._ready: list[str] = []
        #: the first half of a command whose second half is to come
        self._cut = ""

    def write(self, text: str) -> None:
        text = self._cut + text
        cut = _CUT.search(text)
        self._cut = cut[0] if cut is not None else ""
        text = text[: len(text) - len(self._cut)]
        if self._is_plain and _MOVES.search(text) is None:
            whole, newline, rest = text.rpartition("\n")
            if newline:
                self._ready.append(f"{self._lines[0].text}{whole}\n")
                self._lines[0].text = ""
            self._lines[0].text += rest
            self._column = len(self._lines[0].text)
            return
        for token in _TOKENS.finditer(text):
            self._take(token)

    @property
    def _is_plain(self) -> bool:
        return len(self._lines) == 1 and self._column == len(self._lines[0].text) and not self._lines[0].is_rewritten

    def _take(self, token: re.Match[str]) -> None:
        text = token[0]
        line = self._lines[self._row]
        if text == "\n":
            self._newline()
        elif text == "\r":
            self._column, line.is_rewritten = 0, True
        elif text == "\b":
            self._column, line.is_rewritten = max(0, self._column - 1), True
        elif token[2] == "A":
            self._row = max(0, self._row - int(token[1] or 1))
        elif token[2] == "B":
            self._row = min(len(self._lines) - 1, self._row + int(token[1] or 1))
        elif token[2] in ("K", "J"):
            line.text = "" if token[1] == "2" else line.text[: self._column]
        else:
            self._put(line, text)

    def _put(self, line: _Line, text: str) -> None:
        """Over what stands there; how long coloured text looks is not known, so nothing of it stays."""
        end = self._column + len(text)
        coloured = self._column < len(line.text) and ("\x1b" in line.text or "\x1b" in text)
        line.text = line.text[: self._column].ljust(self._column) + text + ("" if coloured else line.text[end:])
        self._column = end

    def _newline(self) -> None:
        self._row, self._column = self._row + 1, 0
        if self._row == len(self._lines):
            self._lines.append(_Line())
        while self._row > 0 and (not self._lines[0].is_rewritten or len(self._lines) > _MOST_LINES):
            self._give_first()

    def _give_first(self) -> None:
        self._ready.append(f"{self._lines.pop(0).text.rstrip(' ')}\n")
        self._row -= 1

    def ready(self) -> str:
        """Take the text that nothing can change any more."""
        text = "".join(self._ready)
        self._ready.clear()
        return text

    def before_display(self) -> str:
        """Take the text that stands above a display that comes now; a progress bar goes on below it."""
        if self._row == len(self._lines) - 1:
            while self._row > 0:
                self._give_first()
            if not self._lines[0].is_rewritten:
                self._ready.append(self._lines[0].text)
                self._lines, self._column = [_Line()], 0
        return self.ready()

    def before_other_text(self) -> str:
        """Take the text above another stream's text that comes now: of progress bars those that have ended."""
        if self._row == len(self._lines) - 1 and not self._lines[self._row].text:
            while self._row > 0:
                self._give_first()
        return self.ready()

    def rest(self) -> str:
        """Everything; the cursor stays in the last line."""
        above = len(self._lines) - 1 - self._row
        cut, self._cut = self._cut, ""
        text = self.ready() + "\n".join(line.text for line in self._lines) + (f"\x1b[{above}A" if above else "") + cut
        self._lines, self._row, self._column = [_Line()], 0, 0
        return text


class OutputCollapser:
    """Takes events in their order and gives those that are worth showing."""

    def __init__(self) -> None:
        self._screens: dict[tuple[str, int], _TerminalLines] = {}
        #: names of processes that are no ranks
        self._who: dict[int, str] = {}
        #: the one that was written to last
        self._writing: tuple[str, int] | None = None
        #: by what they bring up to date
        self._updates: dict[str, Event] = {}
        self._out: list[Event] = []
        #: a ``clear_output`` and what came after it; None: nothing is held back
        self._cleared: list[Event] | None = None
        self._cleared_bytes = 0
        self._clear_next: Event | None = None
        self._last = Event(0, 0.0, "", {})

    def feed(self, events: Iterable[Event]) -> list[Event]:
        """Take ``events`` in; returns what can be shown by now."""
        for event in events:
            self._last = event
            if event.kind == "clear_output":
                self._on_clear(event)
                continue
            if self._clear_next is not None and event.kind in ("stream", "display", "traceback"):
                self._clear(self._clear_next)
            self._take(event)
        self._give_text()
        out, self._out = self._out, []
        return out

    def rest(self) -> list[Event]:
        """All that is still held back; live output can follow it."""
        self._give_text()
        for key, screen in self._screens.items():
            self._text(key, screen.rest())
        self._give_updates(0)
        if self._clear_next is not None:
            self._give(self._clear_next)
            self._clear_next = None
        out = [*(self._cleared or ()), *self._out]
        self._out, self._cleared = [], None
        return out

    def _take(self, event: Event) -> None:
        if event.kind == "stream":
            rank = event.data.get("rank", 0)
            if "who" in event.data:
                self._who[rank] = event.data["who"]
            self._write((event.data.get("name", "stdout"), rank), event.data.get("text", ""))
        elif event.kind in ("published", FETCH, NEXT, ITEM, REPORT):
            return
        elif (key_of_update := _updates(event)) is not None:
            earlier = self._updates.pop(key_of_update, None)
            self._updates[key_of_update] = event if earlier is None else _joined(earlier, event)
            self._give_updates(_MOST_HELD)
        else:
            for key, screen in self._screens.items():
                self._text(key, screen.before_display())
            self._give(event)

    def _write(self, key: tuple[str, int], text: str) -> None:
        """Streams that take turns (a bar, a line, the next bar) keep their order."""
        if key != self._writing and self._writing in self._screens:
            self._text(self._writing, self._screens[self._writing].before_other_text())
        self._writing = key
        self._screens.setdefault(key, _TerminalLines()).write(text)

    def _on_clear(self, event: Event) -> None:
        if event.data.get("wait"):
            self._clear_next = event
        else:
            self._clear(event)

    def _clear(self, event: Event) -> None:
        """All that came before is gone; what of it was held back is never shown."""
        if self._cleared is None:
            self._give_text()
        self._clear_next = None
        self._screens.clear()
        self._updates.clear()
        at_once = msgspec.structs.replace(event, data={"wait": False})
        self._cleared, self._cleared_bytes = [at_once], 0

    def _give_text(self) -> None:
        for key, screen in self._screens.items():
            self._text(key, screen.ready())

    def _text(self, key: tuple[str, int], text: str) -> None:
        if text:
            name, rank = key
            data: dict[str, Any] = {"name": name, "text": text} | ({"rank": rank} if rank else {})
            data |= {"who": self._who[rank]} if rank in self._who else {}
            self._give(Event(self._last.n, self._last.at_s, "stream", data))

    def _give_updates(self, most: int) -> None:
        while len(self._updates) > most:
            self._give(self._updates.pop(next(iter(self._updates))))

    def _give(self, event: Event) -> None:
        if self._cleared is None:
            self._out.append(event)
            return
        self._cleared.append(event)
        self._cleared_bytes += len(str(event.data))
        if self._cleared_bytes > _MOST_CLEARED_BYTES:
            self._out += self._cleared
            self._cleared = None


def _updates(event: Event) -> str | None:
    """Name of the display or widget that the event brings up to date (None: neither)."""
    if event.kind == "update_display":
        return f"display {(event.data.get('transient') or {}).get('display_id')}"
    if event.kind == "comm" and _state_of(event) is not None:
        return f"comm {event.data['content'].get('comm_id')}"
    return None


def _state_of(event: Event) -> dict[str, Any] | None:
    content = event.data.get("content")
    if event.data.get("msg_type") != "comm_msg" or not isinstance(content, dict) or event.data.get("buffers"):
        return None
    data = content.get("data")
    if not isinstance(data, dict) or data.get("method") != "update" or not isinstance(data.get("state"), dict):
        return None
    state: dict[str, Any] = data["state"]
    return state


def _joined(earlier: Event, later: Event) -> Event:
    """Join a widget's updates, each of which names only what changed."""
    before, after = _state_of(earlier), _state_of(later)
    if before is None or after is None:
        return later
    content = later.data["content"]
    data = {**content["data"], "state": {**before, **after}}
    return msgspec.structs.replace(later, data={**later.data, "content": {**content, "data": data}})
