"""The whole story with the real parts: server, kernels, gateway, Ray, fork server, browser.

Nothing here waits for a time: the panel looks by itself every five minutes only, so what it shows has been told to it.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from pathlib import Path

import pytest
from lab_bed import execute
from playwright.sync_api import Locator, Page, expect
from sidebar_bed import Team, opened, press, row, write_notebook

from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.errors import GpuReleaseError

_STARTED_MS = 60_000
#: holds its GPUs until the file is removed, or 10 minutes at most
_HOLD = """%%gpu_train {options}
import os, time
open({mark!r}, 'w').close()
for step in range(6000):
    print(f'\\rstep {{step // 10 * 10}} of many', end='')
    time.sleep(0.1)
    if not os.path.exists({mark!r}):
        break
answer = 6 * 7"""
_LOAD = "%load_ext jupyter_gpu_release"


def _hold(mark: Path, options: str) -> str:
    return _HOLD.format(mark=str(mark), options=options)


def _open(page: Page, path: str) -> Locator:
    """Show a notebook, and start its kernel; returns its part of the page."""
    execute(page, "docmanager:open", {"path": path})
    shown = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")
    page.wait_for_function(
        "path => window.jupyterapp.shell.currentWidget?.context?.path === path"
        " && window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status === 'idle'",
        arg=path,
        timeout=_STARTED_MS,
    )
    return shown


def _free(page: Page) -> Locator:
    return page.locator(".jp-GpuRelease-tile").first


@pytest.mark.slow("a browser, JupyterLab and a cluster")
def test_a_run_from_the_queue_to_its_receipt(page: Page, team: Team, tmp_path: Path) -> None:
    """Grace has all GPUs; ada waits, is started, goes on, ends."""
    hers, mine = tmp_path / "hers", tmp_path / "mine"
    login = f"import os\nos.environ['JUPYTER_GPU_TOKEN'] = {team.grace!r}\n{_LOAD}"
    write_notebook(team.lab.root / "grace.ipynb", login, _hold(hers, "--gpus 4"))
    write_notebook(team.lab.root / "story.ipynb", _LOAD, _hold(mine, "--gpus 1 --name first"))
    expect(_free(page)).to_have_text("4free")
    _open(page, "grace.ipynb")
    execute(page, "notebook:run-all-cells")
    expect(_free(page)).to_have_text("0free", timeout=_STARTED_MS)

    others = row(page, "GPUs", "grace")
    expect(others).to_be_visible()
    others.hover()
    expect(others.get_by_role("button")).to_have_count(0)
    others.press("Enter")
    expect(others).to_contain_text("grace")
    expect(others.get_by_role("button")).to_have_count(0)
    expect(others).not_to_contain_text("grace.ipynb")  # whose notebook it is concerns nobody else

    notebook = _open(page, "story.ipynb")
    execute(page, "notebook:run-all-cells")
    run = row(page, "My runs", "first")
    expect(run).to_contain_text("Queued", timeout=_STARTED_MS)
    expect(row(page, "Queue", "you")).to_be_visible()
    expect(page.locator(".jp-GpuRelease-statusItem")).to_contain_text("queued, place 1 · 0 free")
    hint = notebook.locator(".jp-GpuRelease-hint")
    expect(hint).to_contain_text("Queued")

    hers.unlink()
    expect(hint).to_contain_text("Running")
    expect(_free(page)).to_have_text("3free")
    expect(page.locator(".jp-GpuRelease-statusItem")).to_contain_text("1 held · 3 free")
    expect(row(page, "GPUs", "story.ipynb")).to_be_visible()
    expect(run).to_contain_text("of many")  # its progress

    mine.unlink()
    expect(_free(page)).to_have_text("4free")
    expect(run).to_contain_text("free after")
    expect(hint).to_have_count(0)
    expect(notebook.locator(".jp-OutputArea").last).to_contain_text("free")  # the receipt
    run.press("Enter")
    expect(page.locator(".jp-GpuRelease-pageFacts:visible")).to_contain_text("answer")

    _open(page, "grace.ipynb")
    toast = page.locator(".Toastify__toast", has_text="first succeeded")
    toast.get_by_role("button", name="Show cell").click()
    expect(notebook.locator(".jp-Cell.jp-mod-active")).to_contain_text("--name first")


@pytest.mark.thorough
def test_the_form_writes_the_line_and_the_running_panel_has_the_run(page: Page, team: Team, tmp_path: Path) -> None:
    code = _hold(tmp_path / "goes-on", "").split("\n", 1)[1]
    write_notebook(team.lab.root / "form.ipynb", _LOAD, code)
    notebook = _open(page, "form.ipynb")
    notebook.locator(".jp-Cell").first.click()
    execute(page, "notebook:run-cell-and-select-next")
    expect(notebook.locator(".jp-Cell.jp-mod-active")).to_contain_text("answer")
    execute(page, "jupyter-gpu-release:run-on-gpu")
    form = page.get_by_role("dialog")
    expect(form).to_contain_text("4 of 4 free now")
    form.get_by_label("GPUs", exact=True).fill("2")
    expect(form.locator("code")).to_have_text("%%gpu_train --gpus 2")
    form.get_by_role("button", name="Add and run").click()
    expect(_free(page)).to_have_text("2free", timeout=_STARTED_MS)
    expect(notebook.locator(".jp-Cell").last).to_contain_text("%%gpu_train --gpus 2")

    execute(page, "running:show-panel")
    running = page.locator("#jp-running-sessions")
    entry = running.locator(".jp-RunningSessions-item", has_text="form.ipynb").filter(has_text="2 GPUs")
    expect(entry).to_contain_text("Running")
    execute(page, "jupyter-gpu-release:open")

    hint = notebook.locator(".jp-GpuRelease-hint")
    hint.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel the run").click()
    expect(_free(page)).to_have_text("4free")
    icon = row(page, "My runs", "form.ipynb").locator(".jp-GpuRelease-icon")
    expect(icon).to_have_attribute("title", re.compile("^Cancelled:"))
    expect(row(page, "My runs", "form.ipynb")).to_contain_text("2 GPUs · held")  # its KeyboardInterrupt says nothing


@pytest.mark.thorough
def test_a_run_outlives_the_page_and_the_gateway(page: Page, team: Team, tmp_path: Path) -> None:
    """Reload mid-run; Attach leads to its cell, whose line does not say that the kernel waits for it in the background;
    the gateway is killed and comes back; it ends well.
    """
    mark = tmp_path / "goes-on"
    write_notebook(team.lab.root / "long.ipynb", f"{_LOAD}\n%gpu_config async=yes", _hold(mark, "--name long"))
    _open(page, "long.ipynb")
    execute(page, "notebook:run-all-cells")
    run = row(page, "My runs", "long")
    expect(run).to_contain_text("of many", timeout=_STARTED_MS)
    execute(page, "docmanager:save")
    page.reload()
    page.wait_for_selector("#jupyterlab-splash", state="detached")
    execute(page, "jupyter-gpu-release:open")
    expect(_free(page)).to_have_text("3free")
    notebook = _open(page, "long.ipynb")
    expect(notebook.locator(".jp-GpuRelease-hint")).to_contain_text("Running")
    expect(notebook.locator(".jp-Cell-inputWrapper + .jp-GpuRelease-hint")).to_have_count(1)  # not above the code

    cells = notebook.locator(".jp-CodeCell")
    own = cells.filter(has_text="--name long")
    cells.first.click()
    press(run, "Attach")
    expect(own).to_contain_class("jp-mod-active")
    expect(cells).to_have_count(2)  # its own cell shows the run: no second one with the same output
    output = own.locator(".jp-OutputArea")
    expect(output).to_contain_text("of many")

    down = page.locator(".jp-GpuRelease-situation", has_text="The cluster does not answer")
    killed: set[int] = set()
    while not down.is_visible():  # Ray may have brought it back before anybody saw
        _kill_gateway(team.gateway, killed)
        page.wait_for_timeout(50)
    expect(down).to_contain_text("Running cells go on")
    expect(_free(page)).to_have_text("3free", timeout=_STARTED_MS)
    expect(down).to_have_count(0)
    expect(row(page, "GPUs", "long.ipynb")).to_be_visible()

    mark.unlink()
    expect(_free(page)).to_have_text("4free")
    expect(run).to_contain_text("free after")
    expect(output).to_contain_text("free")
    expect(cells).to_have_count(2)


def _kill_gateway(gateway: GatewayClient, killed: set[int]) -> None:
    with contextlib.suppress(GpuReleaseError, ProcessLookupError):
        pid = gateway.health().pid
        if pid not in killed:
            killed.add(pid)
            os.kill(pid, signal.SIGKILL)


@pytest.mark.thorough
def test_notebook_7_shows_the_panel_and_helps_with_writing_a_cell(page: Page, team: Team) -> None:
    """Tab, the mark, the toggle and the form, as in JupyterLab."""
    browser = page.context.browser
    assert browser is not None
    write_notebook(team.lab.root / "seven.ipynb", "x = 1", "")
    with opened(browser) as seven:
        seven.goto(team.lab.page_url("notebooks/seven.ipynb"))
        cells = seven.locator(".jp-Notebook .jp-CodeCell")
        expect(cells).to_have_count(2, timeout=_STARTED_MS)
        seven.wait_for_function(
            "() => window.jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'",
            timeout=_STARTED_MS,
        )
        seven.get_by_role("menuitem", name="View").click()
        seven.get_by_role("menuitem", name="Show GPUs").click()
        expect(_free(seven)).to_have_text("4free")
        expect(seven.get_by_role("tree", name="GPUs").get_by_role("treeitem")).to_have_count(5)
        cells.last.locator(".cm-content").click()
        seven.keyboard.type("%%gpu_train --gp")
        seven.keyboard.press("Tab")
        items = seven.locator(".jp-Completer .jp-Completer-item")
        expect(items).to_have_text([re.compile("gpu-memory"), re.compile("gpu-type"), re.compile("gpus")])
        seven.keyboard.press("Escape")
        seven.keyboard.press("Shift+Tab")
        expect(seven.locator(".jp-Tooltip")).to_contain_text("GPU")
        seven.keyboard.press("Escape")
        cells.first.click()
        marked = seven.locator(".jp-GpuRelease-gpuCell")
        expect(marked).to_have_count(1)  # the one that was typed
        execute(seven, "jupyter-gpu-release:toggle-gpu-cell")
        expect(marked).to_have_count(2)
        execute(seven, "jupyter-gpu-release:run-on-gpu")
        form = seven.get_by_role("dialog")
        form.get_by_role("button", name="Make it a plain cell").click()
        expect(marked).to_have_count(1)
