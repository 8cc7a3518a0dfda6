"""A newcomer's five questions, each answered in the sidebar, or one click away, in every state.

The table is in docs/use/five-questions.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import gpu_scenes
import pytest
from gpu_api import Document, GpuApi, active, gpu, node, page, run, status, waiting
from lab_bed import execute
from playwright.sync_api import Locator, Page, expect
from sidebar_bed import LOOK, row

pytestmark = pytest.mark.thorough

_GUIDE = Path(__file__).parents[2] / "docs" / "use" / "five-questions.md"


def _usage() -> Document:
    hours = {"held_s": 3600.0, "used_s": 1800.0, "saved_s": 7200.0, "others_s": 0.0}
    return {"today": hours, "week": hours, "days": []}


def _cluster(mine: Document, *, others: int = 1, queue: list[Document] | None = None) -> Document:
    gpus = [gpu(index, "running", user="grace", run=f"r{index}", held_s=300.0) for index in range(others)]
    if mine["state"] == "running":
        gpus.append(gpu(others, "running", user="ada", run=mine["run"]))
    hers = {**active(run(5, "running", gpus=others)), "run": "r0", "user": "grace", "notebook": "", "held_s": 300.0}
    live = [hers] if mine["finished_at"] else [hers, active(mine)]
    return status([node("gpu-01", *gpus, gpu(7))], queue or [], live, usage=_usage())


def _running(api: GpuApi) -> Document:
    mine = run(0, "running", title="fit(model)")
    api.status = _cluster(mine)
    return mine


def _queued(api: GpuApi) -> Document:
    reason = "next in the queue: needs 4 GPUs, 1 of 4 is free"
    mine = run(0, "queued", title="fit(model)", gpus=4, position=1, reason=reason)
    place = waiting(1, "ada", run=mine["run"], gpus=4, reason=reason, start_estimate_s=240.0)
    api.status = _cluster(mine, others=3, queue=[place])
    return mine


def _preempted(api: GpuApi) -> Document:
    """It had GPUs, and waits to go on."""
    earlier = ["preempted for grace at epoch 37"]
    mine = run(0, "queued", title="fit(model)", gpus=4, earlier=earlier, queued_s=0.1, since_s=245.0, position=1)
    reason = "next in the queue: needs 4 GPUs, 1 of 4 is free"
    place = waiting(1, "ada", run=mine["run"], gpus=4, reason=reason, start_estimate_s=240.0)
    api.status = _cluster(mine, others=3, queue=[place])
    return mine


def _ended(api: GpuApi) -> Document:
    mine = run(0, title="fit(model)")
    api.status = _cluster(mine)
    return mine


def _stopped(api: GpuApi) -> Document:
    """The store tells of the run: its cluster was stopped while it ran."""
    gpu_scenes.no_cluster(api)
    return run(0, "lost", title="fit(model)", reason="its cluster ended before it")


def _silent(api: GpuApi) -> Document:
    """The gateway answers no more; what it said last is still known."""
    mine = _running(api)
    url = "https://gpu.example.org:8765"
    api.status["gateway"] = {  # type: ignore[index]
        "state": "unreachable",
        "url": url,
        "message": f"{url} does not answer",
        "next_try_s": 14.0,
        "age_s": 65.0,
    }
    return mine | {"reason": "the cluster does not answer: this is the last that is known"}


def _offline(api: GpuApi) -> Document:
    """No Jupyter server: what was seen before stays."""
    return _running(api)


@dataclass(frozen=True)
class State:
    """A state, and what answers each question in it: the place, and words that stand there."""

    name: str
    scene: Callable[[GpuApi], Document]
    going: str
    output: str
    who: str
    turn: str
    cost: str


_BANNER = ".jp-GpuRelease-situation"
STATES = [
    State(
        "it runs, with its notebook or without a kernel",
        _running,
        "Running",
        "3rd epoch",
        "grace",
        "Nobody waits",
        "Running",
    ),
    State(
        "it waits",
        _queued,
        "Queued",
        "queued",
        "Held by grace: 3 GPUs",
        r"starts in about 4 min · next in the queue",
        "Queued",
    ),
    State(
        "it was preempted",
        _preempted,
        "Queued, preempted for grace at epoch 37",
        "epoch 36",
        "Held by grace: 3 GPUs",
        r"starts in about 4 min · next in the queue",
        "Queued",
    ),
    State("it is over", _ended, "Succeeded", "free 31 ms", "grace", "Nobody waits", "held 2 min 8 s"),
    State(
        "no cluster",
        _stopped,
        "Lost.*its cluster ended before it",
        "its cluster ended",
        "No GPU cluster",
        "No GPU cluster",
        "held",
    ),
    State(
        "the cluster does not answer",
        _silent,
        "Running.*the cluster does not answer",
        "3rd epoch",
        "grace",
        "What is shown is 1 min 5 s old",
        "Running",
    ),
    State(
        "no Jupyter server", _offline, "Running", "3rd epoch", "grace", "No contact with the Jupyter server", "Running"
    ),
]


def _output(state: State) -> list[Document]:
    text = {"output_type": "stream", "name": "stdout", "text": state.output}
    return [{"changes": [{"op": "clear"}, {"op": "add", "output": text}], "live": False, "mine": True}]


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_each_question_has_its_answer_at_most_one_click_away(shown: Page, api: GpuApi, state: State) -> None:
    mine = state.scene(api)
    api.runs = [mine]
    api.pages[mine["run"]] = page(mine, is_cluster_known=state.scene not in (_stopped, _silent))
    api.outputs[mine["run"]] = _output(state)
    execute(shown, LOOK)
    own = row(shown, "My runs", "fit(model)")
    expect(own).to_be_visible()
    if state.scene is _offline:
        own.click()
        expect(shown.get_by_role("heading", name="Times")).to_be_visible()  # what is shown was there before
        api.status = 503
        execute(shown, LOOK)
        expect(shown.locator(_BANNER)).to_contain_text("No contact with the Jupyter server")
    panel = shown.locator("#jupyter-gpu-release-panel")

    expect(own).to_have_attribute("aria-label", re.compile(state.going))  # is it still going?
    expect(_shown(panel, state.who)).to_be_visible()  # who has the GPUs?
    expect(_shown(panel, state.turn)).to_be_visible()  # when is it my turn?
    if state.scene is not _stopped:  # what did it cost? in sum …
        expect(panel.get_by_role("row", name=re.compile("^Held")).first).to_contain_text("1 h")
    if state.scene is _preempted:
        expect(own).to_contain_text("4 min")  # not since it was sent
    own.click()  # where is its output? … and this run
    tab = shown.locator(".jp-GpuRelease-page:visible")
    expect(tab.get_by_role("region", name="Output")).to_contain_text(state.output)
    expect(tab.get_by_role("heading", name="Times")).to_be_visible()
    execute(shown, "application:close")


def _shown(panel: Locator, words: str) -> Locator:
    return panel.get_by_text(re.compile(words)).locator("visible=true").first


def test_the_guide_has_the_table() -> None:
    """A row for each state, an answer for each question."""
    table = _GUIDE.read_text().split("\n\n")[2].splitlines()
    assert len(table[0].split("|")) == 5 + 3
    assert [line.split("|")[1].strip() for line in table[2:]] == [state.name for state in STATES]
    assert all(cell.strip() for line in table for cell in line.split("|")[1:-1])
