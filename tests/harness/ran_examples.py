"""Examples with the outputs that the site shows: ``make examples`` runs them anew, on a cluster with simulated GPUs."""

from __future__ import annotations

import os
import re
import socket
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

from jupyter_gpu_release.client.home import HomePaths
from jupyter_gpu_release.local_cluster.start import StartOptions, start_embedded, stop_embedded

REPOSITORY = Path(__file__).parents[2]
SOURCES, RAN = REPOSITORY / "examples", REPOSITORY / "docs" / "examples"
NAMES = ("digits", "tiny_transformer", "tabular", "sweep", "ddp_digits", "from_colab")
#: what the site can show; the rest of an output is of this one run
_SHOWN = ("text/plain", "text/html", "image/png")


def read(folder: Path, name: str) -> NotebookNode:
    """A notebook by its name."""
    return nbformat.read(folder / f"{name}.ipynb", as_version=4)


def execute(name: str, folder: Path) -> NotebookNode:
    """Run all cells of an example in a folder, with the cluster of this environment; raises what a cell raises."""
    book = read(SOURCES, name)
    NotebookClient(
        book,
        timeout=900,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        coalesce_streams=True,
        extra_arguments=["--IPKernelApp.log_level=ERROR"],
    ).execute()
    for cell in book.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [_tidied(each) for each in cell.outputs if each.get("name") != "stderr"]
    book.metadata.language_info = {"name": "python"}
    return book


def _tidied(output: NotebookNode) -> NotebookNode:
    """Without what belongs to this machine or to this run alone."""
    if output.output_type == "stream":
        output.text = _without_host(output.text)
        return output
    output.metadata = NotebookNode()
    data = {kind: value for kind, value in output.data.items() if kind in _SHOWN}
    output.data = {kind: value if kind == "image/png" else _without_host(value) for kind, value in data.items()}
    return output


def _without_host(text: str) -> str:
    return re.sub(rf"\b{re.escape(socket.gethostname())}\b", "gpu-node", text)


def form(cell: Any) -> list[str]:
    """Outputs of a cell in words that each run of it has: numbers and durations are left out, of receipts the facts."""
    return [_form(output) for output in cell.get("outputs", ()) if not _is_passing(output)]


def _is_passing(output: Any) -> bool:
    """Tell if it is said once only, or where a run takes long."""
    text = output.get("data", {}).get("text/plain", "")
    return text.startswith(("This is this machine's own cluster", "ran on "))


def _form(output: Any) -> str:
    if output["output_type"] == "stream":
        return _NUMBER.sub("#", output["text"])
    if (text := output["data"].get("text/plain", "")).startswith("✓"):
        return f"receipt: {', '.join(_RETURNED.findall(text.partition('back: ')[2]))}"
    if "image/png" in output["data"]:
        return "picture"
    return " ".join(_NUMBER.sub("#", text).split())


_RETURNED = re.compile(r"(\w+) \(")
_NUMBER = re.compile(r"\d[\d.,]*(?: (?:ms|s|min|KiB|MiB|h)\b)?")


def main() -> None:
    """Run those that are named, or all."""
    RAN.mkdir(exist_ok=True)
    with TemporaryDirectory(prefix="jgr-examples-") as place:
        os.environ["JUPYTER_GPU_HOME"] = f"{place}/home"
        os.environ["OMP_NUM_THREADS"] = "1"  # the networks are small: threads would wait for each other
        os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        home = HomePaths.from_environment()
        start_embedded(home=home, asked=StartOptions(simulated=4), progress=print)
        try:
            for name in sys.argv[1:] or NAMES:
                print(name, flush=True)
                (RAN / f"{name}.ipynb").write_text(nbformat.writes(execute(name, Path(place)), indent=1) + "\n")
        finally:
            stop_embedded(home)


if __name__ == "__main__":
    main()
