"""Programs that others wrote and that know nothing of us: they judge whether a GPU cell is a good Jupyter cell."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import jupyter_kernel_test
import nbformat
import papermill
import pytest
from background_bed import HELD, go
from kernel_bed import Notebook
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

GPU = "%%gpu_train\n"


class TestKernelProtocol(jupyter_kernel_test.KernelTests):
    """jupyter_kernel_test with every cell on the cluster."""

    kernel_name = "python3"
    language_name = "python"
    code_hello_world = GPU + "print('hello, world')"
    code_stderr = GPU + "import sys; print('test', file=sys.stderr)"
    code_generate_error = GPU + "raise ValueError('no')"
    code_page_something = GPU + "print?"
    code_clear_output = GPU + "from IPython.display import clear_output; clear_output()"
    code_display_data: ClassVar[list[dict[str, str]]] = [
        {"code": GPU + "from IPython.display import HTML, display; display(HTML('<b>test</b>'))", "mime": "text/html"},
        {"code": GPU + "from IPython.display import Math, display; display(Math('x^2'))", "mime": "text/latex"},
        {"code": GPU + "1 + 1", "mime": "text/plain"},  # a remote result is display data, not an execute_result
    ]

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.kc.execute_interactive("%load_ext jupyter_gpu_release", timeout=60, output_hook=lambda _: None)
        # an error is all that its cell shows, if the run does not wait so long that this is said
        waits = "import jupyter_gpu_release.kernel.runs.follow as steps\nsteps._QUIET_WAITING_S = steps._QUIET_S = 3600"
        cls.kc.execute_interactive(waits, timeout=60, output_hook=lambda _: None)
        cls.kc.execute_interactive(GPU + "1", timeout=120, output_hook=lambda _: None)

    @classmethod
    def tearDownClass(cls) -> None:
        super().tearDownClass()
        cls.km.cleanup_resources()

    def flush_channels(self) -> None:
        """Its own takes what comes within 0.1 s; behind an answer of the kernel nothing of before is left."""
        self.kc.execute_interactive("", silent=True, timeout=60, output_hook=lambda _: None)
        super().flush_channels()

    def execute_helper(self, code: str, timeout: int = 60, **options: Any) -> Any:
        """Its own gives each message 0.1 s, which a busy machine exceeds."""
        take = jupyter_kernel_test.ensure_sync(self.kc.iopub_channel.get_msg)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.kc.iopub_channel, "get_msg", lambda **_: take(timeout=60))
            return super().execute_helper(code, timeout, **options)


def _notebook(*cells: str) -> Any:
    made = nbformat.v4.new_notebook()
    made.cells = [nbformat.v4.new_code_cell(source) for source in cells]
    return made


def test_nbclient_stops_at_the_first_failing_gpu_cell(tmp_path: Path) -> None:
    book = _notebook("%load_ext jupyter_gpu_release", GPU + "x = 1\nraise KeyError('stop here')", "y = 2")
    with pytest.raises(CellExecutionError, match="stop here") as caught:
        NotebookClient(book, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert caught.value.ename == "KeyError"
    assert book.cells[2].outputs == []
    assert book.cells[2].execution_count is None


def test_papermill_passes_parameters_into_gpu_cells(tmp_path: Path) -> None:
    book = _notebook("rate = 1", "%load_ext jupyter_gpu_release", GPU + "doubled = 2 * rate\nprint(doubled)")
    book.cells[0].metadata["tags"] = ["parameters"]
    book.metadata["kernelspec"] = {"name": "python3", "language": "python", "display_name": "Python 3"}
    nbformat.write(book, tmp_path / "in.ipynb")
    done = papermill.execute_notebook(
        str(tmp_path / "in.ipynb"),
        str(tmp_path / "out.ipynb"),
        parameters={"rate": 21},
        cwd=str(tmp_path),
        progress_bar=False,
    )
    texts = [output["text"] for cell in done.cells for output in cell.get("outputs", []) if "text" in output]
    assert "42\n" in texts


@pytest.mark.thorough
@pytest.mark.parametrize("way", ["--async", "--detach"])
def test_what_waits_for_a_run_beside_the_cells_has_its_output_where_a_late_one_is_lost(
    tmp_path: Path, way: str
) -> None:
    """nbclient drops what a cell says after it has returned."""
    cells = _notebook(
        "%load_ext jupyter_gpu_release",
        GPU.strip() + f" {way}\nprint('trained')\nx = 1",
        GPU.strip() + f" {way}\nprint('begun')\n1 / 0",
        "%gpu_wait",
        "%gpu_wait",
        "print('x is', x)",
    )
    where = {"metadata": {"path": str(tmp_path)}}
    done = NotebookClient(cells, timeout=120, allow_errors=True, resources=where).execute()
    waited, again, last = (json.dumps(cell.outputs) for cell in done.cells[3:])
    for shown in ("trained", "back: x", "begun", "ZeroDivisionError"):
        assert waited.count(shown), (shown, waited)
    assert json.loads(again) == []
    assert "x is 1" in last


@pytest.mark.thorough
def test_jupyter_execute_writes_outputs_and_receipts_into_the_file(tmp_path: Path) -> None:
    path = tmp_path / "figure.ipynb"
    figure = GPU + "import matplotlib.pyplot as plt\nheights = [1, 3, 2]\nplt.bar(range(3), heights)\nplt.show()"
    sweep = "%%gpu_sweep --metric loss\nn = search([1, 2])\nloss = n + sum(heights)"
    nbformat.write(_notebook("%load_ext jupyter_gpu_release", figure, "print('back', sum(heights))", sweep), path)
    command = [sys.executable, "-m", "jupyter", "execute", "--inplace", str(path)]
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    cells = nbformat.read(path, as_version=4).cells
    assert sum("image/png" in output.get("data", {}) for output in cells[1].outputs) == 1
    assert "simulated" in json.dumps(cells[1].outputs)
    assert cells[2].outputs[0]["text"] == "back 6\n"
    assert sum("image/png" in output.get("data", {}) for output in cells[3].outputs) == 2  # history, coordinates
    assert "2 trials \u00b7 2 complete \u00b7 best loss=7 (trial 0)" in json.dumps(cells[3].outputs, ensure_ascii=False)


def test_a_client_that_does_not_stop_on_error_goes_on(notebook: Notebook) -> None:
    first = notebook.client.execute(GPU + "1 / 0", stop_on_error=False)
    second = notebook.client.execute("z = 5", stop_on_error=False)
    replies = {}
    while len(replies) < 2:
        reply = notebook.client.get_shell_msg(timeout=60)
        replies[reply["parent_header"]["msg_id"]] = reply["content"]
    assert replies[first]["status"] == "error"
    assert replies[first]["ename"] == "ZeroDivisionError"
    assert replies[second]["status"] == "ok"
    assert notebook.value("z") == 5


@pytest.mark.thorough
def test_plain_ipython_in_a_terminal(tmp_path: Path) -> None:
    script = tmp_path / "cells.ipy"
    script.write_text(
        "%load_ext jupyter_gpu_release\n"
        "a = 20\n"
        "get_ipython().run_cell_magic('gpu_train', '--gpus 1', 'b = a + 1\\nprint(\"from the cluster\", b)')\n"
        "print('back', b)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "IPython", "--no-banner", "--colors=NoColor", str(script)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "from the cluster 21" in done.stdout
    assert "back 21" in done.stdout
    assert "free" in done.stdout  # the receipt


def test_two_notebooks_share_the_cluster(open_notebook: Callable[[], Notebook]) -> None:
    one, two = open_notebook(), open_notebook()
    first = one.begin(GPU + "print('on', flush=True)\n" + HELD + "x = 1")
    one.until(lambda shown: "on" in shown.text())
    assert "2" in two.ok(GPU + "x = 2\nx").displays()
    go(one)
    assert one.end(first).status == "ok"
    assert (one.value("x"), two.value("x")) == (1, 2)
