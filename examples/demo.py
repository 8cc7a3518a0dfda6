"""``make demo``: the example notebook on a cluster of its own, from start to nothing left.

Starts the embedded cluster (state below ``examples/out/home``), runs ``digits.ipynb`` through a real kernel,
writes the executed notebook and an HTML page, prints the receipts, stops the cluster and looks for leftovers.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbconvert import HTMLExporter

from jupyter_gpu_release.client.home import Connection, HomePaths
from jupyter_gpu_release.errors import GpuReleaseError
from jupyter_gpu_release.local_cluster.processes import cluster_processes
from jupyter_gpu_release.local_cluster.start import StartOptions, start_embedded, stop_embedded

HERE = Path(__file__).resolve().parent
OUT = HERE / "out"


def main() -> int:
    """Run the demo; the exit status is 0 only when every cell ran and nothing is left."""
    began = time.monotonic()
    say = _clock(began)
    os.environ["JUPYTER_GPU_HOME"] = str(OUT / "home")
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for name in ("JUPYTER_GPU_URL", "JUPYTER_GPU_TOKEN", "JUPYTER_GPU_STORE"):
        os.environ.pop(name, None)  # the demo has its own cluster, whatever is configured here
    home = HomePaths.from_environment()
    try:
        ready = start_embedded(home=home, asked=StartOptions(), progress=say)
        say(f"cluster ready at {ready.connection.url}, {ready.gpus} {_kind(ready.connection)}")
        failed = _run_notebook(say)
    except GpuReleaseError as error:
        say(str(error))
        return 1
    finally:
        report = stop_embedded(home)
        say(f"cluster stopped, {report.processes} processes ended")
    left = _leftovers(ready.connection)
    for line in left:
        say(f"LEFT BEHIND: {line}")
    say("nothing left: no process, no folder" if not left else "something was left behind")
    return 1 if failed or left else 0


def _run_notebook(say) -> bool:
    notebook = nbformat.read(HERE / "digits.ipynb", as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]

    def on_start(cell, cell_index):
        if cell.cell_type == "code":
            first = next((line for line in cell.source.splitlines() if line.strip()), "")
            say(f"cell {cells.index(cell) + 1} of {len(cells)}: {first}")

    client = NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        resources={"metadata": {"path": str(OUT)}},
        on_cell_start=on_start,
        store_widget_state=True,
        coalesce_streams=True,
        extra_arguments=["--IPKernelApp.log_level=ERROR"],  # a kernel on this machine may use plain TCP
    )
    failed = False
    try:
        client.execute()
    except CellExecutionError as error:
        say(f"a cell failed: {error}")
        failed = True
    nbformat.write(notebook, OUT / "digits.ipynb")
    page, _ = HTMLExporter().from_notebook_node(notebook)
    (OUT / "digits.html").write_text(page, encoding="utf-8")
    say(f"wrote {_relative(OUT / 'digits.ipynb')} and {_relative(OUT / 'digits.html')}")
    receipts = _receipts(cells)
    for receipt in receipts:
        print(receipt)
    return failed or not receipts


def _receipts(cells) -> list[str]:
    """The receipts' plain text, by their metadata."""
    return [
        output["data"]["text/plain"]
        for cell in cells
        for output in cell.outputs
        if output.output_type == "display_data" and "jupyter_gpu_release" in output.metadata
    ]


def _leftovers(connection: Connection) -> list[str]:
    left = [f"process {pid}" for pid in cluster_processes(connection.cluster, runtime=connection.runtime)]
    if Path(connection.runtime).exists():
        left.append(connection.runtime)
    return left


def _kind(connection: Connection) -> str:
    return "simulated GPUs (no NVIDIA GPU here)" if connection.simulated else "GPUs"


def _relative(path: Path) -> str:
    return os.path.relpath(path)


def _clock(began: float):
    return lambda text: print(f"[{time.monotonic() - began:5.1f} s] {text}", flush=True)


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    sys.exit(main())
