"""The whole story with the real parts: server, kernel, gateway, Ray, fork server, browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_bed import Lab, execute, open_lab, running_lab
from playwright.sync_api import Page, expect

from jupyter_gpu_release.client.autostart import Ready

_CELLS = [
    "%load_ext jupyter_gpu_release\nimport time",
    "%%gpu_train --gpus 1 --name first\n"
    "import os\n"
    "open(MARK, 'w').close()\n"
    "while os.path.exists(MARK):\n"
    "    time.sleep(0.05)\n"
    "answer = 6 * 7",
]


@pytest.fixture
def team(cluster: Ready, tmp_path: Path) -> Iterator[Lab]:
    """A JupyterLab of its own, beside the session's cluster of four simulated GPUs."""
    environment = {"JUPYTER_GPU_HOME": str(Path(cluster.connection.token_file).parent)}
    with running_lab(tmp_path, environment=environment) as lab:
        yield lab


def _notebook(path: Path, cells: list[str]) -> None:
    """A notebook whose cells have ids."""
    made = [
        {"cell_type": "code", "id": f"cell-{n}", "metadata": {}, "outputs": [], "execution_count": None, "source": text}
        for n, text in enumerate(cells)
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    content = {"cells": made, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(content))


def _open(page: Page, path: str) -> None:
    execute(page, "docmanager:open", {"path": path})
    page.wait_for_selector(".jp-Notebook .jp-CodeCell")
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for(timeout=60_000)


def test_a_cell_is_seen_from_its_start_to_its_receipt(page: Page, team: Lab, tmp_path: Path) -> None:
    mark = tmp_path / "goes-on"
    _notebook(team.root / "story.ipynb", [_CELLS[0] + f"\nMARK = {str(mark)!r}", _CELLS[1]])
    open_lab(page, team)
    execute(page, "jupyter-gpu-release:open")
    free = page.locator(".jp-GpuRelease-tile").first
    expect(free).to_have_text("4free")
    _open(page, "story.ipynb")
    execute(page, "notebook:run-all-cells")

    run = page.get_by_role("tree", name="My runs").get_by_role("treeitem").filter(has_text="first")
    expect(free).to_have_text("3free", timeout=60_000)
    expect(run).to_be_visible()
    hint = page.locator(".jp-GpuRelease-hint")
    expect(hint).to_contain_text("Running")
    expect(hint.get_by_role("button", name="Cancel")).to_be_visible()
    expect(page.locator(".jp-GpuRelease-statusItem")).to_contain_text("1 held · 3 free")
    held = page.get_by_role("tree", name="GPUs").get_by_role("treeitem").filter(has_text="story.ipynb")
    expect(held).to_have_count(1)

    page.reload()  # mid-run: nothing is lost
    page.wait_for_selector("#jupyterlab-splash", state="detached")
    execute(page, "jupyter-gpu-release:open")
    expect(free).to_have_text("3free")
    expect(run).to_be_visible()

    mark.unlink()
    expect(free).to_have_text("4free")
    expect(run).to_contain_text("free after")
    expect(hint).to_have_count(0)
    run.focus()
    page.keyboard.press("Enter")
    expect(run).to_contain_text("answer")


def test_cancel_from_the_panel_frees_the_gpu(page: Page, team: Lab, tmp_path: Path) -> None:
    mark = tmp_path / "goes-on"
    _notebook(team.root / "long.ipynb", [_CELLS[0] + f"\nMARK = {str(mark)!r}", _CELLS[1]])
    open_lab(page, team)
    execute(page, "jupyter-gpu-release:open")
    _open(page, "long.ipynb")
    execute(page, "notebook:run-all-cells")
    hint = page.locator(".jp-GpuRelease-hint")
    expect(hint).to_contain_text("Running", timeout=60_000)
    hint.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel the run").click()
    expect(page.locator(".jp-GpuRelease-tile").first).to_have_text("4free")
    run = page.get_by_role("tree", name="My runs").get_by_role("treeitem").filter(has_text="first").first
    expect(run.locator(".jp-GpuRelease-icon")).to_have_attribute("title", "Cancelled")


def test_the_free_gpu_is_seen_within_a_second(page: Page, team: Lab, tmp_path: Path) -> None:
    """Not a measurement: the panel must have it before the next plain look (5 s) would come."""
    mark = tmp_path / "goes-on"
    _notebook(team.root / "quick.ipynb", [_CELLS[0] + f"\nMARK = {str(mark)!r}", _CELLS[1]])
    open_lab(page, team)
    execute(page, "jupyter-gpu-release:open")
    _open(page, "quick.ipynb")
    execute(page, "notebook:run-all-cells")
    free = page.locator(".jp-GpuRelease-tile").first
    expect(free).to_have_text("3free", timeout=60_000)
    mark.unlink()
    expect(free).to_have_text("4free", timeout=4_000)
