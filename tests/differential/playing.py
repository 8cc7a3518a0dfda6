"""One notebook, run cell by cell in a fresh kernel: what each cell came to, and the names at the end."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernel_transport import end_kernel, start_kernel

from .reading import is_ours

_VALUES = Path(__file__).with_name("values.py")
_OURS = "jgr-"  # the display id of status lines and receipts
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
#: what we say where a plain cell says nothing
_NOTE = re.compile(r"nothing to run in this cell: no GPU was taken\n|this code looks names up by text.*\n")
#: the place of a warning; there the magic is a line of the cell, too
_PLACE = re.compile(r"(/tmp/ipykernel_\d+/\d+\.py|<gpu-cell-[\w-]+>):\d+:")
#: where a traceback with an exception group begins
_GROUP = re.compile(
    r"(^Traceback \(most recent call last\):|^  \+ Exception Group Traceback)(?=.*Exception ?Group).*",
    re.DOTALL | re.MULTILINE,
)
_LARGE = 200
#: they are compared by what is in them: a pickle tells which equal texts were one object, which nobody can see
_PICKLES = {".joblib", ".pkl", ".pickle", ".ckpt", ".pt", ".pth"}
#: a rank begins with the kernel's states: `random` is the one that everybody has
_PRELUDE = "__import__('random').seed(0)"
_EXTENSION = "get_ipython().extension_manager.load_extension('jupyter_gpu_release')"


@dataclass
class CellPlay:
    """One cell: its outcome, and what it showed in order: text of a stream, or a display (type → data)."""

    source: str
    status: str = "ok"
    ename: str = ""
    evalue: str = ""
    traceback: str = ""
    shown: list[tuple[str, Any]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def text(self, name: str) -> str:
        """All of one stream."""
        return "".join(text for kind, text in self.shown if kind == name)

    def displays(self) -> list[dict[str, str]]:
        return [data for kind, data in self.shown if kind == "display"]


@dataclass
class Play:
    """A notebook's run. ``names``: name → rows of (place, value); ``files``: what was written → its digest."""

    cells: list[CellPlay]
    names: dict[str, list[tuple[str, str]]]
    files: dict[str, str]


def play(
    sources: Sequence[str], beside: Path, environment: Mapping[str, str], *, gpu: Callable[[str], str] | None = None
) -> Play:
    """Run the cells, whatever fails. ``beside``: the files of this folder lie beside the notebook;
    ``gpu``: makes a GPU cell of a cell (``None``: they run here).
    """
    with tempfile.TemporaryDirectory(prefix="jgr-diff-") as name:
        folder = Path(name) / "work"
        shutil.copytree(beside, folder, ignore=shutil.ignore_patterns("*.ipynb", "out", "__pycache__"))
        there = _files(folder)
        with _kernel(folder, environment) as client:
            _quietly(client, _PRELUDE)
            if gpu is not None or any(map(is_ours, sources)):
                _quietly(client, _EXTENSION)
            cells = [_run(client, source, gpu(source) if gpu else source, str(folder)) for source in sources]
            names = _names(client, Path(name) / "names.json")
            written = {path: digest for path, digest in _files(folder).items() if there.get(path) != digest}
            for path in written:
                if Path(path).suffix in _PICKLES:
                    written[path] = _content(client, folder / path, Path(name) / "content.json")
        return Play(cells, names, written)


@contextmanager
def _kernel(folder: Path, environment: Mapping[str, str]) -> Iterator[Any]:
    # the same order of sets and the same hashes here and there
    variables = {**os.environ, "PYTHONHASHSEED": "0", **environment}
    manager, client = start_kernel("python3", folder, variables)
    try:
        yield client
    finally:
        end_kernel(manager, client)


def _quietly(client: Any, code: str) -> None:
    reply = client.execute_interactive(code, silent=True, store_history=False, timeout=600, output_hook=lambda _: None)
    if reply["content"]["status"] != "ok":
        raise RuntimeError(f"{code}: {reply['content']}")


def _run(client: Any, source: str, code: str, folder: str) -> CellPlay:
    messages: list[dict[str, Any]] = []
    reply = client.execute_interactive(
        code, timeout=600, output_hook=messages.append, stop_on_error=False, allow_stdin=False
    )
    answer = reply["content"]
    cell = CellPlay(source, answer["status"], answer.get("ename", ""), answer.get("evalue", "").replace(folder, "…"))
    cell.traceback = _COLOURS.sub("", "\n".join(answer.get("traceback", [])))
    for message in messages:
        _note(cell, message["msg_type"], message["content"], folder)
    for page in answer.get("payload", []):
        cell.shown.append(("display", {"pager": str(page.get("data", {}).get("text/plain", page))}))
    if not any(message["msg_type"] == "error" for message in messages):
        move_printed_traceback(cell)
    cell.said.append(cell.traceback)
    return cell


def move_printed_traceback(cell: CellPlay) -> None:
    """IPython prints the traceback of an exception group on stderr, where a GPU cell shows it as an error."""
    printed = _GROUP.search(_COLOURS.sub("", cell.text("stderr")))
    if cell.status == "error" and printed:
        cell.traceback = printed[0]
        rest = _GROUP.sub("", _COLOURS.sub("", cell.text("stderr")))
        cell.shown = [*(each for each in cell.shown if each[0] != "stderr"), *([("stderr", rest)] if rest else [])]


def _note(cell: CellPlay, kind: str, content: dict[str, Any], folder: str) -> None:
    if kind == "stream":
        text = _PLACE.sub("<cell>:", content["text"].replace(folder, "…"))
        cell.said += _NOTE.findall(text)
        cell.shown.append((content["name"], _NOTE.sub("", text)))
    elif kind == "clear_output":
        cell.shown.append(("clear", ""))
    elif kind in ("display_data", "update_display_data", "execute_result"):
        if str(content.get("transient", {}).get("display_id", "")).startswith(_OURS):
            cell.said.append(content["data"].get("text/plain", ""))
        else:
            update = kind == "update_display_data"
            cell.shown.append(("update" if update else "display", _bundle(content["data"], folder)))


def _bundle(data: dict[str, Any], folder: str) -> dict[str, str]:
    """Pictures by their digest; a widget by its being there."""
    texts = {
        mime: value if isinstance(value, str) else json.dumps(value, sort_keys=True) for mime, value in data.items()
    }
    return {mime: "…" if "widget" in mime else _short(mime, text.replace(folder, "…")) for mime, text in texts.items()}


def _short(mime: str, text: str) -> str:
    if not mime.startswith("image/") or len(text) < _LARGE:
        return text
    return f"{len(text)} characters, {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _names(client: Any, path: Path) -> dict[str, list[tuple[str, str]]]:
    _quietly(client, f"__import__('runpy').run_path({str(_VALUES)!r})['write'](get_ipython(), {str(path)!r})")
    return {name: [(place, text) for place, text in rows] for name, rows in json.loads(path.read_text()).items()}


def _content(client: Any, path: Path, answer: Path) -> str:
    """A pickle's content, which the notebook's own kernel reads: its classes are there."""
    where = f"{str(path)!r}, {str(answer)!r}"
    _quietly(client, f"__import__('runpy').run_path({str(_VALUES)!r})['write_content'](get_ipython(), {where})")
    return "\n".join(": ".join(row) for row in json.loads(answer.read_text()))


def _files(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in files}
