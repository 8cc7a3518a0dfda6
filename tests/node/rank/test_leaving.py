"""A process that ends says so when it holds no GPU: Ray can free it meanwhile."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest
from node_bed import Node, Run

from jupyter_gpu_release.node.rank import open_devices
from jupyter_gpu_release.protocol.node import RunPhase


def _phases(run: Run) -> list[str]:
    return [message.phase for message in run.messages if isinstance(message, RunPhase)]


def test_a_cells_process_tells_that_it_is_about_to_end(node: Node) -> None:
    assert _phases(node.run("x = 1")) == ["running", "ended", "leaving", "released", "final"]


@pytest.mark.parametrize(
    ("source", "options"),
    [
        ("import subprocess; left = subprocess.Popen(['sleep', '1000'])", {}),
        ("x = 1", {"ranks": 2, "gpu_ids": ["0", "1"]}),
        ("import os, threading, time; threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()",
         {"simulated": False}),
    ],
    ids=["a child is left", "a gang", "a thread could take the GPU"],
)  # fmt: skip
def test_where_something_may_hold_the_gpus_only_the_end_counts(
    node: Node, source: str, options: dict[str, object]
) -> None:
    assert _phases(node.run(source, **options)) == ["running", "ended", "released", "final"]


def test_an_open_device_may_hold_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = tmp_path / "nvidia0"
    device.write_bytes(b"\0" * 4096)
    monkeypatch.setattr(open_devices, "_DEVICES", (str(device),))
    monkeypatch.setattr(open_devices, "_threads", list)
    assert not open_devices.may_hold_gpu()
    with device.open("rb") as file:
        assert open_devices.may_hold_gpu()
        mapped = mmap.mmap(file.fileno(), 4096, access=mmap.ACCESS_READ)
    assert open_devices.may_hold_gpu()
    mapped.close()
    assert not open_devices.may_hold_gpu()
