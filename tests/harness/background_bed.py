"""Runs in the background of a notebook: cells that go on until the test says so, and what they show later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernel_bed import Notebook, Shown

ASYNC = "%%gpu_train --async\n"
#: a cell that goes on until the test says so
HELD = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.02)\n"


def go(notebook: Notebook) -> None:
    (notebook.folder / "go").touch()


def run_of(shown: Shown) -> str:
    texts = [text for text in shown.displays() if "run 2" in text]
    assert texts, shown.displays()
    return str(texts[-1].rpartition("run ")[2].split()[0])


def later(notebook: Notebook, cell: str, has: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
    """Messages of a cell that has returned, until ``has`` holds for them."""
    shown = notebook.until(lambda shown: has([m for m in shown.messages if m["parent_header"].get("msg_id") == cell]))
    return [m for m in shown.messages if m["parent_header"].get("msg_id") == cell]


def says(words: str) -> Callable[[list[dict[str, Any]]], bool]:
    return lambda messages: any(words in str(m["content"]) for m in messages)
