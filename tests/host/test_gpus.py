"""All that the server samples, through the real pynvml over the fake library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from nvml_bed import FakeGpus, build_library

_PROGRAM = """
import json, msgspec, os, sys
from jupyter_gpu_release.host.gpus import Nvml
nvml = Nvml()
for line in sys.stdin:
    print(json.dumps(msgspec.to_builtins(nvml.read())), flush=True)
"""


class Reader:
    """A process with the fake library; each :meth:`read` looks anew with the same Nvml."""

    def __init__(self, gpus: FakeGpus) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            env={**os.environ, **gpus.environment},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def read(self) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def gpus(library: Path, tmp_path: Path) -> FakeGpus:
    return FakeGpus(library, tmp_path)


@pytest.fixture
def reader(gpus: FakeGpus) -> Any:
    reader = Reader(gpus)
    yield reader
    reader.process.communicate()


def test_everything_that_is_told(gpus: FakeGpus, reader: Reader) -> None:
    gpus.show("process 0 4711 900 30", "process 0 4712 50 0", used=1000)
    reading = reader.read()
    assert reading["problem"] == ""
    first, second = reading["gpus"]
    assert (first["name"], first["uuid"], first["memory_bytes"], first["used_bytes"]) == ("H100", "GPU-0", 80000, 1000)
    assert (first["utilization"], first["temperature_c"], first["power_w"]) == (0.0, 40.0, 70.0)
    assert [(p["pid"], p["used_bytes"], p["utilization"]) for p in first["processes"]] == [
        (4711, 900, 0.3),
        (4712, 50, 0.0),
    ]
    assert second["processes"] == []


def test_what_is_not_told_is_none(gpus: FakeGpus, reader: Reader) -> None:
    gpus.gpus = ["gpu T4 GPU-0 1000 10 -1"]
    gpus.show("process 0 4711 -1")
    (gpu,) = reader.read()["gpus"]
    assert (gpu["utilization"], gpu["temperature_c"], gpu["power_w"]) == (None, None, None)
    assert gpu["processes"] == [{"pid": 4711, "used_bytes": None, "utilization": None, "instance": None}]


def test_slices_of_a_gpu(gpus: FakeGpus, reader: Reader) -> None:
    gpus.show("mig 0 3 MIG-a 10000 500", "mig 0 5 MIG-b 20000 0", "process 0 4711 500 -1 3")
    first, second = reader.read()["gpus"]
    assert [(s["index"], s["instance"], s["uuid"], s["used_bytes"]) for s in first["slices"]] == [
        (0, 3, "MIG-a", 500),
        (1, 5, "MIG-b", 0),
    ]
    assert first["slices"][0]["name"].endswith(" MIG")
    assert first["utilization"] is None
    assert first["processes"][0]["instance"] == 3
    assert second["slices"] == []


def test_a_lost_gpu_does_not_hide_the_other(gpus: FakeGpus, reader: Reader) -> None:
    gpus.show("process 0 1 10", "process 1 2 10")
    assert [len(gpu["processes"]) for gpu in reader.read()["gpus"]] == [1, 1]
    gpus.show("process 0 1 10", "process 1 2 10", "lost 0")
    lost, good = reader.read()["gpus"]
    assert lost["problem"]
    assert lost["processes"] == []
    assert (good["problem"], len(good["processes"])) == ("", 1)


def test_a_name_with_broken_bytes_is_shown_as_far_as_it_goes(gpus: FakeGpus, reader: Reader) -> None:
    gpus.gpus[0] = gpus.gpus[0].replace("H100", "H\udcff100")
    gpus.show()
    odd, other = reader.read()["gpus"]
    assert (odd["name"], odd["problem"], other["name"]) == ("H\ufffd100", "", "H100")


def test_a_reloaded_driver_is_found_again(gpus: FakeGpus, reader: Reader) -> None:
    assert len(reader.read()["gpus"]) == 2
    gpus.show("error 9")
    gone = reader.read()
    assert (gone["gpus"], bool(gone["problem"])) == ([], True)
    gpus.show()
    back = reader.read()
    assert (len(back["gpus"]), back["problem"]) == (2, "")


_DRIVER = """
from jupyter_gpu_release.host.gpu_reader import GpuReader
from jupyter_gpu_release.host.gpus import Nvml
reader = GpuReader(Nvml())
reader.ask().result(60)
print(reader.driver, reader.driver_cuda)
"""


def test_the_driver_and_its_cuda_are_told_with_the_first_reading(gpus: FakeGpus) -> None:
    gpus.show()
    done = subprocess.run(
        [sys.executable, "-c", _DRIVER],
        env={**os.environ, **gpus.environment},
        text=True,
        stdout=subprocess.PIPE,
        check=True,
        timeout=120,
    )
    version, cuda = done.stdout.split()
    assert (bool(version), cuda) == (True, "13.0")
