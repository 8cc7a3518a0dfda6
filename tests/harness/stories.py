"""The stories of tutorial and README, played in a real JupyterLab: tests play them, `make screenshots` records them.

The cells are those that the documents show.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from doc_blocks import blocks_in
from lab_bed import Lab, execute, running_lab
from playwright.sync_api import Locator, Page, expect
from recording import Recording, take
from shown_words import Words, words_of
from sidebar_bed import row, write_notebook

from jupyter_gpu_release.client.home import HomePaths
from jupyter_gpu_release.local_cluster.start import stop_embedded

REPOSITORY = Path(__file__).parents[2]
README, TUTORIAL, SIDEBAR = (REPOSITORY / name for name in ("README.md", "docs/tutorial.md", "docs/use/sidebar.md"))
#: a cluster that starts and libraries that are imported for the first time, on a machine with other work to do
_LONG_MS = 180_000
Camera = Callable[[str], None]
#: settings of the sidebar: no message in the corner, which would hide a picture's text
NO_NOTIFICATIONS = {"notifyAfterS": 3600}

#: the cells of the README's example
_BEFORE_TRAINING, _TRAINING, _AFTER_TRAINING = (one.text.rstrip("\n") for one in blocks_in("../README.md", "python"))
#: of another user, on another computer: asks for all GPUs when the first file is there, holds them until the second is
_COLLEAGUE = """\
import sys, time
from pathlib import Path
from jupyter_gpu_release import launch

def sweep(end):
    while not Path(end).exists():
        time.sleep(0.05)

if __name__ == "__main__":
    asks, ends = sys.argv[1:]
    while not Path(asks).exists():
        time.sleep(0.05)
    launch(sweep, ends, gpus=4, name="sweep").result()
"""


def code_blocks(document: Path) -> list[str]:
    """The contents of its fences, in order."""
    return re.findall(r"^```(?:python)?\n(.*?)\n```$", document.read_text(), re.DOTALL | re.MULTILINE)


def tutorial_cells() -> dict[int, str]:
    """The cells of the tutorial that its reader writes, by the number of their step."""
    steps = re.split(r"^## (\d)\. ", TUTORIAL.read_text(), flags=re.MULTILINE)
    fence = re.compile(r"^```(?:python)?\n(.*?)\n```$", re.DOTALL | re.MULTILINE)
    found = {int(number): fence.search(text) for number, text in zip(steps[1::2], steps[2::2], strict=True)}
    return {number: block[1] for number, block in found.items() if block is not None and number > 3}


@contextlib.contextmanager
def tutorial_lab(folder: Path) -> Iterator[Lab]:
    """JupyterLab as `make lab` starts it, where no cluster runs; what the tutorial starts ends with the block."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    (folder / "config").mkdir()
    four = {"GpuRelease": {"start_options": ["--simulated-gpus", "4"]}}  # also on a machine with real ones
    (folder / "config" / "jupyter_gpu_release_config.json").write_text(json.dumps(four))
    try:
        with running_lab(folder, environment={"PATH": path}, settings=NO_NOTIFICATIONS) as lab:
            yield lab
    finally:
        stop_embedded(HomePaths(folder / "gpu"))


class Tutorial:
    """Its steps, one method each; after each the camera is told the step's name."""

    def __init__(self, page: Page, root: Path, camera: Camera) -> None:
        """``root``: the folder that JupyterLab shows. ``camera`` takes a picture, or none."""
        self._page, self._root, self._camera = page, root, camera
        self._notebook = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")
        self._cells = tutorial_cells()

    def play(self) -> None:
        """All steps, from no cluster to none."""
        self.open_notebook()
        self.load_digits()
        self.train()
        self.use_results()
        self.see_status()
        self.train_in_background()
        self.fail()
        self.stop_cluster()

    def open_notebook(self) -> None:
        """As `make lab` does."""
        (self._root / "my-digits.ipynb").write_bytes((REPOSITORY / "examples" / "digits.ipynb").read_bytes())
        _open(self._page, "my-digits.ipynb")
        self._camera("1-notebook")

    def load_digits(self) -> None:
        """The first cell: an ordinary one."""
        self._run_given("%load_ext")
        expect(self._outputs("%load_ext")).to_contain_text("digits to learn from", timeout=_LONG_MS)
        self._show(self._given("%load_ext"), "end")
        self._camera("2-first-cell")

    def train(self) -> None:
        """The first GPU cell, while it runs and when it has ended."""
        execute(self._page, "jupyter-gpu-release:open")
        self._run_given("class DigitNet")
        output = self._outputs("class DigitNet")
        expect(output).to_contain_text("after the last statement", timeout=_LONG_MS)
        expect(output.locator("img")).to_be_visible()
        self._show(output.locator(".jp-OutputArea-child").last, "end")
        self._camera("3-gpu-cell")

    def use_results(self) -> None:
        """A plain cell reads what came back."""
        output = self._add(self._cells[4])
        expect(output).to_contain_text("0.", timeout=_LONG_MS)
        self._show(output, "end")
        self._camera("4-results")

    def see_status(self) -> None:
        """Nobody holds a GPU."""
        output = self._add(self._cells[5])
        expect(output).to_contain_text("free", timeout=_LONG_MS)
        expect(self._page.locator(".jp-GpuRelease-tile").first).to_have_text("4free", timeout=_LONG_MS)
        self._show(output, "end")
        self._camera("5-status")

    def train_in_background(self) -> None:
        """The cell returns at once; its receipt comes later."""
        output = self._add(self._cells[6])
        expect(row(self._page, "My runs", "my-digits")).to_be_visible()
        cell = self._notebook.locator(".jp-Cell.jp-mod-active")
        goes_on, is_over = cell.get_by_role("button", name="Cancel"), output.get_by_text("after the last statement")
        expect(goes_on.or_(is_over).first).to_be_visible(timeout=_LONG_MS)
        self._show(cell, "end")
        self._camera("6-background")
        expect(output).to_contain_text("after the last statement", timeout=_LONG_MS)

    def fail(self) -> None:
        """The user's own error; the GPU is free and the name came back."""
        output = self._add(self._cells[7])
        expect(output).to_contain_text("IndexError", timeout=_LONG_MS)
        expect(output).to_contain_text("kept (list")
        self._show(output, "end")
        self._camera("7-error")

    def stop_cluster(self) -> None:
        """The sidebar says that there is none any more, and offers to start one."""
        output = self._add(self._cells[8])
        expect(output).to_contain_text("Stopped the cluster", timeout=_LONG_MS)
        panel = self._page.locator("#jupyter-gpu-release-panel")
        expect(panel.get_by_role("button", name="Start")).to_be_visible(timeout=_LONG_MS)
        expect(panel.locator(".jp-AccordionPanel-title", has_text="My runs")).to_be_visible(timeout=_LONG_MS)
        self._show(output, "end")
        self._camera("8-stopped")

    def _given(self, text: str) -> Locator:
        return self._notebook.locator(".jp-CodeCell").filter(has_text=text).first

    def _outputs(self, text: str) -> Locator:
        return self._given(text).locator(".jp-OutputArea").first

    def _run_given(self, text: str) -> None:
        cell = self._given(text)
        cell.scroll_into_view_if_needed()
        cell.locator(".jp-InputPrompt").first.click()
        execute(self._page, "notebook:run-cell-and-select-next")

    def _add(self, code: str) -> Locator:
        """Write a cell below the selected one, run it, and select it; returns its output."""
        execute(self._page, "notebook:enter-command-mode")
        return add_cell(self._page, code)

    def _show(self, part: Locator, edge: str) -> None:
        part.evaluate("(node, edge) => node.scrollIntoView({block: edge})", edge)


def add_cell(page: Page, code: str) -> Locator:
    """Append a cell with this code and run it; returns its output."""
    page.evaluate(
        "code => { const panel = window.jupyterapp.shell.currentWidget, model = panel.context.model.sharedModel;"
        " const at = panel.content.activeCellIndex + 1;"
        " model.insertCell(at, {cell_type: 'code', source: code}); panel.content.activeCellIndex = at; }",
        code,
    )
    cell = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell.jp-mod-active")
    expect(cell).to_contain_text(code.splitlines()[-1])
    execute(page, "notebook:run-cell")
    return cell.locator(".jp-OutputArea").first


def _open(page: Page, path: str) -> None:
    """Show a notebook alone, and start its kernel."""
    execute(page, "docmanager:open", {"path": path})
    page.wait_for_function(
        "path => window.jupyterapp.shell.currentWidget?.context?.path === path"
        " && window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel?.status === 'idle'",
        arg=path,
        timeout=_LONG_MS,
    )
    page.evaluate(
        "() => [...window.jupyterapp.shell.widgets('main')]"
        ".filter(shown => shown !== window.jupyterapp.shell.currentWidget).forEach(shown => shown.dispose())"
    )


@contextlib.contextmanager
def colleague(folder: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    """A script of somebody else that asks for all GPUs when the file is made that this yields; ends with the block."""
    script, asks, ends = (folder / name for name in ("sweep.py", "asks", "ends"))
    script.write_text(_COLLEAGUE)
    command = [sys.executable, str(script), str(asks), str(ends)]
    with (folder / "sweep.log").open("wb") as log:
        process = subprocess.Popen(command, env={**os.environ, **environment}, stdout=log, stderr=log)
    try:
        yield asks
    finally:
        asks.touch()
        ends.touch()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class FirstPicture:
    """The cells of the README beside the sidebar: a colleague waits while it trains, and then has the GPUs."""

    def __init__(self, page: Page, lab: Lab, asks: Path) -> None:
        """``asks``: see `colleague`."""
        self._page, self._root, self._asks = page, lab.root, asks
        self._cells = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Cell")

    def film(self, target: Path) -> Words:
        """All of it, filmed, and its end as a picture, both below ``target``; returns the words of the picture."""
        self.prepare()
        with Recording(self._page, target / "first-cell.webp"):
            self._page.wait_for_timeout(1000)
            self.train()
            self._page.wait_for_timeout(1500)
            self.look()
            self._page.wait_for_timeout(3000)
        take(self._page, "first-cell", target)
        return words_of(self._page)

    def play(self) -> Words:
        """The same without a camera."""
        self.prepare()
        self.train()
        self.look()
        return words_of(self._page)

    def prepare(self) -> None:
        """The notebook with what the cell reads, its GPU cell in sight."""
        write_notebook(self._root / "digits.ipynb", _BEFORE_TRAINING, _TRAINING, _AFTER_TRAINING)
        _open(self._page, "digits.ipynb")
        self._select(0)
        execute(self._page, "notebook:run-cell-and-select-next")
        expect(self._cells.first.locator(".jp-InputPrompt").first).to_contain_text("1", timeout=_LONG_MS)
        self._cells.nth(1).evaluate("node => node.scrollIntoView({block: 'start'})")

    def train(self) -> None:
        """From the click to the receipt."""
        self._select(1)
        execute(self._page, "notebook:run-cell")
        output = self._cells.nth(1).locator(".jp-OutputArea").first
        expect(output).to_contain_text(re.compile(r"\| [1-9]\d*/40"), timeout=_LONG_MS)  # the bar counts
        self._asks.touch()
        expect(output).to_contain_text("after the last statement", timeout=_LONG_MS)

    def look(self) -> None:
        """A plain cell with what came back, while the colleague has all GPUs."""
        expect(self._page.locator(".jp-GpuRelease-tile").first).to_have_text("0free", timeout=_LONG_MS)
        self._select(2)
        execute(self._page, "notebook:run-cell")
        expect(self._cells.nth(2).locator(".jp-OutputArea img")).to_be_visible(timeout=_LONG_MS)
        self._cells.nth(1).evaluate("node => node.scrollIntoView({block: 'start'})")

    def _select(self, index: int) -> None:
        self._cells.nth(index).locator(".jp-InputPrompt").first.click()
