"""The sidebar in a real JupyterLab of one of a team, beside a real cluster."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab_bed import Lab, execute, open_lab
from nvml_bed import FakeGpus
from playwright.sync_api import Browser, Error, Locator, Page, ViewportSize, expect
from playwright.sync_api import TimeoutError as TooLate

from jupyter_gpu_release.client.rest import GatewayClient

LOOK = "jupyter-gpu-release:refresh"
VIEWPORT: ViewportSize = {"width": 1100, "height": 900}
LIGHT = "JupyterLab Light"
#: a kernel that idles on a GPU is warned at once, and nothing is taken for ten minutes
CONFIG = """
c.GpuCuller.device_files = [{device!r}]
c.GpuCuller.action = "release"
c.GpuCuller.cull_idle_timeout = 1
c.GpuCuller.lease_idle_timeout = 3600
c.GpuCuller.warn_before = 600
c.GpuCuller.samples = 1
c.GpuCuller.sample_interval = 0.3
c.GpuCuller.cull_interval = 0.3
c.GpuCuller.idle_cpu = 100.0
"""


_PRESSES, _PRESS_MS = 30, 2_000
#: remembers each notification: some stand for a few seconds only, and whoever looks may be late
_KEEP_TOASTS = """
window.toasts = new Set();
new MutationObserver(() => document.querySelectorAll('.Toastify__toast').forEach(
  toast => window.toasts.add(toast.textContent)
)).observe(document, {subtree: true, childList: true, characterData: true});
"""


@dataclass(frozen=True)
class Team:
    """Ada's JupyterLab, and what else there is. The cluster has four simulated GPUs, ada's machine a (faked) GPU."""

    lab: Lab
    gpus: FakeGpus
    gateway: GatewayClient
    #: the token of grace, who has another computer
    grace: str


@contextmanager
def opened(browser: Browser) -> Iterator[Page]:
    """A page of its own (cookies, storage); errors of our code fail the tests that use it."""
    context = browser.new_context(viewport=VIEWPORT)
    context.add_init_script(_KEEP_TOASTS)
    page = context.new_page()
    page.set_default_timeout(60_000)
    with without_errors(page):
        yield page
        context.close()


@contextmanager
def without_errors(page: Page) -> Iterator[None]:
    """Errors of our code fail the block."""
    errors: list[str] = []

    def note(error: Error) -> None:
        errors.append(str(error))

    page.on("pageerror", note)
    yield
    page.remove_listener("pageerror", note)
    assert not [error for error in errors if "gpu" in error.lower()]


def press_escape(page: Page) -> None:
    """Once the dialog, if there is one, hears keys: it is shown before it has the focus."""
    dialogs = page.locator(".jp-Dialog")
    if dialogs.count():
        expect(dialogs.last.locator(":focus")).to_have_count(1)
    page.keyboard.press("Escape")


def close_all(page: Page) -> None:
    """Menus and dialogs, as a test that failed may have left them; a dialog may have lost the focus."""
    dialogs = page.locator(".jp-Dialog")
    page.keyboard.press("Escape")  # menus
    for _ in range(10):
        if not dialogs.count():
            return
        dialogs.last.locator("button").last.focus()
        page.keyboard.press("Escape")
        page.wait_for_timeout(100)


def begin_anew(page: Page) -> None:
    """JupyterLab with nothing open but the sidebar, as light and as wide as at first."""
    close_all(page)
    page.set_viewport_size(VIEWPORT)
    page.evaluate("() => window.toasts.clear()")
    page.evaluate("() => [...window.jupyterapp.shell.widgets('main')].forEach(widget => widget.dispose())")
    if page.evaluate("() => document.body.dataset.jpThemeName") != LIGHT:
        execute(page, "apputils:change-theme", {"theme": LIGHT})
        page.wait_for_function("theme => document.body.dataset.jpThemeName === theme", arg=LIGHT)
        page.wait_for_selector("#jupyterlab-splash", state="detached")
    show_panel(page, 320)


def open_sidebar(page: Page, lab: Lab) -> None:
    """JupyterLab with the sidebar open."""
    open_lab(page, lab)
    execute(page, "jupyter-gpu-release:open")
    page.wait_for_selector(".jp-GpuRelease")


def show_panel(page: Page, width_px: int) -> None:
    """Open the sidebar, as wide as this."""
    execute(page, "jupyter-gpu-release:open")
    page.wait_for_selector(".jp-GpuRelease")
    panel = page.locator("#jupyter-gpu-release-panel")
    handle = page.locator("#jp-main-split-panel > .lm-SplitPanel-handle:not(.lm-mod-hidden)").first
    handle.wait_for()
    border, left = handle.bounding_box(), panel.bounding_box()
    assert border is not None
    assert left is not None
    page.mouse.move(border["x"] + 1, border["y"] + 300)
    page.mouse.down()
    page.mouse.move(left["x"] + width_px, border["y"] + 300)
    page.mouse.up()
    # a picture of another width than its name says would be shown in the README
    wide = "width => Math.abs(document.querySelector('#jupyter-gpu-release-panel').clientWidth - width) < 5"
    page.wait_for_function(wide, arg=width_px)


def wait_told(page: Page, words: str) -> None:
    """Wait until a notification has said this, whether it is still there or not."""
    page.wait_for_function("words => [...window.toasts].some(text => text.includes(words))", arg=words)


def row(page: Page, tree: str, text: str) -> Locator:
    """The first row with this text in the list of that name."""
    return page.get_by_role("tree", name=tree, exact=True).get_by_role("treeitem").filter(has_text=text).first


def press(row: Locator, name: str) -> None:
    """Press a button of a row, seen while that has the mouse or the focus.

    What moves rows takes the mouse away, and a notebook that has just been opened takes the focus: then once more.
    """
    button = row.get_by_role("button", name=name)
    for _ in range(_PRESSES):
        row.focus()
        with contextlib.suppress(TooLate):
            button.click(timeout=_PRESS_MS)
            return
    button.click(timeout=_PRESS_MS)


def write_notebook(path: Path, *cells: str) -> None:
    """A notebook whose cells have ids (``cell-0`` …)."""
    made = [
        {"cell_type": "code", "id": f"cell-{n}", "metadata": {}, "outputs": [], "execution_count": None, "source": text}
        for n, text in enumerate(cells)
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    content = {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(content))


def open_notebook(page: Page, path: str) -> Locator:
    """Its second cell, once it has its kernel."""
    # its end is awaited: it brings the notebook to the front only once the server has answered
    page.evaluate("path => window.jupyterapp.commands.execute('docmanager:open', {path}).then(() => null)", path)
    page.wait_for_function(
        "path => window.jupyterapp.shell.currentWidget?.context?.path === path"
        " && window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status",
        arg=path,
        timeout=60_000,
    )
    return page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-CodeCell").nth(1)


def reload_lab(page: Page) -> None:
    """JupyterLab anew, with the sidebar open."""
    page.reload()
    page.wait_for_selector("#jupyterlab-splash", state="detached")
    page.evaluate("() => window.jupyterapp.restored")  # else the tabs of before come to the front later
    execute(page, "jupyter-gpu-release:open")
