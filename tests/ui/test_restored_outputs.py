"""Output comes back into its own cell: after a reload, a closed page, the end of its kernel or of the Jupyter server;
live, once, with its receipt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lab_bed import COLLABORATION, Lab, collaborating, execute, lab_process
from playwright.sync_api import Browser, Locator, Page, expect
from sidebar_bed import Team, open_notebook, open_sidebar, opened, press, reload_lab, row, write_notebook
from soak import cases

pytestmark = pytest.mark.thorough

Until = Callable[[Callable[[], object], str], None]
_STARTED_MS = 60_000
#: JupyterLab tries again and again to reach a server that was away, with longer and longer pauses
_AGAIN_MS = 150_000
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
#: jupyter-collaboration saves a document only when a page says so
_SAVES_NOTHING = "\nc.YDocExtension.document_save_delay = None\n"


def _notebook(lab: Lab, name: str, mark: Path, options: str = "") -> str:
    path = f"{name}.ipynb"
    write_notebook(lab.root / path, _LOAD, _CODE.format(mark=str(mark), options=options))
    return path


def _begun(page: Page, path: str) -> Locator:
    """The notebook's GPU cell, which runs and has shown its first lines."""
    cell = open_notebook(page, path)
    page.wait_for_function(
        "window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status === 'idle'", timeout=_STARTED_MS
    )
    execute(page, "notebook:run-all-cells")
    expect(cell.locator(".jp-OutputArea")).to_contain_text("second line", timeout=_STARTED_MS)
    return cell


def _saved(page: Page, lab: Lab, path: str, at: int = 1) -> list[dict[str, Any]]:
    """The outputs of a GPU cell as they are saved now."""
    page.evaluate("() => window.jupyterapp.shell.currentWidget.context.save()")
    return _on_disk(lab, path, at)


def _on_disk(lab: Lab, path: str, at: int = 1) -> list[dict[str, Any]]:
    """The outputs of a GPU cell in the file."""
    outputs: list[dict[str, Any]] = json.loads((lab.root / path).read_text())["cells"][at]["outputs"]
    return outputs


def _text(outputs: list[dict[str, Any]]) -> str:
    return "".join("".join(output["text"]) for output in outputs if output["output_type"] == "stream")


def _marks(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [output["metadata"]["jupyter_gpu_release"] for output in outputs if output.get("metadata")]


def test_a_reload_brings_the_output_back_live_and_once(page: Page, team: Team, tmp_path: Path) -> None:
    mark = tmp_path / "goes-on"
    path = _notebook(team.lab, "reloaded", mark, "--name reloaded")
    cell = _begun(page, path)
    assert [facts["live"] for facts in _marks(_saved(page, team.lab, path))] == [True]
    reload_lab(page)
    cell = open_notebook(page, path)
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
    outputs = _saved(page, team.lab, path)
    assert _text(outputs).strip() == _WHOLE
    heading, receipt = _marks(outputs)
    assert list(heading) == ["run"]
    assert (receipt["run"], receipt["status"]) == (heading["run"], "ok")
    expect(cell.locator(".jp-InputPrompt").first).not_to_contain_text("*")


def test_a_page_that_was_closed_before_anything_was_saved(page: Page, team: Team, tmp_path: Path) -> None:
    """The cell in the file knows of no run; the browser that opens it is another one."""
    mark, browser = tmp_path / "goes-on", page.context.browser
    assert browser is not None
    path = _notebook(team.lab, "closed", mark)
    with opened(browser) as first:
        open_sidebar(first, team.lab)
        _begun(first, path)
    mark.unlink()
    output = open_notebook(page, path).locator(".jp-OutputArea")
    expect(output).to_contain_text("free")
    assert _text(_saved(page, team.lab, path)).strip() == _WHOLE


def test_a_restarted_kernel_leaves_no_cell_that_says_running(page: Page, team: Team, tmp_path: Path) -> None:
    path = _notebook(team.lab, "restarted", tmp_path / "goes-on")
    cell = _begun(page, path)
    page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    expect(cell.locator(".jp-OutputArea")).to_contain_text("RunCancelledError", timeout=_STARTED_MS)
    outputs = _saved(page, team.lab, path)
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
    output = open_notebook(page, path).locator(".jp-OutputArea")
    expect(output).to_contain_text("run 20200101-000000-abcdef: ")
    expect(output).not_to_contain_text("running on")


def _hers(team: Team) -> dict[str, str]:
    """The environment of grace's lab, beside the same cluster."""
    return {"JUPYTER_GPU_URL": team.gateway.url, "JUPYTER_GPU_TOKEN": team.grace}


@pytest.mark.timeout(600)
def test_a_restarted_server_brings_back_what_goes_on_and_what_ended_meanwhile(
    browser: Browser, team: Team, tmp_path: Path
) -> None:
    """Nobody reloads the page. The last run ends with its kernel, which ends with the server."""
    marks = [tmp_path / name for name in ("ends", "goes-on", "with-the-kernel")]
    options = ("--detach", "--detach", "")
    codes = [_CODE.format(mark=mark, options=words) for mark, words in zip(map(str, marks), options, strict=True)]
    with lab_process(tmp_path / "lab", environment=_hers(team)) as server, opened(browser) as page:
        write_notebook(server.lab.root / "three.ipynb", _LOAD, *codes)
        open_sidebar(page, server.lab)
        _begun(page, "three.ipynb")
        cells = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-CodeCell")
        ended, live, cancelled = (cells.nth(at).locator(".jp-OutputArea") for at in (1, 2, 3))
        expect(cancelled).to_contain_text("second line", timeout=_STARTED_MS)
        server.kill()
        marks[0].unlink()
        expect(page.locator(".jp-GpuRelease-situation")).to_contain_text("No contact with the Jupyter server")
        server.start()
        expect(ended).to_contain_text("free", timeout=_AGAIN_MS)
        expect(cancelled).to_contain_text("RunCancelledError", timeout=_AGAIN_MS)
        expect(live).to_contain_text("running")
        marks[1].unlink()
        expect(live).to_contain_text("free", timeout=_AGAIN_MS)
        for at, lines in ((1, _WHOLE), (2, _WHOLE), (3, "first line\nsecond line")):
            outputs = _saved(page, server.lab, "three.ipynb", at)
            assert _text(outputs).strip() == lines
            assert not [facts for facts in _marks(outputs) if facts.get("live")]


def _expect_once(*outputs: Locator) -> None:
    """The pages show the whole run, and nothing of it twice, once they have heard of each other."""
    for shown in outputs:
        expect(shown).to_contain_text("free", timeout=_AGAIN_MS)
        for word in ("first", "second", "third", "fourth", "✓"):
            twice = re.compile(rf"{word}.*{word}", re.DOTALL)
            expect(shown).not_to_contain_text(twice, use_inner_text=True, timeout=_AGAIN_MS)
            expect(shown).to_contain_text(word)


@pytest.mark.timeout(600)
@pytest.mark.skipif(not COLLABORATION.exists(), reason="no jupyter-collaboration: `make test-all` installs it")
@pytest.mark.soak
@pytest.mark.parametrize("ends", cases([], ["meanwhile", "later"]))
def test_pages_that_share_a_document_show_the_output_once(
    browser: Browser, team: Team, tmp_path: Path, until: Until, ends: str
) -> None:
    """One of two pages is reloaded while the run goes on; then the server ends, and comes back with the document."""
    mark, environment = tmp_path / "goes-on", _hers(team) | collaborating()
    with (
        lab_process(tmp_path / "lab", environment=environment) as server,
        opened(browser) as first,
        opened(browser) as second,
    ):
        path = _notebook(server.lab, "shared", mark, "--detach")
        open_sidebar(first, server.lab)
        output = _begun(first, path).locator(".jp-OutputArea")
        open_sidebar(second, server.lab)
        others = open_notebook(second, path).locator(".jp-OutputArea")
        expect(others).to_contain_text("second line")
        reload_lab(first)
        output = open_notebook(first, path).locator(".jp-OutputArea")
        expect(output).to_contain_text("running")
        server.kill()
        if ends == "meanwhile":
            mark.unlink()
        server.start()
        mark.unlink(missing_ok=True)
        _expect_once(output, others)
        first.evaluate("() => void window.jupyterapp.shell.currentWidget.context.save()")  # it may never say so
        until(lambda: _text(_on_disk(server.lab, path)).strip() == _WHOLE, "the server writes the document")


@pytest.mark.timeout(600)
@pytest.mark.skipif(not COLLABORATION.exists(), reason="no jupyter-collaboration: `make test-all` installs it")
@pytest.mark.soak
@pytest.mark.parametrize("ends", cases(["later"], ["before", "meanwhile"]))
def test_pages_that_share_a_document_get_back_what_the_server_had_not_saved(
    browser: Browser, team: Team, tmp_path: Path, until: Until, ends: str
) -> None:
    """The server ends before it has saved anything of a run that one of two pages has begun."""
    mark, environment = tmp_path / "goes-on", _hers(team) | collaborating()
    with (
        lab_process(tmp_path / "lab", environment=environment, config=_SAVES_NOTHING) as server,
        opened(browser) as first,
        opened(browser) as second,
    ):
        path = _notebook(server.lab, "unsaved", mark, "--detach")
        open_sidebar(first, server.lab)
        output = _begun(first, path).locator(".jp-OutputArea")
        open_sidebar(second, server.lab)
        others = open_notebook(second, path).locator(".jp-OutputArea")
        expect(others).to_contain_text("second line")
        if ends == "before":
            mark.unlink()
            for shown in (output, others):
                expect(shown).to_contain_text("free")  # its receipt
        assert not json.loads((server.lab.root / path).read_text())["cells"][1]["outputs"]
        server.kill()
        if ends == "meanwhile":
            mark.unlink()
        server.start()
        mark.unlink(missing_ok=True)
        if ends == "before":  # what the pages show at first is of before
            for shown in (output, others):
                expect(shown).to_contain_text("shown again from the cluster's record", timeout=_AGAIN_MS)
        _expect_once(output, others)
        first.evaluate("() => void window.jupyterapp.shell.currentWidget.context.save()")  # it may never say so
        until(lambda: _text(_on_disk(server.lab, path)).strip() == _WHOLE, "the server writes the document")
