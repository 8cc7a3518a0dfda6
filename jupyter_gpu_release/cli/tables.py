"""Tables on the terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from ..checks.finding import BROKEN, NOTE, Finding
from ..presentation.plain_text import without_backticks
from ..presentation.status_tables import active_table, gpu_table, head_line, queue_table, waits
from ..presentation.sweep_rows import fold_sweeps
from ..presentation.text_table import DROPPED, text_lines
from ..presentation.wording import (
    error_words,
    held_by,
    name_of,
    state_words,
    stored_words,
    usage_words,
    wait_of_row,
    word_of,
)
from ..protocol.admin import TokenRow
from ..protocol.rest import (
    NodeRow,
    QueuesDocument,
    QueueShare,
    ReportDocument,
    ReportRow,
    RunRow,
    StatusDocument,
    Usage,
)
from ..units import format_bytes, format_count, format_seconds


def write_columns(
    console: Console,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    styles: Mapping[str, str],
    drop: Sequence[str] = DROPPED,
) -> None:
    """Write the table as :func:`text_lines` fits it into the terminal.

    ``styles``: a cell with one of these texts (or one that begins with it and a comma) is drawn in that style.
    """
    style = {text: Style.parse(style) for text, style in styles.items()} if console.color_system else {}

    def draw(text: str) -> str:
        known = style.get(text.partition(",")[0])
        return known.render(text, color_system=ColorSystem.STANDARD) if known else text

    head, *lines = text_lines(heads, rows, console.width, drop=drop, draw=draw)
    wide = max(len(Text.from_ansi(line)) for line in (head, *lines))
    rule = "─" * min(console.width, wide)
    if console.color_system:
        head, rule = _BOLD.render(head), _DIM.render(rule)
    console.file.write("\n".join([head, rule, *lines]) + "\n")


_BOLD, _DIM = Style(bold=True), Style(dim=True)
_STATE_STYLES = {
    "free": "green",
    "running": "cyan",
    "warm": "yellow",
    "idle kernel": "yellow",
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
#: columns of text that a table of runs with everything in it takes
_WIDE = 110
_UNLIMITED = 100_000


def output_console() -> Console:
    """Standard output: as wide as the terminal; as wide as need be where a program (`| grep`) or a file reads it."""
    console = Console()
    return console if console.file.isatty() else Console(width=_UNLIMITED)


def print_status(console: Console, status: StatusDocument) -> None:
    """The cluster in one line, its GPUs, who runs, who waits, the GPU-hours of who asks."""
    console.print(head_line(status), markup=False)
    for heads, rows in (gpu_table(status, time.time()), active_table(status), queue_table(status)):
        if rows:
            console.print()
            write_columns(console, heads, rows, _STATE_STYLES)
    _print_lines(console, waits(status.runs))
    if status.queue:
        _print_lines(console, held_by(status))
    if (left_out := status.waiting - len(status.queue)) > 0:
        console.print(f"  · {left_out} more wait behind: their owners see them here", markup=False)
    for node in status.nodes:
        _print_lines(console, (f"{node.host}: {remark}" for remark in node.notes))
        for each in node.prepared:
            libraries = ", ".join(each.libraries)
            text = f"  · {node.host}: prepared for cells: {libraries} ({format_bytes(each.bytes)} of memory)"
            console.print(text, markup=False)
        if node.environment_bytes:
            many, memory = format_count(len(node.environment_bytes), "environment"), sum(node.environment_bytes)
            text = f"  · {node.host}: fork servers of {many} ({format_bytes(memory)} of memory)"
            console.print(text, markup=False)
    _print_lines(console, (f"queues: {note}" for note in status.queue_notes))
    _print_lines(console, _account(status))


def _print_lines(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        console.print(f"  · {line}", markup=False)


def _account(status: StatusDocument) -> Iterator[str]:
    """Lines for today, for the last 7 days and for the store; none where it is nothing or the gateway does not say."""
    spans = () if status.usage is None else (("today", status.usage.today), ("in 7 days", status.usage.week))
    for span, usage in spans:
        if usage != Usage():
            yield f"your GPU-hours {span}: {usage_words(usage)}"
    if status.usage is not None and (words := stored_words(status.usage.stored_bytes)):
        yield words


def print_queues(console: Console, document: QueuesDocument) -> None:
    """The tree of queues, what is odd about it, and where one's own runs may go."""
    heads = ("queue", "guaranteed", "max", "used", "fair share", "waiting", "who")
    rows = [row for share in document.queues for row in (_queue(share), *_types(share))]
    write_columns(console, heads, rows, {}, _QUEUES_DROP)
    _print_lines(console, document.notes)
    usable = [share.name for share in document.queues if share.usable]
    if len(document.queues) == 1 and usable:
        console.print("One queue for all: users share it fairly.")
    elif usable:
        default = f"; without --queue: {document.default_queue}" if document.default_queue else ""
        console.print(f"You may use {', '.join(usable)}{default}.", markup=False)
    else:
        console.print("No queue names you: whoever runs the cluster adds you to `users` of one in its file.")


def print_report(console: Console, document: ReportDocument) -> None:
    """A line for each user and type of GPU, and their sum."""
    console.print(f"{format_moment(document.since)[:16]} to {format_moment(document.until)[:16]}")
    if not document.rows:
        console.print("No run held a GPU in this time.")
        return
    whole = ReportRow(
        "all",
        "",
        sum(row.runs for row in document.rows),
        sum(row.held_s for row in document.rows),
        sum(row.price for row in document.rows),
    )
    rows = [(row, row.gpu_type or "simulated") for row in document.rows] + [(whole, "")] * (len(document.rows) > 1)
    unit = f" ({document.price_unit})" if document.price_unit else ""
    columns = 4 if document.price_unit is None else 5
    write_columns(
        console,
        ("user", "GPUs", "runs", "GPU-hours", f"price{unit}")[:columns],
        [
            (row.user, gpus, str(row.runs), f"{row.held_s / 3600:,.2f}", f"{row.price:,.2f}")[:columns]
            for row, gpus in rows
        ],
        {},
    )


#: what its file says of a queue before what goes on there; a row is nothing without its queue
_QUEUES_DROP = ("max", "guaranteed", "fair share", "waiting")


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


def _types(share: QueueShare) -> Iterator[tuple[str, ...]]:
    """A line for each type of GPU that the queue names."""
    for each in share.by_type:
        counts = ("" if count is None else f"{count:g}" for count in (each.guaranteed, each.max))
        yield (f"{'  ' * share.depth}  · {each.gpu_type}", *counts, f"{each.used:g}", f"{each.fair_share:g}", "", "")


def print_runs(console: Console, runs: Sequence[RunRow], stored_bytes: int | None = None) -> None:
    """One line a run; a narrow terminal gets fewer columns (`runs show` has everything)."""
    if not runs:
        console.print("There are no runs yet.")
        return
    rows = [tuple(cell(run) for _head, cell in _RUN_COLUMNS) for run in fold_sweeps(runs)]
    if console.width < _WIDE:
        rows = [(run, when[5:16], *rest) for run, when, *rest in rows]
    write_columns(console, [head for head, _cell in _RUN_COLUMNS], rows, _STATE_STYLES, _RUNS_DROP)
    _print_lines(console, waits(runs))
    if words := stored_words(stored_bytes):
        console.print(f"  · {words}", markup=False)


_RUNS_DROP = ("released", "queued", "user", "kept")
_RUN_COLUMNS: tuple[tuple[str, Callable[[RunRow], str]], ...] = (
    ("run", lambda run: run.run),
    ("submitted", lambda run: format_moment(run.submitted_at)),
    ("user", lambda run: run.user),
    ("state", word_of),
    ("kept", lambda run: _kept(run)),
    ("GPUs", lambda run: str(run.gpus)),
    ("queued", lambda run: format_seconds(run.queued_s)),
    ("held", lambda run: format_seconds(run.held_s)),
    ("released", lambda run: "" if run.release_ms is None else format_seconds(run.release_ms / 1000)),
    ("name", name_of),
)


def print_run(console: Console, run: RunRow) -> None:
    """Everything about one run."""
    table = Table.grid(padding=(0, 2))
    facts = {
        "run": run.run,
        "state": state_words(run),
        "kept": _kept(run),
        "collected": "" if run.collected_at is None else f"{format_moment(run.collected_at)}: {run.collected_because}",
        "imported": run.imported_from and f"exported by {run.imported_from}",
        "name": run.name,
        "user": run.user,
        "notebook": run.notebook,
        "GPUs": _gpus(run),
        "submitted": format_moment(run.submitted_at),
        "queued, held": f"{format_seconds(run.queued_s)}, {format_seconds(run.held_s)}",
        "price": run.price,
        "free after": "" if run.release_ms is None else format_seconds(run.release_ms / 1000),
        "before": "\n".join(run.earlier),
        "waits for": wait_of_row(run),
        "results": ", ".join(f"{value.name} ({value.type}, {format_bytes(value.bytes)})" for value in run.results),
        "files": ", ".join(f"{file.path} ({format_bytes(file.bytes)})" for file in run.files),
        "error": error_words(run.error) if run.error else "",
        "notes": without_backticks("\n".join(run.notes)),
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
    rows = []
    for token in tokens:
        expires = "never" if token.expires_at is None else format_moment(token.expires_at)[:16]
        used = "" if token.last_used_at is None else format_moment(token.last_used_at)[:16]
        label = "the cluster's own" if token.own else token.label
        rows.append(
            (token.id, token.user, token.role, token.state, format_moment(token.created_at)[:16], expires, used, label)
        )
    if rows:
        heads = ("id", "user", "role", "state", "created", "expires", "last used", "label")
        write_columns(console, heads, rows, _STATE_STYLES)


def print_nodes(console: Console, nodes: Iterable[NodeRow]) -> None:
    """One line a node: its GPUs, what is held there, and why it, or a GPU of it, takes no runs."""
    rows = []
    for node in nodes:
        held = sum(gpu.state in ("running", "warm") for gpu in node.gpus)
        state = "drained" if node.drained else "up" if node.up else "down"
        aside = dict.fromkeys(gpu.drained for gpu in node.gpus if gpu.drained)
        notes = node.drained or "; ".join([*aside, *node.notes])
        rows.append((node.host, node.id[:8], state, str(len(node.gpus)), str(held), notes))
    write_columns(console, ("host", "id", "state", "gpus", "held", "notes"), rows, _STATE_STYLES)


#: that of "environments", and a blank
_CHECK_WIDTH = 13


def print_findings(console: Console, findings: Iterable[Finding]) -> None:
    """One line a finding, its mend below it."""
    for finding in findings:
        sign, style = _LEVELS.get(finding.level, ("✓", "green"))
        console.print(Text.assemble((f"{sign} ", style), (f"{finding.check:<{_CHECK_WIDTH}}", "dim"), finding.finding))
        if finding.hint:
            console.print(
                Text.assemble(
                    " " * (_CHECK_WIDTH + 3) + "→ ", (finding.hint, "bold" if finding.level == BROKEN else "")
                )
            )


def _gpus(run: RunRow) -> str:
    where = f" on {', '.join(run.hosts)}" if run.hosts else ""
    which = f" ({', '.join(run.gpu_ids)})" if run.gpu_ids else ""
    return f"{run.gpus} {'simulated' if run.simulated else run.gpu_name}{which}{where}"


def format_moment(at_s: float) -> str:
    """``2026-11-21 14:03:10``, in local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_s))
