"""Writing a GPU cell in the browser: the form, the toggle, the mark, Tab and Shift+Tab; the kernel is real."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpu_scenes
import pytest
from gpu_api import GpuApi
from lab_bed import execute
from playwright.sync_api import Locator, Page, expect
from sidebar_bed import LOOK, Team, write_notebook

_AXE = Path(__file__).parents[2] / "labextension" / "node_modules" / "axe-core" / "axe.min.js"
_FORM = "jupyter-gpu-release:run-on-gpu"
_TOGGLE = "jupyter-gpu-release:toggle-gpu-cell"
_STARTED_MS = 60_000
_IDLE = (
    "path => window.jupyterapp.shell.currentWidget?.context?.path === path"
    " && window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status === 'idle'"
)


@pytest.fixture
def opened_notebook(shown: Page, api: GpuApi, team: Team, tmp_path: Path) -> Callable[..., Locator]:
    """``opened_notebook(cell, …)``: a notebook with these cells and an idle kernel; the last cell is the active one."""
    gpu_scenes.busy_day(api)
    execute(shown, LOOK)

    def make(*cells: str) -> Locator:
        path = f"{tmp_path.name}.ipynb"
        write_notebook(team.lab.root / path, *cells)
        execute(shown, "docmanager:open", {"path": path})
        shown.wait_for_function(_IDLE, arg=path, timeout=_STARTED_MS)
        notebook = shown.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")
        notebook.locator(".jp-CodeCell").last.click()
        return notebook

    return make


def _source(notebook: Locator) -> str:
    found: str = notebook.page.evaluate(
        "() => window.jupyterapp.shell.currentWidget.content.activeCell.model.sharedModel.getSource()"
    )
    return found


@pytest.mark.slow("the first of a module starts JupyterLab")
def test_the_form_says_what_is_wrong_and_what_is_sent(shown: Page, opened_notebook: Callable[..., Locator]) -> None:
    notebook = opened_notebook("data = list(range(1000))", "total = sum(data)")
    notebook.locator(".jp-CodeCell").first.click()
    execute(shown, "notebook:run-cell-and-select-next")
    expect(notebook.locator(".jp-Cell.jp-mod-active")).to_contain_text("total")
    execute(shown, _FORM)
    form = shown.get_by_role("dialog")
    add = form.get_by_role("button", name="Add to cell")
    gpus = form.get_by_label("GPUs", exact=True)
    gpus.fill("99")
    expect(add).to_be_disabled()
    expect(form.get_by_role("alert")).to_have_text("This cluster has 8.")
    expect(form.get_by_text("It cannot be added yet")).to_be_visible()
    expect(gpus).to_have_attribute("aria-invalid", "true")
    gpus.fill("4")
    expect(add).to_be_enabled()
    fewest = form.get_by_label("Fewest GPUs")
    expect(fewest).to_be_disabled()
    expect(form.get_by_text("for several processes only")).to_be_visible()
    form.get_by_label("Processes").fill("4")
    fewest.fill("2")
    form.get_by_label("If others need GPUs").select_option("it may be preempted")
    form.get_by_label("Tries again").fill("1")
    form.get_by_label("While it runs").select_option("detach")
    form.get_by_label("Time limit").fill("2h")
    form.get_by_label("Name").fill("my sums")
    line = (
        '%%gpu_train --gpus 4 --ranks 4 --min-gpus 2 --timeout 2h --name "my sums" --retries 1 --restartable --detach'
    )
    expect(form.locator(".jp-GpuRelease-preview")).to_have_text(line)
    form.get_by_label("Environment").select_option("vision")
    expect(form.locator(".jp-GpuRelease-preview")).to_contain_text("--environment vision")
    form.get_by_label("Environment").select_option("the notebook’s packages")
    expect(form.locator(".jp-GpuRelease-preview")).to_have_text(line)
    form.get_by_role("button", name="What is sent?").click()
    expect(form.locator("pre")).to_contain_text("data", timeout=_STARTED_MS)
    expect(form.locator("pre")).to_contain_text("To be sent")
    add.click()
    expect(form).to_have_count(0)
    assert _source(notebook) == f"{line}\ntotal = sum(data)"
    expect(notebook.locator(".jp-OutputArea-output")).to_have_count(0)  # nothing ran
    execute(shown, _FORM)
    expect(form.get_by_label("GPUs", exact=True)).to_be_focused()
    shown.keyboard.press("Escape")
    expect(form).to_have_count(0)
    expect(notebook.locator(":focus")).to_have_count(1)  # keys go on in the notebook
    execute(shown, _FORM)
    form.get_by_role("button", name="Make it a plain cell").click()
    expect(form).to_have_count(0)
    assert _source(notebook) == "total = sum(data)"


def test_a_cell_is_a_gpu_cell_at_one_press_and_marked(shown: Page, opened_notebook: Callable[..., Locator]) -> None:
    notebook = opened_notebook("%%gpu_train --gpus 2 --name kept\nx = 1")
    marked = notebook.locator(".jp-GpuRelease-gpuCell")
    expect(marked).to_have_count(1)
    mark = "() => getComputedStyle(document.querySelector('.jp-GpuRelease-gpuCell .jp-InputPrompt'), '::after').content"
    assert shown.evaluate(mark) == '"2 GPUs"'
    press = (
        notebook.locator(f"[data-command='{_TOGGLE}'], [data-jp-item-name='gpu-cell']").locator("visible=true").first
    )
    press.click()
    expect(marked).to_have_count(0)
    assert _source(notebook) == "x = 1"
    press.click()
    expect(marked).to_have_count(1)
    assert _source(notebook) == "%%gpu_train --gpus 2 --name kept\nx = 1"


_REFUSAL = """() => {
  const { commands } = window.jupyterapp;
  return ['jupyter-gpu-release:run-on-gpu', 'jupyter-gpu-release:toggle-gpu-cell'].map(
    id => commands.isEnabled(id) ? '' : commands.caption(id));
}"""


def _expect_refusal(page: Page, words: str) -> None:
    """Of the form and of the toggle."""
    page.wait_for_function(f"words => ({_REFUSAL})().every(said => said === words)", arg=words)


def test_what_cannot_be_a_gpu_cell_says_why(shown: Page, opened_notebook: Callable[..., Locator], team: Team) -> None:
    notebook = opened_notebook("x = 1")
    _expect_refusal(shown, "")
    execute(shown, "notebook:change-cell-to-markdown")
    _expect_refusal(shown, "Only code cells run on a GPU; this one is text")
    toggle = notebook.locator("[data-jp-item-name='gpu-cell'] :is(button, jp-button)").first
    expect(toggle).to_have_attribute("title", re.compile("this one is text"))
    expect(toggle).to_have_attribute("aria-disabled", "true")
    execute(shown, "notebook:change-cell-to-code")
    _expect_refusal(shown, "")

    path = "statistics.ipynb"
    write_notebook(team.lab.root / path, "mean(c(1, 2))")
    other = json.loads((team.lab.root / path).read_text())
    kernel = {"name": "ir", "display_name": "R", "language": "R"}
    other["metadata"] = {"kernelspec": kernel, "language_info": {"name": "R"}}
    (team.lab.root / path).write_text(json.dumps(other))
    execute(shown, "docmanager:open", {"path": path})
    shown.locator(".jp-Dialog").get_by_role("button", name="No Kernel").click()  # there is no R here
    _expect_refusal(shown, "GPU cells are Python; this notebook is R")
    shown.evaluate("() => [...window.jupyterapp.shell.widgets('main')].forEach(widget => widget.dispose())")
    _expect_refusal(shown, "Choose a code cell first")


def test_tab_and_shift_tab_in_the_browser(shown: Page, opened_notebook: Callable[..., Locator]) -> None:
    notebook = opened_notebook("")
    notebook.locator(".jp-CodeCell .cm-content").last.click()
    editor, items = notebook.locator(".jp-CodeCell .cm-content").last, shown.locator(".jp-Completer .jp-Completer-item")
    shown.keyboard.type("%%gpu_train --g")
    shown.keyboard.press("Tab")
    expect(items).to_have_text(
        [re.compile("gather"), re.compile("gpu-memory"), re.compile("gpu-type"), re.compile("gpus")]
    )  # no gpu_train
    shown.keyboard.press("Escape")
    shown.keyboard.press("Backspace")
    shown.keyboard.type("on")
    shown.keyboard.press("Tab")
    expect(items).to_have_count(1)
    expect(items).to_contain_text("when")  # its meaning stands beside it
    shown.keyboard.press("Enter")
    expect(editor).to_contain_text("%%gpu_train --on-disconnect")
    shown.keyboard.type(" c")
    shown.keyboard.press("Tab")
    expect(items).to_have_text([re.compile("cancel"), re.compile("continue")])
    shown.keyboard.press("Enter")
    shown.keyboard.press("Shift+Tab")
    expect(shown.locator(".jp-Tooltip")).to_contain_text("contact with this living kernel")
    shown.keyboard.press("Escape")


#: each width and each theme once
_LOOKS = ((320, "JupyterLab Light"), (1440, "JupyterLab Dark"))


def _wear(page: Page, theme: str) -> None:
    execute(page, "apputils:change-theme", {"theme": theme})
    page.wait_for_function("theme => document.body.dataset.jpThemeName === theme", arg=theme)


_FIT = "import torch\nmodel = torch.nn.Linear(2, 1)\nX = torch.ones(3, 2)"
_WORK = "for step in range(3):\n    loss = model(X).sum()\n    loss.backward()"
_SOURCES = (
    "() => [...window.jupyterapp.shell.currentWidget.content.model.cells].map(cell => cell.sharedModel.getSource())"
)

_CHANGE = (
    "() => window.jupyterapp.shell.currentWidget.content.model.cells.get(3).sharedModel.updateSource(0, 0, '# more\\n')"
)


def test_advice_on_the_notebook_in_front(shown: Page, opened_notebook: Callable[..., Locator], api: GpuApi) -> None:
    """The server reads what is on the page, unsaved; a cell becomes a GPU cell in one step, which can be undone."""
    api.passes.add("advice")
    notebook = opened_notebook(_FIT, _WORK, "print(loss)", "1 + 1")
    notebook.locator(".jp-CodeCell .cm-content").last.click()
    shown.keyboard.press("Control+a")
    shown.keyboard.insert_text("loss.backward()")  # not saved
    execute(shown, "jupyter-gpu-release:open")
    panel = shown.locator("#jupyter-gpu-release-panel")
    panel.get_by_role("button", name="Advise on this notebook").click()
    advice = panel.get_by_role("list", name="Advice")
    worth = advice.get_by_role("listitem").filter(has_text="GPU cell ·")
    expect(worth).to_have_count(2)
    expect(worth.first).to_contain_text("sent: X, model · back: X, loss, model, step")
    expect(panel.get_by_role("status").filter(has_text="worth a GPU cell")).to_contain_text("2 of 4 cells are")
    if not shown.evaluate("() => 'axe' in window"):
        shown.add_script_tag(path=str(_AXE))
    for width_px, theme in _LOOKS:
        _wear(shown, theme)
        shown.set_viewport_size({"width": width_px, "height": 900})
        execute(shown, "jupyter-gpu-release:open")
        if folder := os.environ.get("JUPYTER_GPU_PICTURES"):
            shown.screenshot(path=Path(folder) / f"advice-{width_px}-{theme.replace(' ', '-')}.png")
        found: list[Any] = shown.evaluate(
            "() => axe.run({include: '.jp-GpuRelease-advice'}).then(result => result.violations)"
        )
        assert [(rule["id"], [one["html"][:200] for one in rule["nodes"]]) for rule in found] == []
    shown.set_viewport_size({"width": 1100, "height": 900})

    worth.first.get_by_role("button", name="Make it a GPU cell").click()
    expect(worth).to_have_count(1)
    expect(advice).to_contain_text("as it is")
    assert shown.evaluate(_SOURCES)[1] == f"%%gpu_train\n{_WORK}"
    advice.get_by_role("button", name="for step in range(3):").click()
    assert _source(notebook).startswith("%%gpu_train")  # it is the active one
    notebook.locator(".jp-mod-active .cm-content").click()
    shown.keyboard.press("Control+z")
    shown.wait_for_function(f"work => ({_SOURCES})()[1] === work", arg=_WORK)
    shown.evaluate(_CHANGE)
    worth.first.get_by_role("button", name="Make it a GPU cell").click()  # the cell is another than was read
    expect(panel.get_by_role("status").filter(has_text="The notebook had changed")).to_be_visible()
    panel.get_by_role("button", name="Make all 2 GPU cells").click()
    expect(worth).to_have_count(0)
    assert [source.startswith("%%gpu_train") for source in shown.evaluate(_SOURCES)] == [False, True, False, True]
    panel.get_by_role("button", name="Close the advice").click()
    expect(advice).to_have_count(0)


@pytest.mark.slow("JupyterLab anew in another width")
@pytest.mark.parametrize(("width_px", "theme"), [_LOOKS[0], pytest.param(*_LOOKS[1], marks=pytest.mark.thorough)])
def test_the_form_is_readable_everywhere(
    shown: Page, opened_notebook: Callable[..., Locator], theme: str, width_px: int
) -> None:
    """Nothing is cut off, and axe finds nothing of ours."""
    _wear(shown, theme)
    opened_notebook("%%gpu_train --gpus 2\nx = 1")
    execute(shown, _FORM)
    form = shown.get_by_role("dialog")
    form.get_by_label("GPUs", exact=True).fill("99")
    expect(form.get_by_role("alert")).to_be_visible()
    shown.set_viewport_size({"width": width_px, "height": 900})
    if not shown.evaluate("() => 'axe' in window"):
        shown.add_script_tag(path=str(_AXE))
    found: list[Any] = shown.evaluate(
        "() => axe.run({include: '.jp-GpuRelease-form', exclude: 'jp-button'}).then(result => result.violations)"
    )
    assert [(rule["id"], [one["html"][:200] for one in rule["nodes"]]) for rule in found] == []
    wide = shown.evaluate("""() => [...document.querySelectorAll('.jp-GpuRelease-form *, .jp-Dialog-footer button')]
        .filter(each => each.getBoundingClientRect().right > window.innerWidth + 1).map(each => each.outerHTML)""")
    assert wide == []
    form.get_by_role("button", name="Cancel").click()
    shown.set_viewport_size({"width": 1100, "height": 900})
