"""Suspending: one contract for the fake and for NVIDIA's program (a stand-in of it), and the probes' words."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from checkpoint_bed import stand_in_program

from jupyter_gpu_release.errors import ConflictError
from jupyter_gpu_release.server_extension.culling.cuda_checkpoint import (
    CheckpointBindings,
    CheckpointProgram,
    Suspender,
    find_suspender,
)


class FakeSuspender(Suspender):
    """Remembers instead of copying; 13 does not use CUDA; with ``folder/full`` there is no room."""

    name = "fake"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def missing(self) -> str:
        return ""

    def suspend(self, pid: int) -> None:
        if pid == 13:
            raise ConflictError("13 does not use CUDA")
        (self._folder / str(pid)).touch()

    def restore(self, pid: int) -> None:
        if (self._folder / str(pid)).exists() and (self._folder / "full").exists():
            raise ConflictError("no room")
        (self._folder / str(pid)).unlink(missing_ok=True)


@pytest.fixture(params=["fake", "program"])
def suspender(request: pytest.FixtureRequest, tmp_path: Path) -> Suspender:
    if request.param == "fake":
        return FakeSuspender(tmp_path)
    return CheckpointProgram(str(stand_in_program(tmp_path)))


def test_there_and_back(suspender: Suspender, tmp_path: Path) -> None:
    assert suspender.missing() == ""
    suspender.suspend(7)
    suspender.suspend(7)  # once more changes nothing
    assert (tmp_path / "7").exists()
    suspender.restore(7)
    suspender.restore(7)
    assert not (tmp_path / "7").exists()


def test_refusals_are_ours_and_leave_things_as_they_were(suspender: Suspender, tmp_path: Path) -> None:
    with pytest.raises(ConflictError):
        suspender.suspend(13)
    assert not (tmp_path / "13").exists()
    suspender.suspend(7)
    (tmp_path / "full").touch()
    with pytest.raises(ConflictError):
        suspender.restore(7)
    (tmp_path / "full").unlink()
    suspender.restore(7)
    assert not (tmp_path / "7").exists()


def test_the_first_that_works_is_taken(suspender: Suspender) -> None:
    assert find_suspender([CheckpointProgram("no-such-program"), suspender]) == (suspender, "")


def test_why_there_is_none(tmp_path: Path) -> None:
    other = tmp_path / "cuda-checkpoint"
    other.write_text("#!/bin/sh\necho something else\n")
    other.chmod(0o700)
    found, why = find_suspender([CheckpointProgram("no-such-program"), CheckpointProgram(str(other))])
    assert found is None
    assert why.startswith("not available because the program no-such-program is not on the PATH, and ")
    assert "something else than NVIDIA's" in why


def test_the_real_probe_of_this_machine_has_a_reason_or_works() -> None:
    reason = CheckpointBindings().missing()
    assert reason or os.path.exists("/dev/nvidiactl")
