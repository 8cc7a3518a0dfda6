"""``python -m tests.differential NOTEBOOK…``: each notebook plain, and with every cell as a GPU cell.

Prints what differs, cell by cell; exit status 1 where a difference is not documented (the table "Known differences" of
docs/notebook-semantics.md) or has no sentence in its receipt.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "harness"))

from jupyter_gpu_release.client.home import HomePaths
from jupyter_gpu_release.local_cluster.start import start_embedded, stop_embedded

from .comparing import Difference, differences, documented_sentences
from .playing import Play, play
from .reading import cells_of, on_a_gpu


def compare(
    path: Path, environment: dict[str, str], looked_at: Callable[[Play], None] = lambda _plain: None
) -> list[Difference]:
    """All differences of one notebook; ``environment`` names the cluster. ``looked_at`` gets the plain run."""
    sources = cells_of(path)
    plain = play(sources, path.parent, environment)
    looked_at(plain)
    gpu = play(sources, path.parent, environment, gpu=on_a_gpu)
    return differences(plain, gpu, lambda: play(sources, path.parent, environment), documented_sentences())


@contextmanager
def cluster() -> Iterator[dict[str, str]]:
    """An embedded one for this comparison, whose ranks hash text as the kernels do."""
    with tempfile.TemporaryDirectory(prefix="jgr-diff-") as folder:
        home = HomePaths(Path(folder) / "home")
        os.environ["PYTHONHASHSEED"] = "0"
        os.environ["JUPYTER_GPU_HOME"] = str(home.root)
        try:
            start_embedded(home=home, simulated=4, progress=lambda _: None)
            yield {"JUPYTER_GPU_HOME": str(home.root)}
        finally:
            stop_embedded(home)


def size_of(plain: Play) -> str:
    """How much there was to compare."""
    outputs = sum(len(cell.shown) for cell in plain.cells)
    values = sum(map(len, plain.names.values()))
    return f"{len(plain.cells)} cells, {outputs} outputs, {len(plain.names)} names ({values} values)"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("notebook", nargs="+", type=Path, help=".ipynb, or .py in the percent format")
    undocumented = 0
    notebooks = parser.parse_args().notebook
    with cluster() as environment:
        for path in notebooks:
            began_s = time.monotonic()
            plays: list[Play] = []
            found = compare(path.resolve(), environment, plays.append)
            fresh = [each for each in found if not each.documented]
            undocumented += len(fresh)
            print(
                f"{path}: {size_of(plays[0])}: {len(found)} differences, {len(fresh)} undocumented "
                f"({time.monotonic() - began_s:.0f} s)"
            )
            for each in found:
                print(each, flush=True)
    return int(bool(undocumented))


if __name__ == "__main__":
    sys.exit(main())
