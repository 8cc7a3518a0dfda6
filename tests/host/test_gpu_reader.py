"""The thread that asks NVML outlives whatever a question comes to."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from jupyter_gpu_release.host.gpu_reader import SILENT_S, GpuReader
from jupyter_gpu_release.protocol.node import GpuInfo


class _Nvml:
    """A driver library whose binding fails in a way of its own."""

    problem = ""
    is_broken = True

    def _fail(self) -> None:
        if self.is_broken:
            raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")

    def unread(self) -> list[GpuInfo]:
        return [GpuInfo("0", is_unread=True)]

    def driver_version(self) -> str:
        return "1"

    def driver_cuda(self) -> str:
        return "13.0"

    def gpus(self) -> list[GpuInfo]:
        self._fail()
        return [GpuInfo("0", name="H100")]

    def memory_by_pid(self, _name: str) -> dict[int, int]:
        self._fail()
        return {7: 1}


def test_a_failure_of_any_kind_is_one_questions_answer() -> None:
    nvml: Any = _Nvml()
    reader = GpuReader(nvml)
    (broken,) = reader.ask().result(60)
    assert "it cannot be read: UnicodeDecodeError" in broken.trouble
    with pytest.raises(UnicodeDecodeError):
        reader.ask_users(["0"]).result(60)
    nvml.is_broken = False
    assert reader.ask_users(["0"]).result(60) == {7}
    (well,) = reader.ask().result(60)
    assert (well.name, well.trouble, reader.problem, reader.silent_s) == ("H100", "", "", 0.0)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_ended_is_made_again() -> None:
    nvml: Any = _Nvml()
    nvml.is_broken = False
    reader = GpuReader(nvml)
    nvml.driver_version = lambda: sys.exit("a library that ends its caller")
    reader.ask()
    assert reader._thread is not None
    reader._thread.join(60)
    del nvml.driver_version
    (well,) = reader.ask().result(60)
    assert (well.name, reader.silent_s) == ("H100", 0.0)


def test_a_driver_that_owes_an_answer_for_long_is_in_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml: Any = _Nvml()
    reader = GpuReader(nvml)
    monkeypatch.setattr(GpuReader, "silent_s", SILENT_S - 1)
    assert reader.current() == reader.last
    monkeypatch.setattr(GpuReader, "silent_s", SILENT_S)
    assert [(gpu.index, gpu.trouble) for gpu in reader.current()] == [("0", "its driver does not answer")]
