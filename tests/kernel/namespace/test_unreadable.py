"""Values whose file was cut short are said to be zeros before each cell, until they are bound anew."""

from __future__ import annotations

from pathlib import Path

from kernel_outputs import Kernel

RUN = "20260101-000000-00000001"
MAKE = """
import os
from pathlib import Path
import numpy as np
from jupyter_gpu_release.store.blobs import BlobStore
from jupyter_gpu_release.store.graph_file import blobs_of, open_graph, write_graph
from jupyter_gpu_release.store.run_folders import create_run_folder
store = Path({store!r})
path = create_run_folder(store, {run!r}).values
digest = write_graph(path, b"s", [b"1" * (2 << 20)])
table = np.frombuffer(open_graph(path, digest).buffers[0], "u1")
half, other = table[1 << 20 :], np.ones(3)
blob = BlobStore(store / "blobs").path_of(blobs_of(path)[0][0])
blob.chmod(0o600)
os.truncate(blob, 4096)
"""


def test_lost_names_are_said_before_each_cell_until_bound_anew(plain_kernel: Kernel, tmp_path: Path) -> None:
    assert plain_kernel.run("%gpu_config").reply["status"] == "ok"
    assert plain_kernel.run(MAKE.format(store=str(tmp_path), run=RUN)).text("stderr") == ""
    caught = (
        "try:\n    print(int(half.sum()))\n    while True: pass\nexcept Exception as error:\n    print(type(error))"
    )
    assert "StoreError" in plain_kernel.run(caught).text()
    for _ in range(2):
        said = plain_kernel.run("1").text("stderr")
        assert said.startswith("StoreError: `table`, `half` may hold zeros: ")
        assert f"%gpu_attach {RUN}" in said
        assert "other" not in said
    assert "`half`" in plain_kernel.run("del table").text("stderr")
    assert "`half`" in plain_kernel.run("half = 0").text("stderr")
    assert plain_kernel.run("1").text("stderr") == ""
