"""No sentence stands twice under one cell, however it ended, nor when the output is brought back."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from background_bed import ASYNC, HELD, go, run_of
from kernel_bed import Notebook, Shown

from jupyter_gpu_release.client.autostart import Ready
from jupyter_gpu_release.client.home import HomePaths
from jupyter_gpu_release.server_extension.outputs.transcript import Transcript
from jupyter_gpu_release.server_extension.runs.stored import StoredRun
from jupyter_gpu_release.store.event_log import read_events
from jupyter_gpu_release.store.layout import RunPaths

Open = Callable[[], Notebook]
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_BETWEEN = re.compile(r"\n| · |; |\. |: ")
#: shorter ones are facts (`1 simulated GPU`), not sentences
_LEAST_WORDS = 4


def _standing(shown: Shown) -> list[str]:
    """The texts below the cell at its end."""
    outputs: list[tuple[str, str]] = []
    for message in shown.messages:
        content = message["content"]
        display = (content.get("transient") or {}).get("display_id", "")
        match message["msg_type"]:
            case "update_display_data":
                text = content["data"].get("text/plain", "")
                outputs = [(key, text) if key == display else (key, old) for key, old in outputs]
            case "display_data" | "execute_result":
                outputs.append((display, content["data"].get("text/plain", "")))
            case "error":
                outputs.append(("", "\n".join(content["traceback"])))
            case "stream":
                outputs.append(("", content["text"]))
            case "clear_output":
                outputs.clear()
    return [text for _, text in outputs]


def _twice(texts: list[str]) -> list[str]:
    said = [part.strip(" .→✗✓-") for text in texts for part in _BETWEEN.split(_COLOUR.sub("", text))]
    counts = Counter(part for part in said if len(part.split()) >= _LEAST_WORDS)
    return [part for part, count in counts.items() if count > 1]


def _brought_back(run: str) -> list[str]:
    """The same from the record, as a page writes it into the cell."""
    paths = RunPaths.of(HomePaths.from_environment().store, run)
    transcript, outputs = Transcript(run), list[dict[str, Any]]()
    transcript.show_events(list(read_events(paths.events)))
    transcript.show_view(StoredRun.read(paths).view)
    for change in transcript.take_changes():
        if change["op"] == "clear":
            outputs.clear()
        elif change["op"] == "set":
            outputs[change["index"]] = change["output"]
        else:
            outputs.append(change["output"])
    bundles = [output.get("data", {}).get("text/plain", "") for output in outputs]
    return [*bundles, *("\n".join(output["traceback"]) for output in outputs if "traceback" in output)]


_CELLS = {
    "success": "%%gpu_train --name plain\nprint('one'); x = [1]",
    "nothing to say": "%%gpu_train\npass",
    "failure": "%%gpu_train\nprint('one')\nraise ValueError('no such thing as this')",
    "failure of a gang": "%%gpu_train --gpus 2 --ranks 2\nraise ValueError('no such thing as this')",
    "too many GPUs": "%%gpu_train --gpus 99\nx = 1",
    "no such option": "%%gpu_train --gpu 1\nx = 1",
    "a name that cannot be sent": "import threading\nlock = threading.Lock()",
    "it uses that name": "%%gpu_train\nprint(lock)",
    "time is up": "%%gpu_train --timeout 1s\nimport time\ntime.sleep(60)",
    "it exits": "%%gpu_train\nraise SystemExit(3)",
    "it dies": "%%gpu_train\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    "detached": "%%gpu_train --detach\ny = 2",
    "an estimate": "%%gpu_train --estimate\ny = x",
    "the same, cached": "%%gpu_train --cache\nz = 3",
    "the same again": "%%gpu_train --cache\nz = 3",
}


def test_no_sentence_twice_under_a_cell(notebook: Notebook, cluster: Ready, until: Any) -> None:
    found = {}
    for name, code in _CELLS.items():
        shown = notebook.run(code)
        found[name] = _twice(_standing(shown))
        for run in set(re.findall(r"\b\d{8}-\d{6}-[0-9a-f]{8}\b", str([m["content"] for m in shown.messages]))):
            paths = RunPaths.of(HomePaths.from_environment().store, run)
            until(lambda paths=paths: StoredRun.read(paths).view.finished_at, f"the record of {name}")
            found[f"{name}, brought back"] = _twice(_brought_back(run))
    attached = notebook.run("%gpu_attach last")
    found["attached"] = _twice(_standing(attached))
    assert {name: sentences for name, sentences in found.items() if sentences} == {}
    assert len(found) > len(_CELLS) + 5


def test_nor_under_one_that_waited_or_was_interrupted(open_notebook: Open, until: Any) -> None:
    holder, waiter = open_notebook(), open_notebook()
    held = holder.ok(ASYNC.replace("\n", " --gpus 4\n") + HELD)
    cell = waiter.begin("%%gpu_train\nprint('at last')")
    waiting = waiter.until(lambda shown: any("place 1" in text for text in shown.displays()))
    assert _twice(_standing(waiting)) == []
    go(holder)
    assert _twice(_standing(waiter.end(cell))) == []
    holder.ok("%gpu_wait")
    assert run_of(held)
    cell = waiter.begin("%%gpu_train\nimport time\nprint('on', flush=True)\ntime.sleep(600)")
    waiter.until(lambda shown: "on" in shown.text())
    waiter.manager.interrupt_kernel()
    assert _twice(_standing(waiter.end(cell))) == []


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["a b c d · e", "e · a b c d"], ["a b c d"]),
        (["it waits for you", "it waits for me"], []),
        (["x y", "x y"], []),
    ],
)
def test_twice_is_found(texts: list[str], expected: list[str]) -> None:
    assert _twice(texts) == expected


def test_a_magic_that_there_is_not_ends_with_the_receipt_too(open_notebook: Open) -> None:
    """IPython shows of such an error its text alone, and no lines of ours."""
    standing = _standing(open_notebook().run("%%gpu_train\nx = 1\n%no_such_magic 3"))
    assert any("✗" in text and "back: x" in text for text in standing)
    assert [text for text in standing if "no_such_magic" in text] == [
        "UsageError: Line magic function `%no_such_magic` not found.\n"
    ]
