"""Tables on the terminal."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from rich import box
from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from ..presentation.wording import gpu_state
from ..protocol.admin import TokenRow
from ..protocol.rest import GpuRow, QueuesDocument, QueueShare, RunRow, StatusDocument
from ..units import format_bytes, format_count, format_seconds
from .checks import BROKEN, NOTE, Finding

_GAP = "  "
_LEAST_LAST = 12


def write_columns(
    console: Console, heads: Sequence[str], rows: Sequence[Sequence[str]], styles: Mapping[str, str]
) -> None:
    """Write the table; only the last column is folded, where the terminal is too narrow for it.

    ``styles``: a cell with one of these texts is drawn in that style.
    """
    columns = [_column(head, [row[at] for row in rows]) for at, head in enumerate(heads)]
    widths = [max(map(_width, set(column))) for column in columns]
    indent = sum(widths[:-1]) + len(_GAP) * (len(widths) - 1)
    room = max(_LEAST_LAST, console.width - indent)
    drawn = {text: _drawn(console, text, style) for text, style in styles.items()}
    bold = {head: _drawn(console, head, "bold") for head in heads}
    padded = [_padded(column, width, bold, drawn) for column, width in zip(columns[:-1], widths[:-1], strict=True)]
    lasts = [_drawn(console, heads[-1], "bold"), *columns[-1][1:]]
    lines: list[str] = []
    for *cells, last in zip(*padded, lasts, strict=True):
        first, *more = textwrap.wrap(last, room) if len(lines) and _width(last) > room else [last]
        lines.append(_GAP.join([*cells, drawn.get(first, first)]).rstrip())
        lines += [" " * indent + line for line in more]
    lines.insert(1, _drawn(console, "─" * min(indent + widths[-1], indent + room), "dim"))
    console.file.write("\n".join(lines) + "\n")


def _column(head: str, cells: list[str]) -> list[str]:
    """Head and cells; what is there many times is looked at once."""
    plain = {cell: _plain(cell) for cell in set(cells)}
    return [head, *map(plain.__getitem__, cells)]


def _padded(column: list[str], width: int, bold: Mapping[str, str], drawn: Mapping[str, str]) -> list[str]:
    head, *cells = column
    texts = {text: drawn.get(text, text) + " " * (width - _width(text)) for text in set(cells)}
    return [bold[head] + " " * (width - _width(head)), *map(texts.__getitem__, cells)]


def _width(text: str) -> int:
    return len(text) if text.isascii() else cell_len(text)


def _plain(text: str) -> str:
    """A label of somebody else's must not move the cursor."""
    return text if text.isprintable() else "".join(letter if letter.isprintable() else " " for letter in text)


def _drawn(console: Console, text: str, style: str) -> str:
    if console.color_system is None:
        return text
    return Style.parse(style).render(text, color_system=ColorSystem.STANDARD)


_STATE_STYLES = {
    "free": "green",
    "running": "cyan",
    "warm": "yellow",
    "idle-kernel": "yellow",
    "unattributed": "magenta",
    "drained": "dim",
    "succeeded": "green",
    "failed": "red",
    "lost": "red",
    "cancelled": "yellow",
    "active": "green",
    "expired": "yellow",
    "revoked": "red",
}
_LEVELS = {BROKEN: ("✗", "red"), NOTE: ("·", "yellow")}
#: ids are copied and searched for, the others are a word each: never folded or cut
_WHOLE = frozenset(
    {"run", "id", "waiting run", "state", "GPUs", "GPU", "queued", "held", "released", "busy", "submitted"}
)
#: columns of text that a table of runs with everything in it takes
_WIDE = 110
_UNLIMITED = 100_000


def output_console() -> Console:
    """Standard output: as wide as the terminal; as wide as need be where a program (`| grep`) or a file reads it."""
    console = Console()
    return console if console.file.isatty() else Console(width=_UNLIMITED)


def print_status(console: Console, status: StatusDocument) -> None:
    """The cluster in one line, its GPUs, who runs, who waits."""
    gpus = status.gpus
    kind = "simulated GPUs" if status.simulated else "GPUs"
    others = f", {gpus.external} used by others" if gpus.external else ""
    warm = f" ({gpus.warm} of them kept warm)" if gpus.warm else ""
    console.print(
        f"{status.gateway.url} · {gpus.total} {kind}: {gpus.held} held{warm}, {gpus.free} free{others}", markup=False
    )
    table = _table("host", "GPU", "name", "memory", "busy", "state", "user", "run")
    for node in status.nodes:
        for gpu in node.gpus:
            table.add_row(node.host, *_gpu(gpu))
    _show(console, table)
    running = _table("run", "user", "state", "GPUs", "notebook", "queued", "held")
    for row in status.runs:
        times = (format_seconds(row.queued_s), format_seconds(row.held_s))
        running.add_row(row.run, row.user, _state(row.state), str(row.gpus), row.notebook or row.name, *times)
    _show(console, running)
    for row in status.runs:
        if row.waits_for:
            console.print(f"  · {row.run}: {row.waits_for}", markup=False)
    waiting = _table("waiting run", "user", "queue", "priority", "GPUs", "place", "why it waits")
    for queued in status.queue:
        place = "" if queued.position is None else str(queued.position)
        waiting.add_row(
            queued.run, queued.user, queued.queue, queued.priority, str(queued.gpus), place, Text(queued.reason)
        )
    _show(console, waiting)
    if (left_out := status.waiting - len(status.queue)) > 0:
        console.print(f"  · {left_out} more wait behind: their owners see them here", markup=False)
    for node in status.nodes:
        for remark in node.notes:
            console.print(f"  · {node.host}: {remark}", markup=False)
    for note in status.queue_notes:
        console.print(f"  · queues: {note}", markup=False)


def print_queues(console: Console, document: QueuesDocument) -> None:
    """The tree of queues, what is odd about it, and where one's own runs may go."""
    heads = ("queue", "guaranteed", "max", "used", "fair share", "waiting", "who")
    write_columns(console, heads, [_queue(share) for share in document.queues], {})
    for note in document.notes:
        console.print(f"  · {note}", markup=False)
    usable = [share.name for share in document.queues if share.usable]
    if len(document.queues) == 1 and usable:
        console.print("One queue for all: users share it fairly.")
    elif usable:
        default = f"; without --queue: {document.default_queue}" if document.default_queue else ""
        console.print(f"You may use {', '.join(usable)}{default}.", markup=False)
    else:
        console.print("No queue names you: ask whoever runs the cluster.")


def _queue(share: QueueShare) -> tuple[str, ...]:
    waiting = f"{format_count(share.waiting_runs, 'run')} ({share.waiting_gpus:g})" if share.waiting_runs else ""
    who = [f"{user.user} {user.used:g}" for user in share.users if user.used] if share.leaf else []
    behind = [f"{user.user} {user.waiting_gpus:g}" for user in share.users if user.waiting_runs and share.leaf]
    return (
        f"{'  ' * share.depth}{share.name}",
        "all" if share.guaranteed is None else f"{share.guaranteed:g}",
        "" if share.max is None else f"{share.max:g}",
        f"{share.used:g}",
        f"{share.fair_share:g}",
        waiting,
        "; ".join(filter(None, (", ".join(who), "waiting: " + ", ".join(behind) if behind else ""))),
    )


def print_runs(console: Console, runs: Sequence[RunRow]) -> None:
    """One line a run; a narrow terminal gets fewer columns (`runs show` has everything)."""
    if not runs:
        console.print("There are no runs yet.")
        return
    wide = console.width >= _WIDE
    marked = any(_kept(run) for run in runs)
    columns = [column for column in _RUN_COLUMNS if (wide or column[1]) and (marked or column[0] != "kept")]
    rows = [[cell(run) for _head, _narrow, cell in columns] for run in runs]
    if not wide:
        rows = [[run, when[5:16], *rest] for run, when, *rest in rows]
    write_columns(console, [head for head, _narrow, _cell in columns], rows, _STATE_STYLES)
    for run in runs:
        if run.waits_for:
            console.print(f"  · {run.run}: {run.waits_for}", markup=False)


#: head, whether a narrow terminal gets it, cell
_RUN_COLUMNS: tuple[tuple[str, bool, Callable[[RunRow], str]], ...] = (
    ("run", True, lambda run: run.run),
    ("submitted", True, lambda run: _when(run.submitted_at)),
    ("user", False, lambda run: run.user),
    ("state", True, lambda run: run.state),
    ("kept", False, lambda run: _kept(run)),
    ("GPUs", True, lambda run: str(run.gpus)),
    ("queued", False, lambda run: format_seconds(run.queued_s)),
    ("held", True, lambda run: format_seconds(run.held_s)),
    ("released", False, lambda run: "" if run.release_ms is None else format_seconds(run.release_ms / 1000)),
    ("notebook", True, lambda run: run.name or run.notebook),
)


def print_run(console: Console, run: RunRow) -> None:
    """Everything about one run."""
    table = Table.grid(padding=(0, 2))
    facts = {
        "run": run.run,
        "state": run.state + (f": {run.reason}" if run.reason else ""),
        "kept": _kept(run),
        "collected": "" if run.collected_at is None else f"{_when(run.collected_at)}: {run.collected_because}",
        "imported": run.imported_from and f"exported by {run.imported_from}",
        "name": run.name,
        "user": run.user,
        "notebook": run.notebook,
        "GPUs": _gpus(run),
        "submitted": _when(run.submitted_at),
        "queued, held": f"{format_seconds(run.queued_s)}, {format_seconds(run.held_s)}",
        "free after": "" if run.release_ms is None else format_seconds(run.release_ms / 1000),
        "waits for": run.waits_for,
        "results": ", ".join(f"{value.name} ({value.type}, {format_bytes(value.bytes)})" for value in run.results),
        "files": ", ".join(f"{file.path} ({format_bytes(file.bytes)})" for file in run.files),
        "error": f"{run.error.ename}: {run.error.evalue}" if run.error else "",
        "notes": "\n".join(run.notes),
    }
    for name, fact in facts.items():
        if fact:
            table.add_row(Text(name, style="dim"), Text(fact))
    console.print(table)


def _kept(run: RunRow) -> str:
    """Marks of a run: pinned, results collected, imported."""
    marks = {"pinned": run.pinned, "collected": run.collected_at is not None, "imported": bool(run.imported_from)}
    return ", ".join(mark for mark, has in marks.items() if has)


def print_tokens(console: Console, tokens: Iterable[TokenRow]) -> None:
    """One line a token; secrets are nowhere."""
    table = _table("id", "user", "role", "state", "created", "expires", "last used", "label")
    for token in tokens:
        expires = "never" if token.expires_at is None else _when(token.expires_at)[:16]
        used = "" if token.last_used_at is None else _when(token.last_used_at)[:16]
        label = "the cluster's own" if token.own else token.label
        created = _when(token.created_at)[:16]
        table.add_row(token.id, token.user, token.role, _state(token.state), created, expires, used, Text(label))
    _show(console, table)


def print_findings(console: Console, findings: Iterable[Finding]) -> None:
    """One line a finding, its mend below it."""
    for finding in findings:
        sign, style = _LEVELS.get(finding.level, ("✓", "green"))
        console.print(Text.assemble((f"{sign} ", style), (f"{finding.check:<10}", "dim"), finding.finding))
        if finding.hint:
            console.print(Text.assemble("             → ", (finding.hint, "bold" if finding.level == BROKEN else "")))


def _gpu(gpu: GpuRow) -> tuple[str | Text, ...]:
    memory = f"{format_bytes(gpu.used_bytes)} of {format_bytes(gpu.memory_bytes)}" if gpu.memory_bytes else ""
    busy = "" if gpu.utilization is None else f"{gpu.utilization:.0%}"
    state = Text(gpu_state(gpu, time.time()), style=_STATE_STYLES.get(gpu.state, ""))
    return gpu.index, gpu.name, memory, busy, state, gpu.user or "", gpu.run or ""


def _gpus(run: RunRow) -> str:
    where = f" on {', '.join(run.hosts)}" if run.hosts else ""
    which = f" ({', '.join(run.gpu_ids)})" if run.gpu_ids else ""
    return f"{run.gpus} {'simulated' if run.simulated else run.gpu_name}{which}{where}"


def _state(state: str) -> Text:
    return Text(state, style=_STATE_STYLES.get(state, ""))


def _when(at_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_s))


def _table(*heads: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for head in heads:
        if head in _WHOLE:
            table.add_column(head, no_wrap=True, overflow="ignore")
        else:
            table.add_column(head, overflow="fold")
    return table


def _show(console: Console, table: Table) -> None:
    if not table.row_count:
        return
    for column in table.columns:
        if column.no_wrap:
            column.min_width = max(len(str(cell)) for cell in (column.header, *column.cells))
    console.print(table, crop=False)  # a terminal too narrow for these folds the line itself
