"""A run's recorded output, shown in the notebook as if the cell ran here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..protocol.events import Event
from ..protocol.fetch import FETCH, ITEM, NEXT, REPORT
from .output_sink import OutputSink
from .plain_text import without_backticks
from .rank_output import RankFolds
from .receipt import boxed_html, bundle_of, to_html

_LINE_STARTS = re.compile(r"(?<=[\r\n])(?=[^\r\n])")


#: what a rank above 0 may not do to the cell's output
_OF_ITS_OWN = ("clear_output", "comm", "update_display", "payload")


def _captures(data: dict[str, Any]) -> bool:
    """Tell if a widget takes what follows (``with out:``)."""
    message = (data.get("content") or {}).get("data") or {}
    return bool((message.get("state") or {}).get("msg_id"))


class RunOutput:
    """Shows events in their order. ``before_output`` is called ahead of the first thing shown in each batch.

    ``folds``: what ranks above 0 print is folded in a notebook (then somebody calls :meth:`show_held_back` at the end).
    """

    def __init__(
        self, output: OutputSink, before_output: Callable[[], None] = lambda: None, *, folds: bool = True
    ) -> None:
        self._output = output
        self._before_output = before_output
        #: in a notebook ranks above 0 are folded; a terminal has their lines marked
        self._folds_ranks = folds and output.is_in_notebook
        self._folds: RankFolds | None = None
        #: by stream: the rank whose line is not ended yet
        self._mid_line: dict[str, int] = {}
        self._clear_next = False
        #: a ``clear_output`` took away what was shown before it, a status line too
        self.cleared = False
        #: whether anything was shown
        self.has_shown = False
        #: errors of ranks (``ename``, ``evalue``, ``traceback``, ``rank``), for :meth:`show_other_errors`
        self.errors: list[dict[str, Any]] = []

    def show(self, events: Iterable[Event]) -> None:
        """Show ``events``; text of consecutive events goes out in one piece."""
        for kind, data in _merged(events):
            if kind == "error":
                self.errors.append(data)
                continue
            if kind in ("published", FETCH, NEXT, ITEM, REPORT):  # for programs, not for eyes
                continue
            if data.get("rank") and (kind in _OF_ITS_OWN or self._folds_ranks):
                self._fold(kind, data)
                continue
            if kind == "clear_output" and data.get("wait"):
                self._clear_next = True  # held back until more comes: our own receipt must not be what clears
                continue
            if kind not in ("comm", "payload") or _captures(data):  # the line of ours is no output of a widget
                self._before_output()
                self.has_shown = True
            if self._clear_next and kind in ("stream", "display", "traceback"):
                self._clear(wait=True)
            self._show_one(kind, data)
        if self._folds is not None:
            self._folds.show()

    def show_held_back(self) -> None:
        """No more comes for now: show what was held back."""
        if self._folds is not None:
            self._folds.show(at_once=True)

    def _fold(self, kind: str, data: dict[str, Any]) -> None:
        """Output of another rank; what would change the cell's own (clearing, widgets) does not count."""
        text = data.get("text", "") if kind in ("stream", "note") else ""
        if kind == "display":
            text = f"{(data.get('data') or {}).get('text/plain', '(a display)')}\n"
        if kind == "traceback":
            text = "\n".join([*data["traceback"], ""])
        if text and self._folds_ranks:
            self._before_output()
            self.has_shown = True
            self._write_folded(data, text)

    def _write_folded(self, data: dict[str, Any], text: str) -> None:
        self._folds = self._folds or RankFolds(self._output)
        self._folds.write(data["rank"], _name(data), text)

    def _show_one(self, kind: str, data: dict[str, Any]) -> None:
        if kind == "stream":
            self._write(data)
        elif kind in ("display", "update_display"):
            self._display(data, update=kind == "update_display")
        elif kind == "clear_output":
            self._clear(wait=False)
        elif kind == "comm":
            self._output.send_comm(data)
        elif kind == "payload":
            self._output.write_payload(data)
        elif kind == "traceback":
            self._output.show_traceback(data["ename"], data["evalue"], data["traceback"])
        elif kind == "note":
            self._note(data.get("text", ""))

    def _note(self, text: str) -> None:
        """A line of ours: in a notebook it must not look like an error of the cell's."""
        if self._output.is_in_notebook:
            self._output.publish(bundle_of(text, boxed_html(to_html(text))), {}, {}, update=False)
        else:
            self._output.write("stderr", f"{without_backticks(text)}\n")

    def _clear(self, *, wait: bool) -> None:
        self.cleared, self._clear_next = True, False
        self._output.clear(wait=wait)

    def _write(self, data: dict[str, Any]) -> None:
        name = "stderr" if data.get("name") == "stderr" else "stdout"
        self._output.write(name, self._prefixed(data.get("text", ""), data.get("rank", 0), name, _name(data)))

    def _prefixed(self, text: str, rank: int, name: str, who: str) -> str:
        """Lines of ranks above 0 say whose they are; a rank that speaks into another's line begins a new one."""
        if not text:
            return text
        begun = self._mid_line.pop(name, None)
        if text[-1] not in "\r\n":
            self._mid_line[name] = rank
        break_ = "" if begun in (None, rank) else "\n"
        if rank == 0:
            return break_ + text
        prefix = f"[{who}] "
        head = "" if begun == rank or text[0] in "\r\n" else prefix
        return break_ + head + _LINE_STARTS.sub(prefix, text)

    def _display(self, data: dict[str, Any], *, update: bool) -> None:
        self._output.publish(
            data.get("data") or {}, data.get("metadata") or {}, data.get("transient") or {}, update=update
        )

    def show_other_errors(self, ename: str, evalue: str) -> None:
        """Show the tracebacks of ranks whose error is not the one that the cell raises."""
        for error in self.errors:
            if not error.get("rank") or (error.get("ename"), error.get("evalue")) == (ename, evalue):
                continue
            if error.get("ename") == "KeyboardInterrupt":  # ended because of the first one
                continue
            lines = "\n".join(error.get("traceback") or [f"{error.get('ename')}: {error.get('evalue')}"]) + "\n"
            if self._folds_ranks:
                self._write_folded(error, lines)
            else:
                self._output.write("stderr", self._prefixed(lines, error["rank"], "stderr", _name(error)))
        self.show_held_back()


def _merged(events: Iterable[Event]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Kinds and data, neighbouring text of one stream and rank joined."""
    texts: list[str] = []
    stream: tuple[str, int, str] = ("", 0, "")
    for event in events:
        if event.kind == "stream":
            this = (event.data.get("name", "stdout"), event.data.get("rank", 0), event.data.get("who", ""))
            if texts and this != stream:
                yield "stream", _text(stream, texts)
                texts = []
            stream = this
            texts.append(event.data.get("text", ""))
            continue
        if texts:
            yield "stream", _text(stream, texts)
            texts = []
        yield event.kind, event.data
    if texts:
        yield "stream", _text(stream, texts)


def _text(stream: tuple[str, int, str], texts: list[str]) -> dict[str, Any]:
    return {"name": stream[0], "rank": stream[1], "who": stream[2], "text": "".join(texts)}


def _name(data: dict[str, Any]) -> str:
    return data.get("who") or f"rank {data.get('rank', 0)}"
