"""``runs show``: what a run was made from and what was made from it, as a tree."""

from __future__ import annotations

import time
from collections.abc import Iterable

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from ..core.documents import RunRow
from ..core.ingredients import TrackedFile
from ..core.provenance import Lineage, RunSummary
from ..core.resources import format_bytes

_MOST_LISTED = 12
_DIGEST_LETTERS = 20
#: generations that are drawn; ``--json`` has all that the gateway tells
_DEPTH = 6


def print_lineage(console: Console, row: RunRow, lineage: Lineage) -> None:
    """Code, inputs, files, environment; then the runs above and below."""
    facts, environment = lineage.facts, lineage.facts.environment
    if facts.code.strip():
        console.print(Text("\ncode", style="dim"))
        console.print(Text("\n".join(f"  {line}" for line in facts.code.strip("\n").splitlines())))
    sections = {
        "inputs": [_input(used.name, used.type, used.bytes, used.run, used.digest) for used in facts.used],
        "read": [_file(file) for file in lineage.tracked],
        "packages": [", ".join(f"{name} {_short(version)}" for name, version in environment.packages.items())],
        "where": [" · ".join(filter(None, (f"Python {environment.python}" if environment.python else "",
                                           environment.platform, environment.image)))],
    }  # fmt: skip
    for title, lines in sections.items():
        _print_section(console, title, [line for line in lines if line])
    known = {run.run: run for run in lineage.runs}
    for title, up in (("made from", True), ("made from it", False)):
        tree = Tree(Text(title, style="dim"), guide_style="dim")
        _grow(tree, row.run, lineage, known, up=up, path=(row.run,))
        if tree.children:
            console.print()
            console.print(tree)
    _print_reuse(console, lineage)


def _print_section(console: Console, title: str, lines: list[str]) -> None:
    if not lines:
        return
    console.print(Text(f"\n{title}", style="dim"))
    for line in lines[:_MOST_LISTED]:
        console.print(Text(f"  {line}"))
    if len(lines) > _MOST_LISTED:
        console.print(Text(f"  and {len(lines) - _MOST_LISTED} more"))


def _print_reuse(console: Console, lineage: Lineage) -> None:
    if lineage.is_reusable or lineage.reused:
        times = f"used again {lineage.reused} times" if lineage.reused != 1 else "used again once"
        console.print(Text(f"\n--cache: {times if lineage.reused else 'its results may be used again'}", style="dim"))
    if lineage.cut:
        console.print(Text("There are more runs than are told here.", style="dim"))


def _grow(
    tree: Tree, run: str, lineage: Lineage, known: dict[str, RunSummary], *, up: bool, path: tuple[str, ...]
) -> None:
    """Add the runs next to ``run``; one that is on the way here already is not followed again."""
    names: dict[str, list[str]] = {}
    for link in lineage.links:
        here, other = (link.run, link.source) if up else (link.source, link.run)
        if here == run:
            names.setdefault(other, []).append(link.name)
    for other, through in names.items():
        branch = tree.add(_label(known.get(other, RunSummary(other, is_known=False)), through))
        if other in path:
            continue
        if len(path) >= _DEPTH:
            branch.add(Text("…", style="dim"))
        else:
            _grow(branch, other, lineage, known, up=up, path=(*path, other))


def _label(run: RunSummary, through: Iterable[str]) -> Text:
    names = ", ".join(sorted(through))
    if not run.is_known:
        return Text.assemble(run.run, f"  {names}  ", ("not known here", "dim"))
    what = " · ".join(filter(None, (run.name or run.notebook, run.state, _when(run.submitted_at))))
    return Text.assemble(run.run, f"  {names}  ", (what, "dim"))


def _when(at_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at_s)) if at_s else ""


def _input(name: str, kind: str, size: int, run: str, digest: str) -> str:
    source = f" from run {run}" if run else ""
    return f"{name} ({kind}, {format_bytes(size)}){source} {_short(digest)}".rstrip()


def _file(file: TrackedFile) -> str:
    return f"{file.path} ({format_bytes(file.bytes)}) {_short(file.digest) or 'changed meanwhile'}"


def _short(digest: str) -> str:
    return f"{digest[:_DIGEST_LETTERS]}…" if len(digest) > 2 * _DIGEST_LETTERS else digest
