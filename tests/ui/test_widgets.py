"""Widgets of GPU cells in the browser: they move while the cell runs, and are there after a reload."""

from __future__ import annotations

from pathlib import Path

from lab_bed import execute
from playwright.sync_api import Locator, Page, expect
from sidebar_bed import Team, write_notebook

_STARTED_MS = 60_000
_LOAD = "%load_ext jupyter_gpu_release"
#: a bar at 3 of 7, a label that is changed twice, and a bar that goes on once the file is removed
_CODE = """%%gpu_train
import os, time
from tqdm.auto import tqdm
import ipywidgets
label = ipywidgets.HTML('<b>first</b>')
display(label)
open({mark!r}, 'w').close()
for n in tqdm(range(7), mininterval=0):
    while n == 3 and os.path.exists({mark!r}):
        label.value = '<b>waits</b>'
        time.sleep(0.2)
label.value = '<b>last</b>'"""
_KERNEL = "window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status"


def _open(page: Page, path: str) -> Locator:
    execute(page, "docmanager:open", {"path": path})
    page.wait_for_function(
        "path => window.jupyterapp.shell.currentWidget?.context?.path === path &&" + _KERNEL,
        arg=path, timeout=_STARTED_MS,
    )  # fmt: skip
    return page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-CodeCell").nth(1)


def test_widgets_move_survive_a_reload_and_the_kernel_is_busy(page: Page, team: Team, tmp_path: Path) -> None:
    mark = tmp_path / "goes-on"
    write_notebook(team.lab.root / "widgets.ipynb", _LOAD, _CODE.format(mark=str(mark)))
    cell = _open(page, "widgets.ipynb")
    page.wait_for_function(f"{_KERNEL} === 'idle'", timeout=_STARTED_MS)
    execute(page, "notebook:run-all-cells")
    output = cell.locator(".jp-OutputArea")
    expect(output.locator(".widget-html b")).to_have_text("waits", timeout=_STARTED_MS)
    expect(output).to_contain_text("3/7")
    expect(page.locator("#jp-main-statusbar")).to_contain_text("Busy")
    # JupyterLab takes the end of requests of its own (the widgets' subshell) for idle, until the cell says it again
    page.wait_for_function(f"{_KERNEL} === 'busy'")
    mark.unlink()
    expect(output.locator(".widget-html b")).to_have_text("last")
    expect(output).to_contain_text("7/7")
    page.wait_for_function(f"{_KERNEL} === 'idle'", timeout=_STARTED_MS)
    page.evaluate("() => window.jupyterapp.shell.currentWidget.context.save()")

    page.reload()
    page.wait_for_selector("#jupyterlab-splash", state="detached")
    output = _open(page, "widgets.ipynb").locator(".jp-OutputArea")
    expect(output.locator(".widget-html b")).to_have_text("last", timeout=_STARTED_MS)
    expect(output).to_contain_text("7/7")
    expect(output).not_to_contain_text("Error displaying widget")
