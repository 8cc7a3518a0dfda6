"""``docs/operate/mig.md`` on one machine: named instances are GPUs of a cluster, and a notebook's cell asks for one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kernel_bed import Notebook
from nvml_bed import FakeGpus, build_library

from jupyter_gpu_release.cli.main import main
from jupyter_gpu_release.client.discovery import find_gateway
from jupyter_gpu_release.client.home import HomePaths
from jupyter_gpu_release.client.rest import GatewayClient

# a cluster of its own
pytestmark = [pytest.mark.timeout(300), pytest.mark.thorough]
Until = Callable[[Callable[[], object], str], None]
INSTANCES = ("MIG-5a1b0000-0001", "MIG-77c00000-0002")
_CELL = """
import os, time
seen_{me} = os.environ["CUDA_VISIBLE_DEVICES"]
ids_{me} = os.environ["JUPYTER_GPU_IDS"]
open("{me}", "x").close()
while not os.path.exists("go"):
    time.sleep(0.02)
"""


@pytest.fixture
def notebook(own_home: HomePaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    """On a machine with an H100 of which two instances were made, both of one size."""
    (library := tmp_path / "nvml").mkdir()
    gpus = FakeGpus(build_library(library), tmp_path / "gpus", gpus=1)
    gpus.gpus = [f"gpu H100 GPU-5a1b0000-0 {81559 << 20} 0 0 40 70000"]
    gpus.show(*(f"mig 0 {at} {uuid} {9856 << 20} 0" for at, uuid in enumerate(INSTANCES, start=1)))
    environment = {
        "CUDA_VISIBLE_DEVICES": ",".join(INSTANCES),
        "JUPYTER_GPU_PRELOAD": "json",
        "JUPYTER_GPU_ENVIRONMENT": "FAKE_NVML",
    }
    for name, value in {**gpus.environment, **environment}.items():
        monkeypatch.setenv(name, value)
    command = [sys.executable, "-m", "jupyter_gpu_release.cli", "start"]
    subprocess.run(command, check=True, timeout=200)  # a process of its own: this one knows no driver
    made = Notebook(tmp_path)
    yield made
    made.close()


def test_a_cell_gets_an_instance_by_its_type_and_status_shows_whose_it_is(
    notebook: Notebook, until: Until, capsys: pytest.CaptureFixture[str]
) -> None:
    for me in "ab":
        notebook.ok(f"%%gpu_train --gpu-type 1g.10gb --async --name {me}\n{_CELL.format(me=me)}")
    with GatewayClient.for_target(find_gateway()) as gateway:
        until(lambda: all((notebook.folder / me).exists() for me in "ab"), "both run at once")
        (node,) = gateway.status().nodes
        assert [(gpu.index, gpu.uuid, gpu.name, gpu.slice_of) for gpu in node.gpus] == [
            (uuid, uuid, "H100 MIG 1g.10gb", "0") for uuid in INSTANCES
        ]
        holders = {gpu.index: gpu.run for gpu in node.gpus}
        assert {gpu.state for gpu in node.gpus} == {"running"}
        assert main(["status"]) == 0
        listed = capsys.readouterr().out
        assert all(f"{uuid}" in listed for uuid in INSTANCES)
        assert listed.count("H100 MIG 1g.10gb of GPU 0") == 2
        (notebook.folder / "go").touch()
        notebook.ok("%gpu_wait")
        assert sorted([notebook.value("seen_a"), notebook.value("seen_b")]) == sorted(INSTANCES)
        assert notebook.value("[seen_a, seen_b] == [ids_a, ids_b]") is True
        names = {row.run: row.name for row in gateway.runs(2).runs}
        assert {names[run]: uuid for uuid, run in holders.items()} == {
            "a": notebook.value("seen_a"),
            "b": notebook.value("seen_b"),
        }
    shown = notebook.ok("%%gpu_train --gpu-type 1g.10gb\nimport os\nonly = os.environ['CUDA_VISIBLE_DEVICES']")
    assert notebook.value("only") in INSTANCES
    assert "H100 MIG 1g.10gb" in shown.receipt, shown.receipt
    other = notebook.run("%%gpu_train --gpu-type 3g.40gb\nx = 1")
    assert "3g.40gb" in other.traceback
