"""The sidebar in a real Chromium: how soon a change is seen, what a big cluster costs, its size, Lab's start."""

from __future__ import annotations

import gzip
import json
import re
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.client.session import GatewaySession, RunFeed
from jupyter_gpu_release.protocol.admin import TokenRequest
from jupyter_gpu_release.protocol.runs import ResourceAsk, RunRequest
from jupyter_gpu_release.protocol.session import Accepted, Update
from jupyter_gpu_release.protocol.states import RunState, new_run_id

from .bed import Kernel, bed
from .broker.run import simulated_cluster
from .report import CannotMeasureError, Report

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "harness"))

import gpu_scenes
from gpu_api import GpuApi
from lab_bed import Lab, chromium, execute, launch, open_lab, running_lab
from playwright.sync_api import Browser, Page, expect, sync_playwright
from sidebar_bed import write_notebook

BUNDLE = Path(__file__).parents[1] / "jupyter_gpu_release" / "labextension"
_FREE_AGAIN_WITHIN_S = 60.0
_NODES, _GPUS_PER_NODE, _WAITING = 64, 8, 1000
_CROWD_THERE_WITHIN_S = 120.0
#: notes by the clock of this machine when the first tile ("free") changes, when an event comes, and the questions
#: for the status with their answers
_WATCH = """() => {
  window.seen = [];
  window.told = [];
  window.asked = [];
  const tile = document.querySelector('.jp-GpuRelease-number');
  const note = () => window.seen.push([Date.now() / 1000, tile.textContent]);
  new MutationObserver(note).observe(tile, {childList: true, characterData: true, subtree: true});
  window.jupyterapp.serviceManager.events.stream.connect(() => window.told.push(Date.now() / 1000));
  const at_s = ms => (performance.timeOrigin + ms) / 1000;
  new PerformanceObserver(list => list.getEntries().forEach(entry => {
    if (entry.name.includes('/jupyter-gpu-release/api/status'))
      window.asked.push([at_s(entry.startTime), at_s(entry.responseEnd)]);
  })).observe({type: 'resource'});
}"""
#: notes the time between two frames, and counts what changes in the panel
_FRAMES = """() => {
  window.changes = 0;
  new MutationObserver(list => { window.changes += list.length; }).observe(
    document.querySelector('#jupyter-gpu-release-panel'),
    {subtree: true, childList: true, characterData: true, attributes: true});
  window.frames_ms = [];
  let last = performance.now();
  const step = now => { window.frames_ms.push(now - last); last = now; requestAnimationFrame(step); };
  requestAnimationFrame(step);
  window.long_ms = [];
  new PerformanceObserver(list => list.getEntries().forEach(task => window.long_ms.push(task.duration)))
    .observe({type: 'longtask'});
}"""

#: notes the time from the key Tab to the question, the kernel's answer and the first list of completions
_TABS = """() => {
  window.tabs_ms = [];
  let pressed = null;
  let stages = {};
  const { kernel } = window.jupyterapp.shell.currentWidget.sessionContext.session;
  kernel.anyMessage.connect((_, { msg }) => {
    const since_ms = performance.now() - pressed;
    if (msg.header.msg_type === 'complete_request') stages.sent = since_ms;
    if (msg.header.msg_type === 'complete_reply') stages.replied = since_ms;
  });
  const shown = '.jp-Completer:not(.lm-mod-hidden) .jp-Completer-item';
  document.addEventListener('keydown', event => { if (event.key === 'Tab') pressed = performance.now(); }, true);
  new MutationObserver(() => {
    if (pressed !== null && document.querySelector(shown)) {
      window.tabs_ms.push({...stages, list: performance.now() - pressed});
      pressed = null;
      stages = {};
    }
  }).observe(document.body, {subtree: true, childList: true, attributes: true});
}"""

_ASK = """async () => {
  const { kernel } = window.jupyterapp.shell.currentWidget.sessionContext.session;
  const began = performance.now();
  await kernel.requestComplete({code: '%%gpu_train --gpus ', cursor_pos: 19});
  return performance.now() - began;
}"""


PARTS = ("crowd", "crowd-visible", "start", "visible")
_QUICK_PARTS = ("crowd", "visible")


def run(*, quick: bool = False, parts: Collection[str] = ()) -> Report:
    """Measure; needs the bundle (``make bundle``) and Chromium. No ``parts``: all of them, or the quick ones."""
    parts = parts or (_QUICK_PARTS if quick else PARTS)
    if chromium() is None:
        raise CannotMeasureError("it needs a Chromium that is on the path (Debian: apt install chromium)")
    if not (BUNDLE / "package.json").exists():
        raise CannotMeasureError("it needs the sidebar's bundle (make bundle)")
    report = Report("sidebar")
    report.add("bundle_gzipped", [_bundle_kb()], "kB")
    with sync_playwright() as playwright:
        browser = launch(playwright)
        if "crowd" in parts:
            with tempfile.TemporaryDirectory() as folder, running_lab(Path(folder)) as lab:
                _measure_crowd(report, browser, lab, seconds=4 if quick else 60)
        if "crowd-visible" in parts:
            _measure_visible_in_crowd(report, browser, count=2 if quick else 30)
        if "start" in parts:
            _measure_start(report, browser, count=1 if quick else 10)
        if "visible" in parts:
            _measure_visible(report, browser, count=2 if quick else 30)
        browser.close()
    return report


def _bundle_kb() -> float:
    return sum(len(gzip.compress(path.read_bytes())) for path in (BUNDLE / "static").glob("*.js")) / 1000


def _measure_crowd(report: Report, browser: Browser, lab: Lab, *, seconds: int) -> None:
    """512 GPUs and 1,000 who wait, everything changing once a second."""
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    api = GpuApi(page)
    gpu_scenes.crowd(api)
    open_lab(page, lab)
    execute(page, "jupyter-gpu-release:open")
    page.wait_for_selector(".jp-GpuRelease-gpu")
    page.wait_for_timeout(2000)
    spent = _Spent(browser, page)
    page.evaluate(_FRAMES)
    before, began_s, asked = spent.all_s(), time.monotonic(), api.asked
    for second in range(seconds):
        gpu_scenes.crowd(api, second=second)
        api.emit("changed/v1", what="cluster")
        page.wait_for_timeout(max(0.0, 1000 * (began_s + second + 1 - time.monotonic())))
    took_s = time.monotonic() - began_s
    after, changes = spent.all_s(), page.evaluate("window.changes")
    for metric, cpu_s in after.items():
        report.add(f"crowd_{metric}", [100 * (cpu_s - before[metric]) / took_s], "% of a core")
    report.add("crowd_longest_task", page.evaluate("window.long_ms") or [0.0])
    report.add("crowd_frame", page.evaluate("window.frames_ms"))
    if changes < seconds:
        raise RuntimeError(f"{seconds} updates changed the panel {changes} times: it was not seen")
    report.notes.append(
        f"crowd: {api.asked - asked} updates in {took_s:.0f} s, {changes} changes of the panel's elements;"
        " scripting_and_rendering: CPU time of the page's process with all its threads (scripts, style, layout, paint,"
        " raster, garbage); main_thread: of its main thread; scripts: its scripts;"
        " longest_task: tasks over 50 ms only"
    )
    page.close()


class _Spent:
    """CPU time that the page has used; not wall time, as others may be working here, too."""

    def __init__(self, browser: Browser, page: Page) -> None:
        self._page = page.context.new_cdp_session(page)
        self._page.send("Performance.enable", {"timeDomain": "threadTicks"})
        self._browser = browser.new_browser_cdp_session()

    def all_s(self) -> dict[str, float]:
        """Seconds so far: ``scripting_and_rendering`` of processes with pages (one), ``main_thread``, ``scripts``."""
        metrics = {entry["name"]: entry["value"] for entry in self._page.send("Performance.getMetrics")["metrics"]}
        processes = self._browser.send("SystemInfo.getProcessInfo")["processInfo"]
        pages_s = sum(process["cpuTime"] for process in processes if process["type"] == "renderer")
        return {
            "scripting_and_rendering": float(pages_s),
            "main_thread": float(metrics["TaskDuration"]),
            "scripts": float(metrics["ScriptDuration"]),
        }


def _measure_start(report: Report, browser: Browser, *, count: int) -> None:
    """From the page's request to a launcher that has the focus, with the extension and without."""
    for metric, off in (("lab_start", False), ("lab_start_without", True)):
        with tempfile.TemporaryDirectory() as folder:
            if off:
                config = Path(folder) / "config" / "labconfig" / "page_config.json"
                config.parent.mkdir(parents=True)
                config.write_text(json.dumps({"disabledExtensions": {"jupyter-gpu-release": True}}))
            with running_lab(Path(folder)) as lab:
                times = []
                for _ in range(count + 1):
                    page = browser.new_page()
                    began_s = time.monotonic()
                    open_lab(page, lab)
                    times.append(1000 * (time.monotonic() - began_s))
                    page.close()
        report.add(metric, times[1:])  # the first one fills caches


def _measure_visible(report: Report, browser: Browser, *, count: int) -> None:
    """From the cluster's own time of grant and of release to the panel's change."""
    with bed(own=True) as cluster, _Notebook.opened(cluster.work) as notebook, tempfile.TemporaryDirectory() as folder:
        home = {"JUPYTER_GPU_HOME": str(cluster.home)}
        with running_lab(Path(folder), environment=home) as lab:
            page = browser.new_page()
            open_lab(page, lab)
            execute(page, "jupyter-gpu-release:open")
            page.wait_for_selector(".jp-GpuRelease-number")
            tile = page.locator(".jp-GpuRelease-number").first
            free = tile.inner_text()
            page.evaluate(_WATCH)
            for _ in range(count):
                notebook.run("get_ipython().run_cell_magic('gpu_train', '', 'import time; time.sleep(3)')")
                expect(tile).to_have_text(free, timeout=1000 * _FREE_AGAIN_WITHIN_S)
            seen, told, asked = _watched(page)
            runs = _runs(page, lab, count)
            tabs_ms, answers_ms = _tab_ms(page, lab, count)
            for stage in ("sent", "replied", "list"):
                report.add(f"tab_{stage}", [each[stage] for each in tabs_ms])
            report.add("tab_answer", answers_ms)
    _add_stages(report, "", int(free), runs, (seen, told, asked))


def _add_stages(report: Report, prefix: str, free: int, runs: list[dict[str, Any]], watched: _Watched) -> None:
    """Of each run the stages of its begin (one GPU fewer than ``free``) and of its end."""
    for what, moment, number in (("held", "granted_at", free - 1), ("free", "gone_at", free)):
        stages = [_Stages.of(row[moment], number, *watched) for row in runs]
        for stage in fields(_Stages):
            report.add(f"{prefix}{what}_{stage.name}", [getattr(each, stage.name) for each in stages])


#: what :data:`_WATCH` noted: the first tile's number, events, questions with their answers
_Watched = tuple[list[tuple[float, int]], list[float], list[tuple[float, float]]]


def _watched(page: Page) -> _Watched:
    seen = [(at_s, int(re.sub(r"\D", "", text) or 0)) for at_s, text in page.evaluate("window.seen")]
    told, asked = page.evaluate("[window.told, window.asked]")
    return seen, told, asked


def _measure_visible_in_crowd(report: Report, browser: Browser, *, count: int) -> None:
    """The same where 512 cards are held but one, and 1,000 runs wait: a run that is short enough goes before them."""
    with (
        simulated_cluster(_NODES, _GPUS_PER_NODE) as cluster,
        GatewayClient(cluster.url, cluster.token, timeout_s=60.0) as client,
        _Submitter.opened(cluster.url, cluster.token, "others") as others,
        tempfile.TemporaryDirectory() as folder,
    ):
        others.fill(client)
        ada = client.create_token(TokenRequest("ada")).secret
        environment = {"JUPYTER_GPU_URL": cluster.url, "JUPYTER_GPU_TOKEN": ada}
        with (
            running_lab(Path(folder), environment=environment) as lab,
            _Submitter.opened(cluster.url, ada, "ada") as own,
        ):
            page = browser.new_page(viewport={"width": 1400, "height": 1000})
            open_lab(page, lab)
            execute(page, "jupyter-gpu-release:open")
            expect(page.locator(".jp-GpuRelease-number").first).to_have_text("1")
            page.evaluate(_WATCH)
            page.wait_for_timeout(2000)
            spent = _Spent(browser, page)
            before, asked_before = spent.all_s(), len(page.evaluate("window.asked"))
            for _ in range(count):
                own.run_short()
                page.wait_for_timeout(1000)  # looking at the page meanwhile would cost it time
            page.wait_for_timeout(3000)  # the last change may be seen late
            after, watched = spent.all_s(), _watched(page)
            runs = _runs(page, lab, count)
            page.close()
    updates = len(watched[2]) - asked_before
    _add_stages(report, "crowd_", 1, runs, watched)
    report.add("crowd_update_scripts", [1000 * (after["scripts"] - before["scripts"]) / updates])
    report.notes.append(
        f"crowd_held, crowd_free: {_NODES * _GPUS_PER_NODE} GPUs, all but one held, {_WAITING} runs wait, a gateway"
        f" over simulated nodes; crowd_update_scripts: the page's scripts per update, mean of {updates}"
    )


def _crowd_of(client: GatewayClient) -> tuple[int, int]:
    """How many GPUs are free, and how many runs wait."""
    found = client.status()
    return sum(gpu.state == "free" for node in found.nodes for gpu in node.gpus), found.waiting or len(found.queue)


class _Submitter:
    """Sends detached runs over a session of its own; their payload is their length."""

    def __init__(self, url: str, token: str, name: str) -> None:
        self._name = name
        self._session = GatewaySession(Target(url, token), name)
        self._session.connect(60.0)

    def submit(self, gpus: int, *, length_s: float, timeout_s: float) -> RunFeed:
        """Returns when it is sent."""
        ask, payload = ResourceAsk(gpus=gpus), str(length_s).encode()
        return self._session.submit(
            RunRequest(new_run_id(), self._name, ask, payload, timeout_s=timeout_s, detach=True)
        )

    def run_short(self) -> None:
        """Have a GPU for three seconds; returns when it is over."""
        feed = self.submit(1, length_s=3.0, timeout_s=60.0)
        while (item := feed.next_item(60.0)) is not None:
            if isinstance(item, Accepted | Update) and RunState.of(item.view.state).is_terminal:
                return
        raise RuntimeError(f"a run that is short enough did not end: {feed}")

    def fill(self, client: GatewayClient) -> None:
        """Hold all GPUs but one, and have :data:`_WAITING` wait for two each; returns when they do."""
        total = _NODES * _GPUS_PER_NODE
        for gpus in [2] * (total // 2 - 1) + [1] + [2] * _WAITING:
            self.submit(gpus, length_s=3600.0, timeout_s=7200.0)
        until_s = time.monotonic() + _CROWD_THERE_WITHIN_S
        while (found := _crowd_of(client)) != (1, _WAITING):
            if time.monotonic() > until_s:
                raise RuntimeError(f"after {_CROWD_THERE_WITHIN_S:.0f} s (free, waiting) are {found}")
            time.sleep(0.5)

    @classmethod
    @contextmanager
    def opened(cls, url: str, token: str, name: str) -> Iterator[_Submitter]:
        """One that is gone after the block."""
        made = cls(url, token, name)
        try:
            yield made
        finally:
            made._session.close()


def _tab_ms(page: Page, lab: Lab, count: int) -> tuple[list[dict[str, float]], list[float]]:
    """Milliseconds from Tab to each stage of :data:`_TABS` (options and values in turn).

    With them those from a question to the kernel's answer, with nobody typing.
    """
    write_notebook(lab.root / "tab.ipynb", "")
    execute(page, "docmanager:open", {"path": "tab.ipynb"})
    idle = "window.jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
    page.wait_for_function(f"() => {idle}")
    page.evaluate(_TABS)
    editor, items = page.locator(".jp-CodeCell .cm-content").last, page.locator(".jp-Completer .jp-Completer-item")
    answers: list[float] = []
    for number in range(count):
        editor.click()
        page.keyboard.type("%%gpu_train --gpus " if number % 2 else "%%gpu_train --")
        page.keyboard.press("Tab")
        items.first.wait_for()
        page.keyboard.press("Escape")
        page.keyboard.press("Control+A")
        page.keyboard.press("Delete")
        page.wait_for_timeout(300)  # the server holds back a message that follows another at once
        answers.append(page.evaluate(_ASK))
    stages: list[dict[str, float]] = page.evaluate("window.tabs_ms")
    return stages, answers


class _Notebook:
    """A kernel, spoken to in a thread of its own.

    Playwright's loop runs in the main thread; a blocking kernel client that finds a running loop hangs.
    """

    def __init__(self, thread: ThreadPoolExecutor, folder: Path) -> None:
        self._thread = thread
        self._kernel = thread.submit(Kernel, folder).result()

    def run(self, code: str) -> None:
        """Execute ``code``; returns when it is done."""
        self._thread.submit(self._kernel.run, code).result()

    @classmethod
    @contextmanager
    def opened(cls, folder: Path) -> Iterator[_Notebook]:
        """One that is gone after the block."""
        with ThreadPoolExecutor(1) as thread:
            made = cls(thread, folder)
            try:
                yield made
            finally:
                thread.submit(made._kernel.close).result()


def _runs(page: Page, lab: Lab, count: int) -> list[dict[str, Any]]:
    headers = {"Authorization": f"token {lab.token}"}
    answer = page.request.get(f"{lab.url}/jupyter-gpu-release/api/runs?limit={count}", headers=headers)
    rows: list[dict[str, Any]] = answer.json()["runs"]
    return rows


@dataclass(frozen=True)
class _Stages:
    """Milliseconds from a change in the cluster until the page had each stage of the answer that shows it."""

    #: the first event after the change
    told: float
    asked: float
    answered: float
    visible: float

    @classmethod
    def of(
        cls, at_s: float, free: int, seen: list[tuple[float, int]], told: list[float], asked: list[tuple[float, float]]
    ) -> _Stages:
        """Those of the change at ``at_s`` to ``free`` free GPUs, from what :data:`_WATCH` noted."""
        visible_s = next((when_s for when_s, shown in seen if when_s >= at_s and shown == free), None)
        if visible_s is None:
            raise RuntimeError(f"the panel never showed {free} free GPUs after {at_s:.3f}: {seen}")
        told_s = next((when_s for when_s in told if when_s >= at_s), visible_s)
        asked_s, answered_s = max(pair for pair in asked if pair[1] <= visible_s)
        return cls(*(1000 * (when_s - at_s) for when_s in (told_s, asked_s, answered_s, visible_s)))
