"""The oldest versions of Jupyter's parts that ``pyproject.toml`` allows: each in an environment of its own, made by uv,
with the newest of all else. A notebook there runs a GPU cell in a browser. ``make test-oldest``; CI does not run it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from lab_bed import execute, running_lab
from playwright.sync_api import Browser, expect
from sidebar_bed import opened, row, write_notebook
from soak import ONLY_IN_SOAK
from uv import find_uv_bin

from jupyter_gpu_release.client.autostart import Ready

_REPOSITORY = Path(__file__).parents[2]
_PROJECT = tomllib.loads((_REPOSITORY / "pyproject.toml").read_text())
_NEEDS = [*_PROJECT["project"]["dependencies"], *_PROJECT["dependency-groups"]["lab"]]
PARTS = ("ipython", "ipykernel", "jupyter-server", "jupyterlab", "notebook")
_VERSIONS = "import importlib.metadata as m; print({{name: m.version(name) for name in {parts!r}}})"
_CELL = "%%gpu_train --name oldest\nimport os\nwhere, doubled = os.getpid(), [2 * each for each in numbers]"
_PLAIN = "import os; assert where != os.getpid(); print('doubled', doubled)"
_MAKE_S, _RUN_MS = 900, 120_000


def oldest(part: str) -> str:
    """The lower bound of its range."""
    (found,) = (bound[1] for need in _NEEDS if (bound := re.match(rf"{part}>=([\d.]+)", need)))
    return found


def _environment(folder: Path, parts: tuple[str, ...]) -> str:
    """Make it, with this package, Notebook 7 and these parts as old as they may be; returns its Python."""
    uv, python = find_uv_bin(), str(folder / "bin" / "python")
    pinned = [f"{part}=={oldest(part)}" for part in parts]
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, folder], check=True, timeout=_MAKE_S)
    command = [uv, "pip", "install", "--quiet", "--python", python, "--editable", _REPOSITORY, "notebook", *pinned]
    subprocess.run(command, check=True, timeout=_MAKE_S, env={**os.environ, "SKIP_JUPYTER_BUILDER": "1"})
    return python


@ONLY_IN_SOAK
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("parts", [*((part,) for part in PARTS), PARTS], ids="+".join)
def test_a_gpu_cell_runs_with_the_oldest_version(
    parts: tuple[str, ...], browser: Browser, cluster: Ready, tmp_path: Path
) -> None:
    python = _environment(tmp_path / "env", parts)
    connection = cluster.connection
    told = {"JUPYTER_GPU_URL": connection.url, "JUPYTER_GPU_TOKEN_FILE": connection.token_file}
    with running_lab(tmp_path / "lab", environment=told, python=python) as lab, opened(browser) as page:
        write_notebook(lab.root / "oldest.ipynb", "numbers = [1, 2, 3]", _CELL, _PLAIN, _VERSIONS.format(parts=parts))
        page.goto(lab.page_url("notebooks/oldest.ipynb"))
        page.wait_for_function(
            "window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'",
            timeout=_RUN_MS,
        )
        execute(page, "notebook:run-all-cells")
        cells = page.locator(".jp-CodeCell")
        expect(cells.nth(1)).to_contain_text("after the last statement", timeout=_RUN_MS)  # its receipt
        expect(cells.nth(2)).to_contain_text("doubled [2, 4, 6]")
        said = cells.nth(3).locator(".jp-OutputArea-output")
        expect(said).to_be_visible()
        versions = json.loads(said.inner_text().replace("'", '"'))
        print(versions)
        assert versions == {part: f"{oldest(part)}.0" for part in parts}
        execute(page, "jupyter-gpu-release:open")
        expect(row(page, "My runs", "oldest")).to_be_visible()
