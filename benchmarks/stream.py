"""Output: 100,000 printed lines and 1,000 display updates through us, against the same kernel printing locally."""

from __future__ import annotations

import time
from typing import Any

from .bed import Kernel, bed, kernel
from .report import Report

LINES = 100_000
_PRINT = f"for i in range({LINES}):\n    print(i)"
_DISPLAY = (
    "from IPython.display import display\nh = display(0, display_id=True)\nfor i in range(1000):\n    h.update(i)"
)


def run(*, quick: bool) -> Report:
    """Measure; the output is checked for completeness and order each time."""
    report = Report("stream")
    rounds = 1 if quick else 7
    with bed() as cluster, kernel(cluster.work) as notebook:
        notebook.run("%%gpu_train\nprint(1)")
        for metric, code, check in (("lines", _PRINT, _check_lines), ("displays", _DISPLAY, _check_displays)):
            ours, local = [], []
            for _ in range(rounds):
                local.append(_timed(notebook, code, check))
                ours.append(_timed(notebook, "%%gpu_train --gpus 1\n" + code, check))
            median = report.add(metric, ours)
            report.ratios[metric] = median / report.add(f"{metric}_local", local)
    report.notes.append("ratios here are ours ÷ local")
    return report


def _timed(notebook: Kernel, code: str, check: Any) -> float:
    began = time.perf_counter()
    messages = notebook.run(code)
    seconds = time.perf_counter() - began
    check(messages)
    return seconds * 1000


def _check_lines(messages: list[dict[str, Any]]) -> None:
    streams = (m["content"] for m in messages if m["msg_type"] == "stream")
    text = "".join(content["text"] for content in streams if content["name"] == "stdout")
    assert text == "".join(f"{i}\n" for i in range(LINES)), "lines were lost or out of order"


def _check_displays(messages: list[dict[str, Any]]) -> None:
    shown = [m["content"]["data"].get("text/plain") for m in messages if m["msg_type"] == "update_display_data"]
    numbers = [int(text) for text in shown if text is not None and text.isdigit()]
    assert numbers == list(range(1000)), "updates were lost or out of order"
