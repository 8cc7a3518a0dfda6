"""The page of a run: found by a click and by an address, live without a kernel, once, there again after a reload."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import gpu_scenes
import pytest
from gpu_api import GpuApi
from lab_bed import execute
from playwright.sync_api import Locator, Page, expect
from sidebar_bed import Team, row, write_notebook

pytestmark = pytest.mark.thorough

_STARTED_MS = 60_000
_LOAD = "%load_ext jupyter_gpu_release"
_CODE = """%%gpu_train --name paged --detach --timeout 1h
import os, time
from jupyter_gpu_release import run_dir
print('first line')
(run_dir / 'notes.txt').write_text('kept')
while os.path.exists({mark!r}):
    time.sleep(0.05)
print('last line')
weights = [1, 2, 3]"""
_OPEN = "jupyter-gpu-release:open-run"
_AXE = Path(__file__).parents[2] / "labextension" / "node_modules" / "axe-core" / "axe.min.js"


def test_a_run_has_a_page(
    page: Page, team: Team, tmp_path: Path, until: Callable[[Callable[[], object], str], None]
) -> None:
    mark = tmp_path / "goes-on"
    mark.touch()
    write_notebook(team.lab.root / "paged.ipynb", _LOAD, _CODE.format(mark=str(mark)))
    execute(page, "docmanager:open", {"path": "paged.ipynb"})
    page.wait_for_function(
        "window.jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'", timeout=_STARTED_MS
    )
    execute(page, "notebook:run-all-cells")
    run = row(page, "My runs", "paged")
    expect(run).to_be_visible(timeout=_STARTED_MS)
    run.click()
    tabs = page.locator("#jp-main-dock-panel .lm-TabBar-tab", has_text="paged").filter(has_not_text=".ipynb")
    shown = page.locator(".jp-GpuRelease-page:visible")
    output = shown.get_by_role("region", name="Output")
    expect(output).to_contain_text("first line")
    expect(shown.get_by_role("region", name="Code")).to_contain_text("weights = [1, 2, 3]")
    expect(shown).to_contain_text('--timeout "1 h"')
    run.click()
    expect(tabs).to_have_count(1)

    ident = shown.get_by_role("button", name="Copy id").get_attribute("title")
    page.evaluate("() => window.jupyterapp.serviceManager.sessions.shutdownAll()")  # no kernel from here on
    workspaces = f"{team.lab.url}/lab/api/workspaces?token={team.lab.token}"
    until(lambda: f"gpu-run:{ident}" in page.request.get(workspaces).text(), "the tab is noted in the workspace")
    page.reload()
    page.wait_for_selector("#jupyterlab-splash", state="detached")
    execute(page, "jupyter-gpu-release:open")
    expect(tabs).to_have_count(1)
    tabs.first.click()
    expect(output).to_contain_text("first line")

    mark.unlink()
    expect(output).to_contain_text("last line")
    expect(output).to_contain_text("free")  # its receipt
    expect(shown).to_contain_text("Last statement")
    expect(shown).to_contain_text("GPUs free")
    with page.expect_download() as download:
        shown.get_by_role("link", name="notes.txt").click()
    assert download.value.path().read_text() == "kept"
    shown.get_by_role("button", name="Pin results").click()
    expect(shown.get_by_role("button", name="Unpin results")).to_be_visible()
    assert team.gateway.run(str(ident)).pinned

    second = page.context.new_page()
    second.goto(f"{team.lab.url}/lab?token={team.lab.token}&gpu-run={ident}")
    expect(second.locator(".jp-GpuRelease-page:visible").get_by_role("region", name="Output")).to_contain_text(
        "last line", timeout=_STARTED_MS
    )
    expect(second).not_to_have_url(re.compile("gpu-run"))
    second.goto(team.lab.page_url("notebooks/paged.ipynb"))  # Notebook 7
    execute(second, "jupyter-gpu-release:open")
    with second.expect_popup() as popup:
        row(second, "My runs", "paged").click()
    expect(popup.value.locator(".jp-GpuRelease-page:visible").get_by_role("region", name="Output")).to_contain_text(
        "last line", timeout=_STARTED_MS
    )
    popup.value.close()
    second.close()


_THEMES = ("JupyterLab Light", "JupyterLab Dark", "JupyterLab Dark High Contrast")


def test_everybody_can_read_it(api: GpuApi) -> None:
    """Axe finds nothing, nothing is cut off at its side, and lines of code stay lines, narrow or wide."""
    page, run, sweep = api.page, gpu_scenes.run_page(api), gpu_scenes.sweep_page(api)
    shown = page.locator(".jp-GpuRelease-page:visible")
    execute(page, "application:toggle-left-area")
    execute(page, _OPEN, {"run": sweep})
    expect(shown.get_by_role("region", name="Trials")).to_contain_text("0.09 EUR")
    expect(shown.get_by_role("region", name="Output")).to_be_hidden()
    _check_themes(page, shown, "sweep")
    execute(page, "application:close")
    execute(page, _OPEN, {"run": run})
    expect(shown.get_by_role("region", name="Output")).to_contain_text("free 31 ms")
    expect(shown.get_by_role("img")).to_be_visible()
    expect(shown.get_by_role("link", name="Load CIFAR-10")).to_be_visible()
    expect(shown.locator(".jp-GpuRelease-code span").first).to_be_attached()  # it is highlighted
    _check_themes(page, shown, "run")


def _check_themes(page: Page, shown: Locator, name: str) -> None:
    code_px: set[int] = set()
    page.add_script_tag(path=str(_AXE))
    for theme in _THEMES:
        execute(page, "apputils:change-theme", {"theme": theme})
        page.wait_for_function("theme => document.body.dataset.jpThemeName === theme", arg=theme)
        page.wait_for_selector("#jupyterlab-splash", state="detached")
        for width_px in (320, 1440):
            page.set_viewport_size({"width": width_px, "height": 900})
            page.wait_for_function(
                "width => Math.abs(document.querySelector('.jp-GpuRelease-page').clientWidth - width) < 80",
                arg=width_px,
            )
            if folder := os.environ.get("JUPYTER_GPU_PICTURES"):
                page.screenshot(path=Path(folder) / f"{name}-{width_px}-{theme.replace(' ', '-')}.png")
            found = page.evaluate("() => axe.run({include: '.jp-GpuRelease-page'}).then(seen => seen.violations)")
            assert [(rule["id"], [one["html"][:200] for one in rule["nodes"]]) for rule in found] == []
            assert shown.evaluate("page => page.scrollWidth - page.clientWidth") == 0
            code_px.add(shown.locator(".jp-GpuRelease-code pre").evaluate("code => code.offsetHeight"))
    assert len(code_px) == 1
