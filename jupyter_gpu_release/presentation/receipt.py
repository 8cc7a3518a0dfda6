"""The line under a finished cell: what it took, for how long, how soon it was free, and what came back."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ..protocol.runs import FileInfo, KeptLease, Outcome, RunView, ValueInfo
from ..units import format_bytes, format_count, format_seconds, round_number
from .gpu_use import judge
from .plain_text import without_backticks
from .wording import describe_pauses, describe_wait, format_clock, kept_words, moments_of, run_word

_BOLD_RED, _PLAIN = "\x1b[1;31m", "\x1b[0m"
_CODE = re.compile(r"`([^`\n]+)`")
_SHOWN_NAMES = 8
_SHOWN_FILES = 6
_SMALL_BYTES = 1024
#: a rank is ready sooner, unless it has to import or to load much
_EARLY_S = 0.5
_COLOURS = {
    "✓": "var(--jp-success-color1, #388e3c)",
    "✗": "var(--jp-error-color1, #d32f2f)",
    "■": "var(--jp-warn-color1, #f57c00)",
}
_HEADS = {
    "ok": ("✓", ""),
    "error": ("✗", "failed"),
    "interrupted": ("■", "cancelled: interrupted"),
    "timeout": ("■", "failed: stopped at its --timeout"),
    "died": ("✗", "failed: the cell's process died"),
    "memory": ("✗", "failed: ended for its memory"),
    "lost": ("✗", "lost"),
}
_BEFORE_GRANT = {"interrupted": "cancelled while queued", "timeout": "failed: gave up waiting"}
#: the queue where there is one for all, and the priority of who asks for none
_ONE_QUEUE, _USUAL_PRIORITY = "default", "normal"
_STATES = {"succeeded": "ok", "failed": "error", "cancelled": "interrupted", "lost": "lost"}


@dataclass(frozen=True)
class Receipt:
    """The parts of a receipt in reading order; ``warnings`` are loud, ``notes`` quiet."""

    sign: str
    parts: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    #: moments (unix seconds) that the words tell as times
    moments: tuple[float, ...] = ()

    @property
    def text(self) -> str:
        """Plain text, one line and one more for each warning and note."""
        lines = [f"{self.sign} {' · '.join(self.parts)}"]
        lines += [f"  ⚠ {warning}" for warning in self.warnings]
        lines += [f"  · {note}" for note in self.notes]
        return without_backticks("\n".join(lines))

    @property
    def below_traceback(self) -> str:
        """The same for the end of a traceback, where only colour tells it from the frames above."""
        word, *others = self.parts
        rest = "".join(f" · {part}" for part in others)
        lines = [f"{self.sign} {_BOLD_RED}{word}{_PLAIN}{rest}"]
        lines += [f"  {_BOLD_RED}⚠ {warning}{_PLAIN}" for warning in self.warnings]
        lines += [f"  · {note}" for note in self.notes]
        return without_backticks("\n".join(lines))

    @property
    def html(self) -> str:
        """The same for notebooks, in the colours of the reader's theme; no scripts."""
        colour = _COLOURS[self.sign]
        first = " · ".join(to_html(part, self.moments) for part in self.parts)
        rows = [f'<span style="color:{colour};font-weight:600">{self.sign}</span> {first}']
        for warning in self.warnings:
            style = f"color:{_COLOURS['✗']};font-weight:600"
            rows.append(f'<span style="{style}">⚠ {to_html(warning, self.moments)}</span>')
        rows += [f'<span style="opacity:.75">· {to_html(note, self.moments)}</span>' for note in self.notes]
        return boxed_html("<br>".join(rows), colour)

    def bundle(self) -> dict[str, str]:
        """The display data."""
        return bundle_of(self.text, self.html)

    def metadata(self) -> dict[str, Any]:
        """The measured facts, for programs that read the notebook."""
        return {"jupyter_gpu_release": self.facts}


def to_html(text: str, moments: tuple[float, ...] = ()) -> str:
    """The text for a page: code for what stands in backticks, ``moments`` so that JupyterLab shows them in its zone.

    The moment is in a class as well: a page that is not trusted keeps no other attribute.
    """
    page = _CODE.sub(r"<code>\1</code>", html.escape(text))
    for clock, at_s in {format_clock(at_s): at_s for at_s in moments}.items():
        moment = datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        page = page.replace(
            clock, f'<time class="jgr-clock jgr-at-{round_number(at_s)}" datetime="{moment}">{clock}</time>', 1
        )
    return page


def bundle_of(text: str, page: str) -> dict[str, str]:
    """The representations of a line of ours; LaTeX is for notebooks that are exported to PDF."""
    plain = without_backticks(text)
    return {"text/plain": plain, "text/html": page, "text/latex": f"\\begin{{verbatim}}\n{plain}\n\\end{{verbatim}}"}


def boxed_html(content: str, colour: str = "var(--jp-border-color1, #9e9e9e)") -> str:
    """Wrap HTML in the frame that status line and receipt share."""
    style = (
        f"border-left:3px solid {colour};padding:2px 8px;margin:2px 0;"
        "font-family:var(--jp-ui-font-family, sans-serif);font-size:var(--jp-ui-font-size1, 13px);"
        "color:var(--jp-ui-font-color1, var(--vscode-foreground, inherit))"
    )
    return f'<div style="{style}">{content}</div>'


def make_receipt(view: RunView, *, came_back: Sequence[ValueInfo] | None = None, notes: Sequence[str] = ()) -> Receipt:
    """Write the receipt of an ended run; ``came_back``: what was bound (None: what the outcome lists)."""
    outcome = view.outcome or Outcome(status=_STATES.get(view.state, "lost"))
    sign, word = _HEADS.get(outcome.status, ("✗", outcome.status))
    if view.granted_at is None:
        word = _BEFORE_GRANT.get(outcome.status, word)
    if outcome.status == "error" and outcome.error is not None:
        word = f"failed: {outcome.error.ename}"
    if view.cause is not None and outcome.status in ("interrupted", "died"):  # somebody has cancelled it
        sign, word = "■", view.reason + (" while queued" if view.granted_at is None else "")
    results = outcome.results if came_back is None else came_back
    parts = [word, _gpus(view), *_times(view), _left(outcome)]
    parts += [_names(results, outcome), _files(outcome.files), f"run {view.run}"]
    remarks = judge(view, outcome) if view.gpus and not view.simulated else []
    quiet = [view.built] if view.built else []
    quiet += [verdict.text for verdict in remarks if not verdict.loud]
    if view.waits_for is not None and view.waits_for.reason:
        quiet.append(f"{run_word('persisting')}: {describe_wait(view.waits_for)}")
    return Receipt(
        sign=sign,
        parts=tuple(part for part in parts if part),
        warnings=tuple(verdict.text for verdict in remarks if verdict.loud),
        notes=tuple(dict.fromkeys([*quiet, *describe_pauses(view), *outcome.notes, *notes])),
        facts=_facts(view, outcome, results),
        moments=moments_of(view),
    )


def name_gpus(view: RunView) -> str:
    """``2 simulated GPUs``, ``1 GPU (NVIDIA H100)``, ``no GPU``."""
    if view.gpus == 0:
        return "no GPU"
    of = f" of {view.most_gpus}" if view.gpus < view.most_gpus else ""
    plural = "" if max(view.gpus, view.most_gpus) == 1 else "s"
    gpu = f" ({view.gpu_name})" if view.gpu_name and not view.simulated else ""
    return f"{view.gpus}{of} {'simulated ' if view.simulated else ''}GPU{plural}{gpu}"


def name_lease(view: RunView) -> str:
    """Name what the run takes: its GPUs, or the cores of a CPU stage."""
    return name_gpus(view) if view.gpus else "CPU cores"


def _gpus(view: RunView) -> str:
    if view.granted_at is None:
        return "no GPU was taken"
    if view.gpus == 0:
        return "CPU stage, no GPU taken" + (f", {view.ranks} ranks" if view.ranks > 1 else "")
    ranks = f", {view.ranks} ranks" if view.ranks > 1 else ""
    kept = ", kept by the cell before" if view.on_kept else ""
    others = f", shared with {format_count(view.shared_with, 'other run')}" if view.shared_with else ""
    return name_gpus(view) + ranks + kept + others


def _times(view: RunView) -> list[str]:
    parts = []
    queued_s = _queued_s(view)
    if queued_s is not None:
        parts.append(_queued(view, queued_s))
        held = held_s(view)
        if held is not None:
            parts.append(f"held {format_seconds(held)}{_not_its_own(view)}")
    elif view.finished_at is not None:
        parts.append(_queued(view, max(0.0, view.finished_at - view.submitted_at)))
    if view.kept is not None:
        parts.append(_kept(view, view.kept))
    elif view.release_ms is not None:
        free = "free" if view.gpus else "cores free"
        parts.append(f"{free} {format_seconds(max(0.0, view.release_ms) / 1000)} after the last statement")
    return parts


def _not_its_own(view: RunView) -> str:
    """The part of the time held that the cell's statements had nothing of, where that is worth a word."""
    if view.granted_at is None or view.running_at is None:
        return ""
    early_s = view.running_at - view.granted_at
    return f" ({format_seconds(early_s)} before its first statement)" if early_s >= _EARLY_S else ""


def _queued(view: RunView, queued_s: float) -> str:
    """``queued 4 ms in research (priority high)``: where there are queues, and for a priority that was asked for."""
    queue = "" if view.queue == _ONE_QUEUE else f" in {view.queue}"
    priority = "" if view.priority == _USUAL_PRIORITY else f" (priority {view.priority})"
    return f"queued {format_seconds(queued_s)}{queue}{priority}"


def _kept(view: RunView, kept: KeptLease) -> str:
    one = view.gpus == 1
    return f"GPU{'' if one else 's'} {kept_words(kept)}: `%gpu_release` gives {'it' if one else 'them'} back"


def held_s(view: RunView) -> float | None:
    """Seconds from grants to the leases' ends; None while one is held or when none ever was."""
    if view.granted_at is None or view.gone_at is None:
        return None
    spans = [(past.granted_at, past.gone_at) for past in view.attempts]
    return sum(max(0.0, gone - granted) for granted, gone in [*spans, (view.granted_at, view.gone_at)])


def _queued_s(view: RunView) -> float | None:
    """Seconds from the submission to the first grant."""
    first = view.attempts[0].granted_at if view.attempts else view.granted_at
    return None if first is None else max(0.0, first - view.submitted_at)


def _left(outcome: Outcome) -> str:
    use = outcome.gpu_use
    return "0 MiB left on the device" if use is not None and use.left_bytes == 0 else ""


def _names(results: Sequence[ValueInfo], outcome: Outcome) -> str:
    if not results:
        return "its names are gone" if outcome.status == "lost" else ""  # else the error says so
    return f"back: {list_names(results)}"


def list_names(results: Sequence[ValueInfo]) -> str:
    """``model (Net, 12 KiB), loss (float) and 3 more``."""
    return _listed([_value(value) for value in results], _SHOWN_NAMES)


def _value(value: ValueInfo) -> str:
    size = format_bytes(value.bytes) if value.bytes >= _SMALL_BYTES else ""
    facts = ", ".join(fact for fact in (value.type, size) if fact)
    return f"{value.name} ({facts})" if facts else value.name


def _files(files: Sequence[FileInfo]) -> str:
    if not files:
        return ""
    return f"files: {_listed([f'{file.path} ({format_bytes(file.bytes)})' for file in files], _SHOWN_FILES)}"


def _listed(words: Sequence[str], most: int) -> str:
    shown = ", ".join(words[:most])
    return f"{shown} and {len(words) - most} more" if len(words) > most else shown


def _facts(view: RunView, outcome: Outcome, results: Sequence[ValueInfo]) -> dict[str, Any]:
    rounded: Callable[[float | None], float | None] = lambda number: None if number is None else round_number(number, 3)  # noqa: E731
    return {
        "run": view.run,
        "status": outcome.status,
        "gpus": view.gpus,
        "simulated": view.simulated,
        "queued_s": rounded(_queued_s(view)),
        "held_s": rounded(held_s(view)),
        "release_ms": rounded(view.release_ms),
        **({"kept_until": rounded(view.kept.until)} if view.kept is not None else {}),
        **({"on_kept": True} if view.on_kept else {}),
        **({"attempts": len(view.attempts) + 1} if view.attempts else {}),
        **({"queue": view.queue} if view.queue != _ONE_QUEUE else {}),
        **({"priority": view.priority} if view.priority != _USUAL_PRIORITY else {}),
        **({"environment": view.environment_digest} if view.environment_digest else {}),
        "results": [{"name": value.name, "type": value.type, "bytes": value.bytes} for value in results],
        "files": [file.path for file in outcome.files],
    }


_SHORT_S = 0.1
_MANY = 20
_HINT = (
    f"{_MANY} GPU cells of this notebook held their GPU for less than {_SHORT_S:g} s: only what trains needs "
    "%%gpu_train, everything else runs in the notebook itself"
)


class ShortCells:
    """Counts the GPU cells that hardly used the time of their GPU; the hint comes once."""

    def __init__(self) -> None:
        self._count = 0

    def hint(self, view: RunView) -> list[str]:
        """Count a finished run; returns the hint with the twentieth short one, else nothing."""
        seconds = held_s(view)
        if not view.gpus or seconds is None or seconds >= _SHORT_S:
            return []
        self._count += 1
        return [_HINT] if self._count == _MANY else []
