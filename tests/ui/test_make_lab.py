"""`make demo` and `make lab` in a fresh clone, as the README has them, up to `jupyter gpu stop`; what they leave."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from doc_blocks import block
from fresh_clone import copy_repository, make_environment
from playwright.sync_api import Browser, expect
from ports import free_port
from sidebar_bed import opened

_LONG_MS, _UP_WITHIN_S = 180_000, 120.0
pytestmark = [pytest.mark.timeout(1200), pytest.mark.thorough]
_DEMO, _LAB = (shlex.split(line, comments=True) for line in block("../README.md", "## Try it", "make").commands())


@dataclass(frozen=True)
class Clone:
    """A clone whose set-up is done, on the machine of a user who has nothing else."""

    folder: Path
    environment: dict[str, str]

    @property
    def notebooks(self) -> Path:
        """The folder that `make lab` opens."""
        return self.folder / "examples" / "out" / "lab"

    def run(self, *command: str) -> str:
        """Run a command in it, to its end; returns what it said."""
        log = self.folder.parent / "said.log"
        try:
            with log.open("wb") as written:
                done = subprocess.run(command, cwd=self.folder, env=self.environment, stdout=written, stderr=written)
        finally:
            said = log.read_text()
            print(said)
        assert done.returncode == 0
        return said

    def gpu(self, *words: str) -> str:
        """``.venv/bin/jupyter gpu …``, as the tutorial has it."""
        return self.run(".venv/bin/jupyter", "gpu", *words)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clone]:
    """The slow results of `make setup` and `make bundle` are there; Make sees it by the files' times."""
    folder = tmp_path_factory.mktemp("lab") / "clone"
    copy_repository(folder)
    make_environment(folder / ".venv")
    (folder.parent / "home").mkdir()
    passed_on = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "JUPYTER_GPU_", "OMP_"))}
    own = {"HOME": str(folder.parent / "home"), "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
    made = Clone(folder, {**passed_on, **own, "BROWSER": "true", "JUPYTER_GPU_PRELOAD": "torch"})
    pip = (".venv/bin/python", "-m", "pip", "install", "--quiet", "--no-deps", "--editable", ".")
    made.run("env", "SKIP_JUPYTER_BUILDER=1", *pip)
    for path in (".venv/.stamp", "labextension/node_modules/.stamp", "jupyter_gpu_release/labextension/package.json"):
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).touch()
    yield made
    made.gpu("stop", "--yes")


def test_the_demo_leaves_nothing_in_the_folder_that_make_lab_opens(clone: Clone) -> None:
    said = clone.run(*_DEMO)
    assert "nothing left: no process, no folder" in said
    assert re.search(r"^✓ .* after the last statement", said, re.MULTILINE)
    out = clone.folder / "examples" / "out"
    assert {path.name for path in out.iterdir()} == {"home", "digits.ipynb", "digits.html"}
    assert not clone.notebooks.exists()


def test_make_lab_shows_one_notebook_beside_the_sidebar(clone: Clone, browser: Browser) -> None:
    """Its first GPU cell is tried in the tutorial's test (``test_shown.py``)."""
    environment = {**clone.environment, "JUPYTER_PORT": str(free_port())}
    log = clone.folder.parent / "make-lab.log"
    with log.open("wb") as written:
        lab = subprocess.Popen(
            _LAB, cwd=clone.folder, env=environment, stdout=written, stderr=written, start_new_session=True
        )
    try:
        url, token = _printed_address(lab, log)
        with httpx.Client(transport=httpx.HTTPTransport(retries=6)) as client:  # it says where before it listens
            listed = client.get(f"{url}/api/contents", headers={"Authorization": f"token {token}"}).json()
        assert [entry["name"] for entry in listed["content"]] == ["my-digits.ipynb"]
        with opened(browser) as page:
            page.goto(f"{url}/lab?token={token}")
            page.locator(".jp-DirListing-item", has_text="my-digits.ipynb").dblclick(timeout=_LONG_MS)
            expect(page.get_by_role("button", name="Python 3 (ipykernel) | Idle")).to_be_visible(timeout=_LONG_MS)
            page.get_by_role("tab", name="GPUs").click()
            expect(page.locator(".jp-GpuRelease-situation").get_by_role("button", name="Start")).to_be_visible()
    finally:
        os.killpg(lab.pid, signal.SIGTERM)
        lab.wait(60)
    assert {path.name for path in clone.notebooks.iterdir()} - {".ipynb_checkpoints"} == {"my-digits.ipynb"}


def test_what_stop_says_of_what_stays_is_true(clone: Clone) -> None:
    clone.gpu("start", "--simulated-gpus", "1")
    clone.run(".venv/bin/python", "-c", "import jupyter_gpu_release as g; print(g.launch(sum, [6, 7]).result())")
    (ended,) = json.loads(clone.gpu("runs", "--json"))["runs"]
    state = Path(clone.environment["HOME"]) / ".local" / "state" / "jupyter-gpu"
    connection = json.loads((state / "connection.json").read_text())
    said = clone.gpu("stop")
    assert re.search(
        r"Stopped the cluster: [1-9]\d* processes ended in [\d.]+ s, its temporary files are removed", said
    )
    assert f"Results, the record of runs and logs stay in {state}; the next cluster here goes on with them." in said
    assert not Path(connection["runtime"]).exists()
    assert not (state / "connection.json").exists()
    assert (Path(connection["store"]) / "runs" / ended["run"] / "manifest.json").exists()
    assert clone.gpu("stop").strip() == "No cluster was running."


def _printed_address(lab: subprocess.Popen[bytes], log: Path) -> tuple[str, str]:
    """The address and the token that a terminal shows."""
    deadline = time.monotonic() + _UP_WITHIN_S
    while not (found := re.search(r"(http://127\.0\.0\.1:\d+)/lab\?token=(\w+)\s", log.read_text())):
        assert lab.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
    return found[1], found[2]
