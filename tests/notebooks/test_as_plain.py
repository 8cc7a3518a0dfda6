"""Cells that are run twice in one kernel, plain and on the cluster: both show the same and end alike."""

from __future__ import annotations

from typing import Any

import pytest
from kernel_bed import Notebook, Shown


def shown(cell: Shown) -> list[tuple[Any, ...]]:
    """What the user sees of a cell, one entry a message; the receipt is left out."""
    found: list[tuple[Any, ...]] = []
    for message in cell.messages:
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            found.append((kind, content["name"], content["text"]))
        elif kind == "error":
            found.append((kind, content["ename"], content["evalue"].partition(" (")[0]))
        elif kind in ("display_data", "execute_result") and not _is_ours(content):
            found.append(("display", content["data"]))
    return _joined(found)


def _is_ours(content: dict[str, Any]) -> bool:
    display_id = content.get("transient", {}).get("display_id", "")
    return str(display_id).startswith("jgr-") or "jupyter_gpu_release" in content["metadata"]


def _joined(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Text of one stream comes in as many pieces as it likes."""
    out: list[tuple[Any, ...]] = []
    for entry in found:
        if out and entry[0] == "stream" and out[-1][:2] == entry[:2]:
            out[-1] = (*entry[:2], out[-1][2] + entry[2])
        else:
            out.append(entry)
    return out


def run_both(notebook: Notebook, body: str) -> tuple[Shown, Shown]:
    """``body`` as a plain cell and as a GPU cell."""
    return notebook.run(body), notebook.run(f"%%gpu_train --gpus 0\n{body}")


_BAD = (
    "class Bad:\n    def __repr__(self):\n        raise ValueError('no text')\n"
    "class Half:\n    def __repr__(self):\n        return 'half'\n"
    "    def _repr_html_(self):\n        raise KeyError('no html')\n"
)


@pytest.mark.parametrize(
    "body",
    [
        "%run bad.py\nprint('after')",
        "get_ipython().run_cell('1 / 0')\nprint('after')",
        "get_ipython().run_cell('1 +')\nprint('after')",
        f"{_BAD}display(Bad())\nprint('after')",
        f"{_BAD}Bad()",
        f"{_BAD}Half()",
        "%nosuchmagic 3",
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n    get_ipython().showtraceback()\nprint('after')",
    ],
)
def test_errors_that_ipython_only_shows_are_shown_and_end_the_cell_where_they_do_in_a_plain_one(
    notebook: Notebook, body: str
) -> None:
    (notebook.folder / "bad.py").write_text("print('begun')\nraise OSError('bad')\n")
    plain, gpu = run_both(notebook, body)
    assert gpu.status == plain.status
    if gpu.status == "error":  # a failed value's other representations come before its error
        assert sorted(map(str, shown(gpu))) == sorted(map(str, shown(plain)))
    else:
        assert shown(gpu) == shown(plain)
