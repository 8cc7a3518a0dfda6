"""A store as this version of the package writes it: a cell's run with graphs, blobs, events, manifest, and its export.

``tests/store/data/v<n>.tar.xz`` holds one of each version of the formats. Before a format changes in a way that older
packages cannot read, its version number goes up (``MAGIC`` in ``store/graph_file.py``, ``SCHEMA_VERSION`` in
``store/layout.py``, ``BUNDLE_VERSION`` in ``store/bundle.py`` …), and then the next archive is made::

    python tests/harness/golden_store.py tests/store/data/v2.tar.xz

``tests/store/test_golden_stores.py`` reads them all. An archive is never made anew: it is what users have.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from kernel_bed import Notebook

from jupyter_gpu_release.client.home import HomePaths
from jupyter_gpu_release.local_cluster.start import StartOptions, start_embedded, stop_embedded

_BEFORE = """
import collections, enum, functools, sys, weakref
import numpy as np, pandas as pd, torch
class Colour(enum.Enum):
    RED = 1
class Box:
    def __init__(self, value):
        self.value = value
def counter(start):
    def step():
        nonlocal start
        start += 1
        return start
    return step
step = counter(3)
table = np.zeros((400, 400))
history = [1, 2]
box = Box(Colour.RED)
"""
#: what a cell makes: of each kind that has a way of its own through a stream
_CELL = """%%gpu_train
print("training")
history.append(step())
large = np.arange(200_000) // 1000
corner = table[:2]
view = large[10:20]
dates = np.array(["2026-01-01"], "M8[D]")
masked = np.ma.masked_array([1, 2, 3], [False, True, False])
frame = pd.DataFrame({"a": range(5), "b": list("vwxyz")})
weights = torch.arange(6.0).reshape(2, 3).requires_grad_()
rows = weights.detach()[1:]
optimiser = torch.optim.SGD([weights], lr=0.5)
cached = functools.lru_cache(maxsize=2)(Box)
held = collections.UserList([1])
reference = weakref.ref(held)
words = {"one", "two", "three"}
error = OSError(2, "no such file")
output = sys.stdout
boxes = [box, Box(Colour.RED)]
from jupyter_gpu_release import run_dir
(run_dir / "model.bin").write_bytes(b"m" * 100)
"""


def main(target: Path) -> None:
    """Run the cell on a cluster of its own, and pack its store, its export and the ledger."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["JUPYTER_GPU_HOME"] = str(folder / "home")
        home = HomePaths.from_environment()
        start_embedded(home=home, asked=StartOptions(simulated=1, store=str(folder / "store")), progress=print)
        try:
            notebook = Notebook(folder)
            notebook.ok(_BEFORE)
            notebook.ok(_CELL)
            (run,) = os.listdir(folder / "store" / "runs")
            command = [sys.executable, "-m", "jupyter_gpu_release.cli", "runs", "export", run]
            subprocess.run([*command, str(folder / "run.tar")], check=True)
            notebook.close()
        finally:
            stop_embedded(home)
        with tarfile.open(target, "x:xz") as archive:
            for part in ("store", "run.tar"):
                archive.add(folder / part, part)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
