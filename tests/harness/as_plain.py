"""One cell twice in a kernel, plain and as a GPU cell, and what the user sees of each."""

from __future__ import annotations

import re
from typing import Any

from kernel_bed import Notebook, Shown

#: the place of a warning; there the magic is a line of the cell, too
_PLACE = re.compile(r"\S+/ipykernel_\d+/\d+\.py:\d+:")


def shown(cell: Shown) -> list[tuple[Any, ...]]:
    """The outputs of a cell as the user sees them, one entry a message; the receipt is left out."""
    found: list[tuple[Any, ...]] = []
    for message in cell.messages:
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            found.append((kind, content["name"], _PLACE.sub("<cell>:", content["text"])))
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
