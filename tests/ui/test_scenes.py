"""Each thing that we show, light on a telephone's width, dark on a desk's: axe finds nothing, nothing is cut off.

The form, the advice and the page of a run have the same test beside their own: they need more than a played answer.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gpu_scenes
import pytest
from gpu_api import Document, GpuApi, active, run
from lab_bed import execute
from playwright.sync_api import Page, expect
from sidebar_bed import LOOK, Team, close_all, open_notebook, row, write_notebook
from soak import ONLY_IN_SOAK

pytestmark = pytest.mark.thorough

_AXE = Path(__file__).parents[2] / "labextension" / "node_modules" / "axe-core" / "axe.min.js"
_THEMES = ("JupyterLab Light", "JupyterLab Dark")
_WIDTHS_PX = (320, 1440)
_NOTEBOOK = "scenes.ipynb"
_PANEL = "#jupyter-gpu-release-panel"
#: the menu itself is JupyterLab's
_OUR_ITEMS = ".lm-Menu-item[data-command^='jupyter-gpu-release']:not(.lm-mod-hidden)"
_SITUATION = ".jp-GpuRelease-situation"
_TOAST = ".Toastify__toast"
_STILL = f"""() => [...document.querySelectorAll('{_TOAST}')].every(
  toast => toast.getAnimations({{subtree: true}}).every(({{playState}}) => playState === 'finished'))"""
_NO_TOASTS = f"""() => document.querySelectorAll('{_TOAST}').forEach(
  ({{id}}) => void window.jupyterapp.commands.execute('apputils:dismiss-notification', {{id}}))"""


@dataclass
class Stage:
    """One page for all scenes: the sidebar with played answers beside a notebook."""

    page: Page
    api: GpuApi
    root: Path
    looks: int = 0

    def look(self) -> None:
        """Ask for what the scene answers; a run that was not there before has the list of runs asked for anew."""
        self.looks += 1
        if isinstance(self.api.status, dict) and self.api.status["cluster"]:
            self.api.status["cluster"]["runs"].append(
                {**active(run(99, "running", run=f"stranger-{self.looks}")), "user": "nobody"}
            )
        execute(self.page, LOOK)

    def expect_words(self, words: str, place: str = _PANEL) -> None:
        """Wait until it is said."""
        expect(self.page.locator(place).first).to_contain_text(re.compile(words))


@dataclass(frozen=True)
class Scene:
    """One state of the page, and the parts of it that are ours."""

    name: str
    #: brings it about, and waits until it is there
    play: Callable[[Stage], None]
    #: what is ours in it (a selector): axe looks there only
    parts: str = _PANEL
    #: it is seen beside the panel, or without
    panel: bool = True
    widths_px: tuple[int, ...] = _WIDTHS_PX


def _panel(scene: Callable[[GpuApi], None], words: str, place: str = _PANEL) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        scene(stage.api)
        stage.look()
        stage.expect_words(words, place)

    return play


def _starts(api: GpuApi, **start: Any) -> None:
    gpu_scenes.no_cluster(api)
    document: Any = api.status
    document["start"] = start


def _refused(api: GpuApi) -> None:
    gpu_scenes.no_cluster(api)
    document: Any = api.status
    document["gateway"] = {
        "state": "refused",
        "url": "https://gpu.example.org:8765",
        "message": "the token has expired",
        "mend": "ask for a new one: jupyter gpu token create ada",
    }


def _answers(code: int) -> Callable[[GpuApi], None]:
    return lambda api: setattr(api, "status", code)


def _busy(stage: Stage) -> None:
    gpu_scenes.busy_day(stage.api)
    stage.look()
    expect(row(stage.page, "GPUs", "warm")).to_be_visible()


def _opened_row(stage: Stage) -> None:
    """The facts of a GPU, and a refusal below its name."""
    _busy(stage)
    refusal = {"message": "the lease has ended", "mend": "run the cell again to get a GPU"}
    stage.api.answers["extend"] = (409, {"error": refusal})
    warm = row(stage.page, "GPUs", "warm")
    if warm.get_attribute("aria-expanded") == "false":
        warm.press("Enter")
    warm.get_by_role("button", name="Extend").first.click()
    expect(warm.get_by_role("alert")).to_contain_text("the lease has ended")
    warm.get_by_text("Open notebook").scroll_into_view_if_needed()


def _menu(tree: str, text: str) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        _busy(stage)
        row(stage.page, tree, text).click(button="right")
        expect(stage.page.locator(".lm-Menu-item").filter(has_text="Copy id")).to_be_visible()

    return play


def _cancel_question(stage: Stage) -> None:
    _busy(stage)
    goes = row(stage.page, "My runs", "ResNet")
    goes.focus()
    goes.get_by_role("button", name="Cancel").first.click()
    expect(stage.page.get_by_role("button", name="Let it run")).to_be_visible()


def _told(**more: Any) -> Document:
    ways = {"mail_from": "gpu@example.org", "webhook_hosts": ["hooks.slack.com", "discord.com"]}
    told = [
        {"channel": "mail", "at": time.time()},
        {"channel": "webhook", "at": time.time(), "error": "hooks.slack.com answered 404: no_service"},
    ]
    events = {"starts": True, "pauses": True, "ends": True}
    return {
        "user": "ada",
        "email": "ada@example.org",
        "webhook": "hooks.slack.com",
        "deliveries": told,
        **ways,
        **events,
        **more,
    }


def _notify(stage: Stage) -> None:
    stage.api.documents["notify"] = _told()
    execute(stage.page, "jupyter-gpu-release:notify")
    expect(stage.page.locator(".jp-Dialog").get_by_label("E-mail")).to_be_visible()


def _notify_refused(stage: Stage) -> None:
    _notify(stage)
    refusal = {"message": "this cluster sends no mail to elsewhere.net", "mend": "only to example.org"}
    stage.api.answers["notify"] = (400, {"message": refusal["message"], "error": refusal})
    dialog = stage.page.locator(".jp-Dialog")
    dialog.get_by_label("E-mail").fill("ada@elsewhere.net")
    dialog.get_by_role("button", name="Save", exact=True).click()
    expect(dialog.get_by_role("alert")).to_be_visible()


def _toasts(stage: Stage) -> None:
    """A warning before a GPU is taken, and the end of a long run."""
    _busy(stage)
    policy = {
        "action": "warn",
        "rule": "idle-warning",
        "reason": "idle for 42 min",
        "kind": "kernel",
        "subject": "k-1",
        "path": "explore.ipynb",
        "due_s": 300.0,
        "dry_run": False,
        "done": False,
    }
    stage.api.emit("idle_policy/v1", **policy)
    toasts = stage.page.locator(_TOAST)
    expect(toasts.filter(has_text="holds a GPU for nothing")).to_be_visible()
    ended, *others = stage.api.runs
    document: Any = stage.api.status
    document["cluster"]["runs"] = [row for row in document["cluster"]["runs"] if row["run"] != ended["run"]]
    error = {"ename": "OutOfMemoryError", "evalue": "CUDA out of memory. Tried to allocate 2.00 GiB", "mend": ""}
    stage.api.runs = [{**ended, "state": "failed", "error": error}, *others]
    stage.look()
    expect(toasts.filter(has_text="failed after")).to_be_visible()
    stage.page.wait_for_function(_STILL)


def _cells(stage: Stage) -> None:
    """Marks of GPU cells, what is said below those that wait and run, the toggle above."""
    notebook = str(stage.root / _NOTEBOOK)
    gpu_scenes.busy_day(stage.api)
    goes, waits = (
        run(20 + number, state, notebook=notebook, cell=f"cell-{number}", gpus=2, reason=reason)
        for number, state, reason in ((1, "running", ""), (2, "queued", "needs 2 GPUs, 1 of 8 is free"))
    )
    stage.api.runs = [goes, waits]
    stage.look()
    expect(stage.page.locator(".jp-GpuRelease-hint")).to_have_count(2)
    expect(stage.page.locator(".jp-GpuRelease-gpuCell")).to_have_count(3)


SCENES = [
    Scene("team", _panel(gpu_scenes.administrators_day, "katherine")),
    Scene("row-opened", _opened_row),
    Scene("no-cluster", _panel(gpu_scenes.no_cluster, "No GPU cluster", _SITUATION)),
    Scene(
        "starting",
        _panel(
            lambda api: _starts(api, state="starting", step="starting Ray with 4 simulated GPUs", elapsed_s=2.0),
            "The cluster is starting",
            _SITUATION,
        ),
    ),
    Scene(
        "not-started",
        _panel(
            lambda api: _starts(
                api,
                state="failed",
                message="port 6379 is in use by another process",
                mend="end it, or set JUPYTER_GPU_PORT",
            ),
            "did not start",
            _SITUATION,
        ),
    ),
    Scene(
        "start-refused",
        _panel(
            lambda api: _starts(
                api, state="refused", message="this server starts no clusters", mend="ask its administrator"
            ),
            "starts no clusters",
            _SITUATION,
        ),
    ),
    Scene("refused", _panel(_refused, "refuses this server", _SITUATION)),
    Scene("no-answer", _panel(gpu_scenes.gateway_down, "What is shown is", _SITUATION)),
    Scene("no-gpus", _panel(gpu_scenes.no_gpu, "has no GPUs", _SITUATION)),
    Scene("simulated", _panel(gpu_scenes.simulated, "simulated")),
    Scene("not-permitted", _panel(_answers(403), "Not permitted", _SITUATION)),
    Scene("not-enabled", _panel(_answers(404), "not enabled", _SITUATION)),
    Scene("no-server", _panel(_answers(503), "No contact", _SITUATION)),
    Scene("gpu-menu", _menu("GPUs", "warm"), _OUR_ITEMS),
    Scene("run-menu", _menu("My runs", "ResNet"), _OUR_ITEMS),
    Scene("cancel", _cancel_question, ".jp-Dialog-content"),
    Scene("notify", _notify, ".jp-Dialog-content"),
    Scene("notify-refused", _notify_refused, ".jp-Dialog-content"),
    Scene("toasts", _toasts, _TOAST),
    Scene(
        "cells",
        _cells,
        ".jp-GpuRelease-hint, .jp-GpuRelease-gpuCell .jp-InputPrompt, [data-jp-item-name='gpu-cell']",
        panel=False,
    ),
    # JupyterLab shows it in wide windows only
    Scene("status-bar", _busy, ".jp-GpuRelease-statusItem", widths_px=(1440,)),
]


@pytest.fixture(scope="module")
def stage(played: GpuApi, team: Team) -> Stage:
    """A page with the sidebar and a notebook, for all scenes."""
    gpus = "%%gpu_train --gpus 2 --name fit\nmodel = fit(train)"
    write_notebook(team.lab.root / _NOTEBOOK, "train = load()", gpus, gpus, "%%gpu_train --gpus 0\nclean(train)")
    open_notebook(played.page, _NOTEBOOK)
    played.page.add_script_tag(path=str(_AXE))
    return Stage(played.page, played, team.lab.root)


@pytest.fixture
def cleared(stage: Stage) -> Iterator[Stage]:
    """The stage with nothing of the scene before."""
    yield stage
    close_all(stage.page)
    stage.page.evaluate(_NO_TOASTS)
    expect(stage.page.locator(f".jp-Dialog, .lm-Menu, {_TOAST}")).to_have_count(0)
    stage.api.clear()


_CUT_OFF = """selector => {
  const found = [];
  const clips = (style, side) => style[side] !== 'visible';
  const edges = element => {  // what its ancestors and the window let be seen, and which of them ends words with …
    let [left, right, bottom] = [0, innerWidth, Infinity];
    let hasEllipsis = false;
    for (let at = element; at && at !== document.body; at = at.parentElement) {
      const style = getComputedStyle(at), box = at.getBoundingClientRect();
      hasEllipsis ||= style.textOverflow === 'ellipsis' && style.overflowX !== 'visible';
      if (clips(style, 'overflowX')) [left, right] = [Math.max(left, box.left), Math.min(right, box.right)];
      if (style.overflowY === 'hidden' && !+style.webkitLineClamp) bottom = Math.min(bottom, box.bottom);
      const isScrolled = style.overflowY === 'auto' || style.overflowY === 'scroll';
      if (isScrolled || style.position === 'fixed') break;  // the rest is a scroll away, or below
    }
    return {left, right, bottom, hasEllipsis};
  };
  const note = (what, element, text) => found.push(`${what}: ${text.trim().slice(0, 80)} <${element.className}>`);
  for (const part of document.querySelectorAll(selector)) {
    for (const element of [part, ...part.querySelectorAll('*')]) {
      if (!element.checkVisibility() || element.closest('.jp-GpuRelease-spoken')) continue;
      const box = element.getBoundingClientRect(), style = getComputedStyle(element);
      if (box.width && (box.right > innerWidth + 1 || box.left < -1)) note('outside', element, element.textContent);
      const scrolls = style.overflowX === 'auto' || style.overflowX === 'scroll';
      if (scrolls && element.scrollWidth > element.clientWidth + 1) note('scrolls', element, element.textContent);
      const own = [...element.childNodes].filter(({nodeType, data}) => nodeType === 3 && data.trim());
      const {left, right, bottom, hasEllipsis} = edges(element);
      for (const text of own) {
        const range = document.createRange();
        range.selectNodeContents(text);
        const seen = range.getBoundingClientRect();
        if (!hasEllipsis && (seen.right > right + 1 || seen.left < left - 1)) note('cut', element, text.data);
        if (seen.bottom > bottom + 3) note('cut below', element, text.data);
      }
      const isShort = element.matches('button') && element.scrollWidth > element.clientWidth + 1;
      if (isShort || (element.matches('button, input, svg, select') && (box.right > right + 1 || box.left < left - 1)))
        note('cut', element, element.title || element.ariaLabel || element.textContent);
    }
  }
  for (const part of document.querySelectorAll(selector)) {
    const buttons = [...part.querySelectorAll('button')].filter(button => button.checkVisibility());
    const boxes = buttons.map(button => button.getBoundingClientRect());
    boxes.forEach((one, at) => boxes.slice(at + 1).forEach(other => {
      const shared = [Math.min(one.right, other.right) - Math.max(one.left, other.left),
                      Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top)];
      if (Math.min(...shared) > 1) note('covered', buttons[at], buttons[at].textContent);
    }));
  }
  return found;
}"""
#: JupyterLab's own toolbar button says aria-pressed without a role
_VIOLATIONS = """include => axe.run({include, exclude: 'jp-button'}).then(({violations}) => violations.map(
  ({id, nodes}) => [id, nodes.map(({html, failureSummary}) => [html.slice(0, 200), failureSummary])]))"""


def _looks() -> list[Any]:
    """Each scene in each theme at each width. A width has one theme, but for the soak."""
    return [
        pytest.param(theme, width_px, scene, id=f"{theme.split()[-1].lower()}-{scene.name}-{width_px}", marks=marks)
        for its_width_px, its_theme in zip(_WIDTHS_PX, _THEMES, strict=True)
        for width_px in _WIDTHS_PX
        for theme, marks in [(its_theme, [] if width_px == its_width_px else [ONLY_IN_SOAK])]
        for scene in SCENES
        if width_px in scene.widths_px
    ]


@pytest.mark.parametrize(("theme", "width_px", "scene"), _looks())
def test_a_scene_can_be_read(cleared: Stage, theme: str, width_px: int, scene: Scene) -> None:
    page = cleared.page
    _dress(page, theme, width_px, panel=scene.panel)
    scene.play(cleared)
    if folder := os.environ.get("JUPYTER_GPU_PICTURES"):
        page.screenshot(path=Path(folder) / f"{scene.name}-{width_px}-{theme.split()[-1].lower()}.png")
    assert page.evaluate(_CUT_OFF, scene.parts) == []
    assert page.evaluate(_VIOLATIONS, scene.parts.split(", ")) == []
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")


def _dress(page: Page, theme: str, width_px: int, *, panel: bool) -> None:
    if page.evaluate("() => document.body.dataset.jpThemeName") != theme:
        execute(page, "apputils:change-theme", {"theme": theme})
        page.wait_for_function("theme => document.body.dataset.jpThemeName === theme", arg=theme)
        page.wait_for_selector("#jupyterlab-splash", state="detached")
    page.set_viewport_size({"width": width_px, "height": 900})
    if page.locator(_PANEL).is_visible() != panel:
        execute(page, "jupyter-gpu-release:open" if panel else "application:toggle-left-area")
        expect(page.locator(_PANEL)).to_be_visible(visible=panel)
