"""Cells that must do the same as GPU cells and as plain ones: one table, tried in three ways.

In this process (``tests/kernel/round_trip/test_cells.py``), in a kernel with a cluster (``tests/notebooks/
test_cells.py``), and as one long notebook that is played twice (``tests/differential/test_cells.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from . import (
    by_text,
    classes,
    dropped,
    frames,
    functions,
    held,
    iterators,
    library_objects,
    methods,
    objects,
    of_libraries,
    process,
    shown,
    singletons,
    subclasses,
    views,
    weak_references,
)


@dataclass(frozen=True)
class Cell:
    """``body`` is the cell that is tried, after the cell ``setup``; the expression ``asked`` shows what is so then, and
    ``end`` puts back what would stay in the process.

    ``is_of_kernel``: it needs a front end, so it is not tried in this process. ``is_setting``: what it sets up stays
    in the process, so it has a kernel of its own.
    """

    setup: str
    body: str
    asked: str = ""
    end: str = ""
    is_of_kernel: bool = False
    is_setting: bool = False


def _named(kind: str, imports: str, rows: Mapping[str, tuple[str, ...]]) -> dict[str, Cell]:
    return {f"{kind}: {name}": Cell(imports + setup, *rest) for name, (setup, *rest) in rows.items()}


CELLS: dict[str, Cell] = {
    **_named("frames", frames.IMPORTS, frames.ROWS),
    **_named("cached functions, enums, generators", functions.IMPORTS, functions.ROWS),
    **_named("held by several", held.IMPORTS, held.ROWS),
    **_named("classes", classes.IMPORTS, classes.ROWS),
    **_named("methods", methods.IMPORTS, methods.ROWS),
    **_named("taken out of an input", dropped.IMPORTS, dropped.PARTS),
    **_named("objects that end", dropped.IMPORTS, dropped.ENDS),
    **_named("a name bound anew", dropped.IMPORTS, dropped.NAMES),
    **_named("singletons", singletons.IMPORTS, singletons.ROWS),
    **_named("views", views.IMPORTS, views.ROWS),
    **_named("names by text", by_text.IMPORTS, by_text.ROWS),
    **_named("objects", objects.IMPORTS, objects.ROWS),
    **_named("iterators", iterators.IMPORTS, iterators.ROWS),
    **_named("objects of libraries", library_objects.IMPORTS, library_objects.ROWS),
    **_named("weak references", weak_references.IMPORTS, weak_references.ROWS),
    **_named("subclasses", subclasses.IMPORTS, subclasses.ROWS),
    **_named("process", process.IMPORTS, process.ROWS),
    **_named("of libraries", of_libraries.IMPORTS, of_libraries.ROWS),
    **{f"shown: {name}": Cell("", body, is_of_kernel=True) for name, body in shown.ERRORS.items()},
    **{f"shown: {name}": Cell(setup, body, is_of_kernel=True) for name, (setup, body) in shown.OUTPUTS.items()},
    **{
        f"settings: {name}": Cell(setup, body, is_of_kernel=True, is_setting=True)
        for name, (setup, body) in shown.SETTINGS.items()
    },
}
