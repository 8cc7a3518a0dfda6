"""``python -m tests.differential NOTEBOOK…``: each notebook plain, and with every cell as a GPU cell.

Prints what differs, cell by cell; exit status 1 where a difference is not documented (the table "Known differences" of
docs/notebook-semantics.md) or has no sentence in its receipt.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "harness"))

from jupyter_gpu_release.client.home import HomePaths
from jupyter_gpu_release.local_cluster.start import StartOptions, start_embedded, stop_embedded

from .comparing import Difference, differences, documented_sentences
from .playing import Play, play
from .reading import cells_of, on_a_gpu


def compare(
    path: Path, environment: dict[str, str], looked_at: Callable[[Play], None] = lambda _plain: None
) -> list[Difference]:
    """All differences of one notebook; ``environment`` names the cluster. ``looked_at`` gets the plain run."""
    return compare_cells(cells_of(path), path.parent, environment, looked_at)


def compare_cells(
    sources: Sequence[str],
    beside: Path,
    environment: dict[str, str],
    looked_at: Callable[[Play], None] = lambda _plain: None,
) -> list[Difference]:
    """All differences of these cells, with the files of the folder ``beside`` them."""
    plain = play(sources, beside, environment)
    looked_at(plain)
    gpu = play(sources, beside, environment, gpu=on_a_gpu)
    return differences(plain, gpu, lambda: play(sources, beside, environment), documented_sentences())


@contextmanager
def cluster() -> Iterator[dict[str, str]]:
    """An embedded one for this comparison, whose ranks hash text as the kernels do."""
    with tempfile.TemporaryDirectory(prefix="jgr-diff-") as folder:
        home = HomePaths(Path(folder) / "home")
        os.environ["PYTHONHASHSEED"] = "0"
        os.environ["JUPYTER_GPU_HOME"] = str(home.root)
        try:
            start_embedded(home=home, asked=StartOptions(simulated=4), progress=lambda _: None)
            yield {"JUPYTER_GPU_HOME": str(home.root)}
        finally:
            stop_embedded(home)


def size_of(plain: Play) -> dict[str, int]:
    """How much there was to compare."""
    return {
        "cells": len(plain.cells),
        "outputs": sum(len(cell.shown) for cell in plain.cells),
        "pictures": sum(mime.startswith("image/") for cell in plain.cells for data in cell.displays() for mime in data),
        "names": len(plain.names),
        "values": sum(map(len, plain.names.values())),
        "files": len(plain.files),
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("notebook", nargs="+", type=Path, help=".ipynb, or .py in the percent format")
    parser.add_argument("--json", type=Path, metavar="FILE", help="one line of JSON for each notebook is added to it")
    options = parser.parse_args()
    if missing := [str(path) for path in options.notebook if not path.is_file()]:
        parser.error(f"no such notebook: {', '.join(missing)}")
    with cluster() as environment:
        return int(sum(_report(path, environment, options.json) for path in options.notebook) > 0)


def _report(path: Path, environment: dict[str, str], record: Path | None) -> int:
    """Compare one notebook, and print what differs. Returns how much of it is undocumented."""
    began_s = time.monotonic()
    plays: list[Play] = []
    found = compare(path.resolve(), environment, plays.append)
    size, fresh = size_of(plays[0]), sum(not each.documented for each in found)
    amounts = ", ".join(f"{amount} {noun}" for noun, amount in size.items())
    print(f"{path}: {amounts}: {len(found)} differences, {fresh} undocumented ({time.monotonic() - began_s:.0f} s)")
    for each in found:
        print(each, flush=True)
    if record is not None:
        line = {"notebook": str(path), **size, "undocumented": fresh, "differences": [asdict(each) for each in found]}
        with record.open("a") as file:
            file.write(json.dumps(line) + "\n")
    return fresh


if __name__ == "__main__":
    sys.exit(main())
