"""Cells with a part of a GPU, on a real cluster: two on one at once, what each is told, and what is left of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jupyter_gpu_release.client.autostart import Ready
from jupyter_gpu_release.client.rest import GatewayClient

if TYPE_CHECKING:
    from kernel_outputs import Kernel

MakeKernel = Callable[[dict[str, str]], "Kernel"]

#: both are there before either goes on
_MEETS = """
import os, pathlib, time
ids_{me} = os.environ["JUPYTER_GPU_IDS"]
limit_{me} = os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"]
pathlib.Path({folder!r}, "{me}").touch()
while not pathlib.Path({folder!r}, "{other}").exists():
    time.sleep(0.02)
"""


@pytest.fixture
def notebook(take_kernel: MakeKernel, home: dict[str, str], cluster: Ready) -> Kernel:
    return take_kernel({**home, "JUPYTER_GPU_HOME": str(Path(cluster.connection.token_file).parent)})


@pytest.fixture
def gateway(cluster: Ready, until: Any) -> Iterator[GatewayClient]:
    token = Path(cluster.connection.token_file).read_text().strip()
    with GatewayClient(cluster.connection.url, token) as client:
        until(lambda: client.status().gpus.held == 0, "what other tests' kernels held is free")
        yield client


def test_two_halves_are_on_one_gpu_at_once_and_it_is_free_after_them(
    notebook: Kernel, gateway: GatewayClient, tmp_path: Path, until: Any
) -> None:
    for me, other in ("ab", "ba"):
        code = _MEETS.format(me=me, other=other, folder=str(tmp_path))
        notebook.run(f"%%gpu_train --gpus 0.5 --async --name {me}\n{code}")
    shown = notebook.run("%gpu_wait", 60)
    assert shown.reply["status"] == "ok", shown.traceback
    assert notebook.value("ids_a == ids_b") == "True"
    assert notebook.value("(limit_a, limit_b)") == "('0.5000', '0.5000')"
    notebook.run("import os")
    assert notebook.value("'XLA_PYTHON_CLIENT_MEM_FRACTION' in os.environ") == "False"  # it is no cell's setting
    until(lambda: gateway.status().gpus.held == 0, "the GPU is whole again")
    both = gateway.runs(2).runs
    assert [(run.gpus, run.shared_with) for run in both] == [(0.5, 1), (0.5, 1)]
    whole = notebook.run("%%gpu_train --gpus 4\nimport os\nids = os.environ['JUPYTER_GPU_IDS']", 60)
    assert whole.reply["status"] == "ok", whole.traceback
    assert "0.5 simulated GPUs, shared with 1 other run" in notebook.run(f"%gpu_attach {both[0].run}", 60).plain()[-1]


def test_a_part_is_named_when_it_waits_and_in_the_status(
    notebook: Kernel, gateway: GatewayClient, tmp_path: Path, until: Any
) -> None:
    stop = tmp_path / "stop"
    waits = f"import pathlib, time\nwhile not pathlib.Path({str(stop)!r}).exists(): time.sleep(0.02)"
    notebook.run(f"%%gpu_train --gpus 3 --async\n{waits}")
    for part in (0.6, 0.3):
        notebook.run(f"%%gpu_train --gpus {part} --async\n{waits}")

    def parts() -> list[list[float]]:
        gpus = [gpu for node in gateway.status().nodes for gpu in node.gpus]
        return [sorted(part.gpus for part in gpu.parts) for gpu in gpus if gpu.parts]

    # a lease is counted as soon as it is decided, and tells its GPUs when they are given
    until(lambda: parts() == [[0.3, 0.6]], "both share one GPU")
    gpus = gateway.status().gpus
    assert (gpus.held, gpus.free) == (3.9, 0.1)
    notebook.run("%%gpu_train --gpus 0.25 --async --name late\n1")
    until(lambda: gateway.status().queue, "there is no room for it")
    assert "needs 0.25 GPUs, 0.1 of 4 are free" in gateway.status().queue[0].reason
    stop.touch()
    assert notebook.run("%gpu_wait", 60).reply["status"] == "ok"


#: the first statements look; torch runs what waits until it opens the GPU, and JAX gives this to its plugin
_LIMITS = """
import os, sys
limits = {"variable": os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"]}
import torch
waiting, told = [call for call, _ in torch.cuda._queued_calls], []
torch.cuda.set_per_process_memory_fraction = lambda fraction, device=None: told.append(fraction)
for call in waiting:
    if call.__module__.startswith("jupyter_gpu_release"):
        call()
limits["torch"] = told
import jaxlib.xla_client
limits["jax"] = jaxlib.xla_client.generate_pjrt_gpu_plugin_options()["memory_fraction"]
sys.path.insert(0, {folder!r})
import importlib
tensorflow = importlib.import_module("tensorflow")
limits["tensorflow"] = tensorflow.python.eager.context.context()._config.gpu_options.per_process_gpu_memory_fraction
"""
#: it itself is too large for the tests' environment; what it has not by these names, it does not take
_TENSORFLOW = {
    "__init__.py": "from tensorflow.python.eager import context\nfrom tensorflow import python\n",
    "python/__init__.py": "",
    "python/eager/__init__.py": "",
    "python/eager/context.py": (
        "class Context:\n    _context_handle = _seed = None\n    __slots__ = ('_config',)\n"
        "_context = Context()\ndef context():\n    return _context\n"
    ),
    "core/__init__.py": "",
    "core/protobuf/__init__.py": "",
    "core/protobuf/config_pb2.py": (
        "from dataclasses import dataclass\n"
        "@dataclass\nclass GPUOptions:\n    per_process_gpu_memory_fraction: float\n"
        "@dataclass\nclass ConfigProto:\n    gpu_options: GPUOptions\n"
    ),
}


@pytest.mark.parametrize("option", ["", pytest.param("--fresh", marks=pytest.mark.thorough)])
def test_libraries_have_their_limit_before_the_cell_uses_them(
    notebook: Kernel, gateway: GatewayClient, tmp_path: Path, option: str
) -> None:
    """Loaded before the cell, or imported by it: in a fresh process that is all of them."""
    pytest.importorskip("torch")
    pytest.importorskip("jaxlib")
    for name, text in _TENSORFLOW.items():
        (file := tmp_path / "tensorflow" / name).parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    shown = notebook.run(f"%%gpu_train --gpus 0.25 {option}\n{_LIMITS.replace('{folder!r}', repr(str(tmp_path)))}", 120)
    assert shown.reply["status"] == "ok", shown.traceback
    limits = {"variable": "0.2500", "torch": [0.25], "jax": 0.25, "tensorflow": 0.25}
    assert notebook.value("limits") == repr(limits)
    assert "does not limit its memory" not in shown.plain()[-1]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--gpus 0.5 --ranks 2", "a part of a GPU is for one rank"),
        ("--gpu-memory 1GiB", "the GPUs do not tell their memory"),
    ],
)
def test_what_cannot_be_a_part_is_refused(notebook: Kernel, line: str, words: str) -> None:
    outputs = notebook.run(f"%%gpu_train {line}\n1", 60)
    assert outputs.reply["status"] == "error"
    assert words in outputs.traceback
