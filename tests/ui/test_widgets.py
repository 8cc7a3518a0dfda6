"""Widgets of GPU cells in the browser: they move while the cell runs, and are there after a reload; where their kernel
is gone, their text stands for them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab_bed import Lab, execute
from playwright.sync_api import Browser, Locator, Page, expect
from sidebar_bed import Team, open_notebook, open_sidebar, opened, reload_lab, row, write_notebook

pytestmark = pytest.mark.thorough

_STARTED_MS = 60_000
_LOAD = "%load_ext jupyter_gpu_release"
#: a bar at 3 of 7, a label that is changed twice, and a bar that goes on once the file is removed
_CODE = """%%gpu_train {options}
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


@pytest.fixture
def page(browser: Browser, team: Team) -> Iterator[Page]:
    """A page for each test: what the one before has opened comes to the front whenever its reload is through."""
    with opened(browser) as page:
        open_sidebar(page, team.lab)
        yield page


def _open(page: Page, path: str) -> Locator:
    page.evaluate("path => window.jupyterapp.commands.execute('docmanager:open', {path}).then(() => null)", path)
    page.wait_for_function(
        "path => window.jupyterapp.shell.currentWidget?.context?.path === path &&" + _KERNEL,
        arg=path,
        timeout=_STARTED_MS,
    )
    return page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-CodeCell").nth(1)


def test_widgets_move_and_survive_a_reload_in_a_cell_and_in_the_background(
    page: Page, team: Team, tmp_path: Path
) -> None:
    mark = tmp_path / "goes-on"
    write_notebook(team.lab.root / "widgets.ipynb", _LOAD, _CODE.format(mark=str(mark), options=""))
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

    held = "widgets-held.ipynb"  # whose run goes on in the background
    write_notebook(team.lab.root / held, _LOAD, _CODE.format(mark=str(mark), options="--async"))
    _begun(page, held)
    page.evaluate("() => window.jupyterapp.shell.currentWidget.context.save()")
    reload_lab(page)
    output = open_notebook(page, held).locator(".jp-OutputArea")
    expect(output.locator(".widget-html b")).to_have_text("waits", timeout=_STARTED_MS)
    mark.unlink()
    expect(output.locator(".widget-html b")).to_have_text("last")
    expect(output.locator(".widget-hbox")).to_contain_text("7/7")
    expect(output).to_contain_text("free", timeout=_STARTED_MS)
    expect(output.locator(".widget-hbox")).to_contain_text("7/7")
    displays = _displays(page, team.lab, held)
    assert [_VIEW in data for data in displays] == [True, True]
    label, bar = ("".join(data["text/plain"]) for data in displays)  # for what knows nothing of widgets
    assert label == "last"
    assert "| 7/7" in bar

    # of the cell that has ended: what a page draws its widgets from. JupyterLab's widgets give up for good where the
    # page has no line to the kernel yet, so it is the kernel that is asked
    _open(page, "widgets.ipynb")
    ended = [data[_VIEW]["model_id"] for data in _displays(page, team.lab, "widgets.ipynb")]
    states = page.evaluate(_STATES)
    assert states[ended[0]]["value"] == "<b>last</b>"
    bar = [states[child.removeprefix("IPY_MODEL_")] for child in states[ended[1]]["children"]]
    assert bar[1]["value"] == 7


#: id → state of all widgets of the kernel in front, as a page asks for them
_STATES = """async () => {
  const {kernel} = window.jupyterapp.shell.currentWidget.sessionContext.session;
  const comm = kernel.createComm("jupyter.widget.control");
  const states = new Promise(resolve => { comm.onMsg = message => resolve(message.content.data.states); });
  comm.open({}, {version: "1.0.0"});
  comm.send({method: "request_states"});
  const all = await states;
  comm.close();
  return Object.fromEntries(Object.entries(all).map(([id, model]) => [id, model.state]));
}"""
_VIEW = "application/vnd.jupyter.widget-view+json"


def _begun(page: Page, path: str) -> Locator:
    """The outputs of the GPU cell, whose bar has come to 3 of 7."""
    output = open_notebook(page, path).locator(".jp-OutputArea")
    page.wait_for_function(f"{_KERNEL} === 'idle'", timeout=_STARTED_MS)
    execute(page, "notebook:run-all-cells")
    expect(output.locator(".widget-html b")).to_have_text("waits", timeout=_STARTED_MS)
    expect(output).to_contain_text("3/7")
    return output


def _expect_text(output: Locator, label: str, bar: str) -> None:
    expect(output).to_contain_text(bar, timeout=_STARTED_MS)
    expect(output).to_contain_text(label)
    expect(output.locator(".jupyter-widgets")).to_have_count(0)
    expect(output).not_to_contain_text("widget")  # neither that one is loading nor that it was not found


def _displays(page: Page, lab: Lab, path: str) -> list[dict[str, Any]]:
    """The bundles of the GPU cell's displays as they are saved now, our own lines left out."""
    page.evaluate("() => window.jupyterapp.shell.currentWidget.context.save()")
    outputs = json.loads((lab.root / path).read_text())["cells"][1]["outputs"]
    return [output["data"] for output in outputs if output["output_type"] == "display_data" and not output["metadata"]]


def test_widgets_are_text_once_their_kernel_was_restarted(page: Page, team: Team, tmp_path: Path) -> None:
    """The run goes on without it: the text does, too, and the run's page has it as well."""
    mark, path = tmp_path / "goes-on", "widgets-restarted.ipynb"
    write_notebook(team.lab.root / path, _LOAD, _CODE.format(mark=str(mark), options="--detach --name barred"))
    output = _begun(page, path)
    page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    _expect_text(output, "waits", "43% |████      | 3/7")
    reload_lab(page)
    output = open_notebook(page, path).locator(".jp-OutputArea")
    _expect_text(output, "waits", "43% |████      | 3/7")
    row(page, "My runs", "barred").click()
    _expect_text(page.locator(".jp-GpuRelease-page:visible").get_by_role("region", name="Output"), "waits", "3/7")
    output = open_notebook(page, path).locator(".jp-OutputArea")
    mark.unlink()
    expect(output).to_contain_text("free", timeout=_STARTED_MS)
    _expect_text(output, "last", "100% |██████████| 7/7")
    assert [list(data) for data in _displays(page, team.lab, path)] == [["text/plain"]] * 2
