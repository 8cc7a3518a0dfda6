"""Source text of notebook cells: tracebacks and ``inspect`` find it wherever the cell's functions go.

``compiler`` is IPython's (``shell.compile``): its map from file name to execution count makes tracebacks say
``Cell In[n]``. The text itself lies in ``linecache``, as IPython puts it there.
"""

from __future__ import annotations

import hashlib
import inspect
import linecache
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from ..protocol.cell import CellSource

#: of the text that travels with one run
SOURCES_LIMIT_BYTES = 1 << 18
#: names of cells begin alike (``/tmp/ipykernel_…``, ``<ipython-input-…``, ours), so that one search finds many
_HEAD = 10


#: in place of a cell's number: the text of a file, which tracebacks name by its path
OF_FILE = -1


def gpu_cell_name(body: str, line_offset: int, count: int) -> str:
    """The file name under which a GPU cell is compiled; the same cell run again keeps its name."""
    digest = hashlib.sha1(f"{line_offset}:{body}".encode(errors="replace"), usedforsecurity=False).hexdigest()
    return f"<gpu-cell-{count}-{digest[:12]}>"


def name_of_plain_cell(compiler: Any, body: str, count: int) -> str:
    """The file name that the kernel gives a plain cell of this text (tools name caches after it), or ``""``."""
    name = getattr(compiler, "get_code_name", None)
    text = body.removesuffix("\n")  # which a magic is given and a plain cell has not
    return str(name(text, text, count)) if name is not None else ""


def register_sources(compiler: Any, sources: Iterable[CellSource]) -> None:
    """Make the text known to tracebacks and to ``inspect.getsource``."""
    counts = _counts(compiler)
    for source in sources:
        lines = [f"{line}\n" for line in source.text.splitlines()]
        linecache.cache[source.filename] = (len(source.text), None, lines, source.filename)  # None: never outdated
        if source.count != OF_FILE:
            counts[source.filename] = source.count


def tell_inspect(compiler: Any) -> None:
    """Say that the cells belong to ``__main__``: else ``inspect`` asks every loaded module whether a frame is its.

    With large libraries loaded that is some 10 ms a frame, so a RecursionError took 10 s to draw. Call it before
    drawing: what ``inspect`` looks for depends on the working directory.
    """
    for name in _counts(compiler):
        for key in (name, os.path.normcase(os.path.abspath(name))):
            inspect.modulesbyfile[key] = "__main__"


def sources_in(compiler: Any, stream: bytes) -> list[CellSource]:
    """The cells from which functions and classes in the pickle ``stream`` come, the newest first."""
    found: list[CellSource] = []
    left = SOURCES_LIMIT_BYTES
    counts = {name: count for name, count in _counts(compiler).items() if isinstance(count, int)}
    for name in sorted(_named_in(stream, counts), key=lambda name: -counts[name]):
        entry = linecache.cache.get(name)
        if entry is None or len(entry) != 4:
            continue
        text = "".join(entry[2])
        left -= len(text.encode(errors="replace"))
        if left < 0:
            break
        found.append(CellSource(name, counts[name], text))
    return found


def executed_cells(compiler: Any) -> list[tuple[str, str]]:
    """File name and text of the cells that were executed, the newest first."""
    counts = {name: count for name, count in _counts(compiler).items() if isinstance(count, int) and count != OF_FILE}
    entries = [(name, linecache.cache.get(name)) for name in sorted(counts, key=lambda name: -counts[name])]
    return [(name, "".join(entry[2])) for name, entry in entries if entry is not None and len(entry) == 4]


def _counts(compiler: Any) -> dict[str, int]:
    counts: dict[str, int] = getattr(compiler, "_filename_map", {})
    return counts


def _named_in(stream: bytes, names: Iterable[str]) -> set[str]:
    """Code objects carry their file's name, which a pickle holds as it is."""
    by_head: dict[bytes, set[bytes]] = defaultdict(set)
    for name in names:
        raw = name.encode(errors="replace")
        by_head[raw[:_HEAD]].add(raw)
    return {raw.decode() for head, known in by_head.items() for raw in _hits(stream, head, known)}


def _hits(stream: bytes, head: bytes, known: set[bytes]) -> Iterator[bytes]:
    lengths = {len(raw) for raw in known}
    at = stream.find(head)
    while at >= 0:
        for length in lengths:
            if (raw := stream[at : at + length]) in known:
                yield raw
        at = stream.find(head, at + 1)
