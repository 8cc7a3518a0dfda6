"""Libraries that ask for something while they are imported are seen, in whatever way they ask."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path

import pytest

from jupyter_gpu_release.node.import_witness import THREADS, ImportWitness

_ASKS = {
    "loads a driver": "import ctypes\ntry:\n    ctypes.CDLL('libnvidia-ml.so.1')\nexcept OSError:\n    pass",
    "maps a driver": (
        "import mmap, os\nf = open(os.path.dirname(__file__) + '/libcuda.so.1', 'r+b')\nm = mmap.mmap(f.fileno(), 0)"
    ),
    "opens a device": "import os\nf = open(os.path.dirname(__file__) + '/dev/nvidia0')",
    "runs the driver's program": (
        "import subprocess\ntry:\n    subprocess.run(['nvidia-smi', '-L'])\nexcept OSError:\n    pass"
    ),
    "asks which GPUs it sees": "import os\nvisible = os.environ.get('CUDA_VISIBLE_DEVICES')",
    "asks if it sees some": "import os\nvisible = 'CUDA_VISIBLE_DEVICES' in os.environ",
}
_NAMED = {
    "loads a driver": "libnvidia-ml.so.1",
    "maps a driver": "libcuda.so.1",
    "opens a device": "nvidia0",
    "runs the driver's program": "nvidia-smi",
}
_FINE = (
    "import os, subprocess\ncopied = os.environ.copy()\nsubprocess.run(['true'], env=copied, check=True)\n"
    "open(__file__).close()"
)


def _witnessed(folder: Path, sources: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    """In a child: an import cannot be undone."""
    for name, source in sources.items():
        (folder / f"{name}.py").write_text(source)
    (folder / "libcuda.so.1").write_bytes(b"\0" * 4096)
    (folder / "dev").mkdir(exist_ok=True)
    (folder / "dev" / "nvidia0").touch()
    read, write = os.pipe()
    child = os.fork()
    if not child:
        sys.path.insert(0, str(folder))
        os.environ["CUDA_VISIBLE_DEVICES"] = "0"
        with ImportWitness() as witness:
            for name in sources:
                importlib.import_module(name)
                witness.note_import(name)
        os.write(write, json.dumps([witness.unfit, witness.ask_for_rank]).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        text = answer.read()
    assert os.waitpid(child, 0)[1] == 0
    unfit, ask_for_rank = json.loads(text)
    return unfit, ask_for_rank


@pytest.mark.parametrize("what", _ASKS)
def test_who_asks_for_a_gpu_is_seen_and_who_comes_next_is_not_blamed(what: str, tmp_path: Path) -> None:
    unfit, ask_for_rank = _witnessed(tmp_path, {"fine_before": _FINE, "asks_here": _ASKS[what], "fine_after": _FINE})
    assert list(unfit) == ["asks_here"]
    assert _NAMED.get(what, "CUDA_VISIBLE_DEVICES") in unfit["asks_here"]
    assert not ask_for_rank


def test_who_starts_threads_is_seen_and_who_minds_forks_is_not_blamed(tmp_path: Path) -> None:
    starts = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()"
    stops = (
        "import os, threading\nends = threading.Event()\nthread = threading.Thread(target=ends.wait, daemon=True)\n"
        "thread.start()\nos.register_at_fork(before=lambda: (ends.set(), thread.join()))"
    )
    unfit, _ = _witnessed(tmp_path, {"minds_forks": stops, "starts_one": starts})
    assert unfit == {"starts_one": THREADS}


def test_who_asks_for_its_rank_is_named_and_nothing_stays_changed(tmp_path: Path) -> None:
    before = (os._Environ.__getitem__, importlib.import_module("ctypes")._dlopen)
    asks = "import os\nrank = int(os.environ.get('LOCAL_RANK', 0))"
    assert _witnessed(tmp_path, {"of_a_gang": asks}) == ({}, ["of_a_gang"])
    with ImportWitness():
        assert os._Environ.__getitem__ is not before[0]
    assert before == (os._Environ.__getitem__, importlib.import_module("ctypes")._dlopen)
