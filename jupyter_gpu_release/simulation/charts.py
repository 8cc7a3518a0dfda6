"""Charts of a comparison: PNG files by matplotlib, and one HTML page with the tables that needs nothing else."""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import OptionError
from .metrics import quantile
from .report import ALL, Comparison, group_rows, table_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_POINTS = 400
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em;color:#222}
table{border-collapse:collapse;margin:1em 0}td,th{padding:.25em .8em;border-bottom:1px solid #ddd;text-align:right}
td:first-child,th:first-child{text-align:left}img{max-width:100%}
"""


def write_report(folder: Path, comparison: Comparison) -> list[Path]:
    """Write ``report.json``, ``waits.png``, ``sizes.png`` and ``report.html`` into a folder."""
    figures = {"waits": _waits(comparison), "sizes": _sizes(comparison)}
    files = {f"{name}.png": _png(figure) for name, figure in figures.items()}
    files["report.json"] = (json.dumps(comparison.document(), indent=1) + "\n").encode()
    files["report.html"] = _page(comparison, files).encode()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_bytes(content)
    except OSError as error:
        raise OptionError(f"--out {folder}: {error.strerror}", hint="give a folder that can be written") from error
    return [folder / name for name in sorted(files)]


def _figure() -> Figure:
    try:
        from matplotlib.figure import Figure  # takes half a second; only --out needs it
    except ImportError as error:
        hint = "pip install 'jupyter-gpu-release[simulate]', or leave --out away: tables and --json need nothing"
        raise OptionError("--out: matplotlib is not installed", hint=hint) from error
    return Figure(figsize=(8, 4.5), layout="constrained")


def _waits(comparison: Comparison) -> Figure:
    """Share of the jobs (y) that waited at most so long (x), a line a policy."""
    figure = _figure()
    axes = figure.subplots()
    for name, replayed in comparison.replayed.items():
        ordered = sorted(replayed.waits_s())
        shares = [point / _POINTS for point in range(_POINTS + 1)]
        axes.plot([max(1.0, quantile(ordered, share)) for share in shares], shares, label=name)
    axes.set(xscale="log", xlabel="wait, seconds", ylabel="part of the jobs", title="How long jobs waited")
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=4)
    return figure


def _sizes(comparison: Comparison) -> Figure:
    """Mean wait by size, a bar a policy."""
    figure = _figure()
    axes = figure.subplots()
    sizes = list(next(iter(comparison.figures.values()))["by_size"])
    width = 0.8 / len(comparison.figures)
    for at, (name, found) in enumerate(comparison.figures.items()):
        heights = [found["by_size"][size]["mean_wait_s"] / 3600 for size in sizes]
        axes.bar([place + at * width for place in range(len(sizes))], heights, width, label=name)
    axes.set_xticks([place + 0.4 - width / 2 for place in range(len(sizes))], sizes)
    axes.set(xlabel="GPUs", ylabel="mean wait, hours", title="Mean wait by size")
    figure.legend(loc="outside lower center", ncols=4)
    return figure


def _png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120, metadata={"Software": None})  # the same input, the same bytes
    return buffer.getvalue()


def _page(comparison: Comparison, files: dict[str, bytes]) -> str:
    names = list(comparison.figures)
    title = f"{comparison.trace.name} on {comparison.gpus} GPUs"
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        f"<p>{len(comparison.trace.jobs)} jobs. {html.escape(comparison.trace.explain_left_out())}</p>",
        _table(["", *names], table_rows(comparison.figures)),
        *(
            f'<img alt="{name}" src="data:image/png;base64,{_text(files[f"{name}.png"])}">'
            for name in ("waits", "sizes")
        ),
        "<h2>Wait: mean · median · 90 % at most · 99 % at most</h2>",
        _table(["GPUs", "jobs", *names], group_rows(comparison.figures, "by_size", ALL)),
        _table(["queue or user", "jobs", *names], group_rows(comparison.figures, "by_queue", ALL)),
    ]
    head = f'<meta charset="utf-8"><title>{html.escape(title)}</title><style>{_STYLE}</style>'
    return f"<!doctype html><html><head>{head}</head><body>{''.join(parts)}</body></html>\n"


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    first = "".join(f"<th>{html.escape(head)}</th>" for head in heads)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{first}</tr>{body}</table>"
