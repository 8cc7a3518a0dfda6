"""Output comes back into its own cell: after a reload, a closed page, a kernel's end; live, once, with its receipt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lab_bed import execute
from playwright.sync_api import Locator, Page, expect
from sidebar_bed import Team, open_sidebar, opened, press, row, write_notebook

_STARTED_MS = 60_000
_LOAD = "%load_ext jupyter_gpu_release"
#: prints two lines, and two more when the file is removed
_CODE = """%%gpu_train {options}
import os, time
open({mark!r}, 'w').close()
print('first line'); print('second line')
while os.path.exists({mark!r}):
    time.sleep(0.05)
print('third line'); print('fourth line')
answer = 6 * 7"""
_WHOLE = "first line\nsecond line\nthird line\nfourth line"


def _notebook(team: Team, name: str, mark: Path, options: str = "") -> str:
    path = f"{name}.ipynb"
    write_notebook(team.lab.root / path, _LOAD, _CODE.format(mark=str(mark), options=options))
    return path


def _open(page: Page, path: str) -> Locator:
    execute(page, "docmanager:open", {"path": path})
    page.wait_for_function(
        "path => window.jupyterapp.shell.currentWidget?.context?.path === path"
        " && window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status",
        arg=path, timeout=_STARTED_MS,
    )  # fmt: skip
    return page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-CodeCell").nth(1)


def _begun(page: Page, path: str) -> Locator:
    """The notebook's GPU cell, which runs and has shown its first lines."""
    cell = _open(page, path)
    page.wait_for_function(
        "window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status === 'idle'", timeout=_STARTED_MS
    )
    execute(page, "notebook:run-all-cells")
    expect(cell.locator(".jp-OutputArea")).to_contain_text("second line", timeout=_STARTED_MS)
    return cell


def _reload(page: Page) -> None:
    page.reload()
    page.wait_for_selector("#jupyterlab-splash", state="detached")
    execute(page, "jupyter-gpu-release:open")


def _saved(page: Page, team: Team, path: str) -> list[dict[str, Any]]:
    """The outputs of the GPU cell as they are saved now."""
    page.evaluate("() => window.jupyterapp.shell.currentWidget.context.save()")
    outputs: list[dict[str, Any]] = json.loads((team.lab.root / path).read_text())["cells"][1]["outputs"]
    return outputs


def _text(outputs: list[dict[str, Any]]) -> str:
    return "".join("".join(output["text"]) for output in outputs if output["output_type"] == "stream")


def _marks(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [output["metadata"]["jupyter_gpu_release"] for output in outputs if output.get("metadata")]


def test_a_reload_brings_the_output_back_live_and_once(page: Page, team: Team, tmp_path: Path) -> None:
    mark = tmp_path / "goes-on"
    path = _notebook(team, "reloaded", mark, "--name reloaded")
    cell = _begun(page, path)
    assert [facts["live"] for facts in _marks(_saved(page, team, path))] == [True]
    _reload(page)
    cell = _open(page, path)
    output = cell.locator(".jp-OutputArea")
    expect(output).to_contain_text("second line")
    expect(output).to_contain_text("running")
    expect(cell.locator(".jp-InputPrompt").first).to_contain_text("*")
    cells = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-CodeCell")
    press(row(page, "My runs", "reloaded"), "Attach")
    expect(cell).to_contain_class("jp-mod-active")
    expect(cells).to_have_count(2)  # no cell that waits behind the very run

    mark.unlink()
    expect(output).to_contain_text("free")
    page.wait_for_function(
        "window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status === 'idle'", timeout=_STARTED_MS
    )
    outputs = _saved(page, team, path)
    assert _text(outputs).strip() == _WHOLE
    heading, receipt = _marks(outputs)
    assert list(heading) == ["run"]
    assert (receipt["run"], receipt["status"]) == (heading["run"], "ok")
    expect(cell.locator(".jp-InputPrompt").first).not_to_contain_text("*")


def test_a_page_that_was_closed_before_anything_was_saved(page: Page, team: Team, tmp_path: Path) -> None:
    """The cell in the file knows of no run; the browser that opens it is another one."""
    mark, browser = tmp_path / "goes-on", page.context.browser
    assert browser is not None
    path = _notebook(team, "closed", mark)
    with opened(browser) as first:
        open_sidebar(first, team.lab)
        _begun(first, path)
    mark.unlink()
    with opened(browser) as second:
        open_sidebar(second, team.lab)
        output = _open(second, path).locator(".jp-OutputArea")
        expect(output).to_contain_text("free")
        assert _text(_saved(second, team, path)).strip() == _WHOLE


def test_a_restarted_kernel_leaves_no_cell_that_says_running(page: Page, team: Team, tmp_path: Path) -> None:
    path = _notebook(team, "restarted", tmp_path / "goes-on")
    cell = _begun(page, path)
    page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    expect(cell.locator(".jp-OutputArea")).to_contain_text("RunCancelledError", timeout=_STARTED_MS)
    outputs = _saved(page, team, path)
    assert _text(outputs).strip() == "first line\nsecond line"
    assert not [facts for facts in _marks(outputs) if facts.get("live")]


def test_a_line_of_a_run_that_nobody_knows(page: Page, team: Team) -> None:
    path = "foreign.ipynb"
    write_notebook(team.lab.root / path, _LOAD, "%%gpu_train\n1")
    document = json.loads((team.lab.root / path).read_text())
    mark = {"jupyter_gpu_release": {"run": "20200101-000000-abcdef", "live": True}}
    line = {"output_type": "display_data", "data": {"text/plain": "running on node"}, "metadata": mark}
    document["cells"][1]["outputs"] = [line]
    (team.lab.root / path).write_text(json.dumps(document))
    output = _open(page, path).locator(".jp-OutputArea")
    expect(output).to_contain_text("run 20200101-000000-abcdef: ")
    expect(output).not_to_contain_text("running on")
