"""Moving a process's GPU memory into the host's and back (CUDA checkpoint), where driver and platform can."""

from __future__ import annotations

import importlib
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from ...errors import ConflictError, GpuReleaseError

_LIMIT_S = 300.0


class Suspender(ABC):
    """Suspends processes and restores them.

    A process that is suspended goes on running; its CUDA calls wait until it is restored.

    Called by :class:`.Actor` in a thread, since both verbs block while gigabytes are copied.
    """

    name: str

    @abstractmethod
    def missing(self) -> str:
        """The reason why it cannot be used here, in words; empty when it can. Asked once, at the start."""

    @abstractmethod
    def suspend(self, pid: int) -> None:
        """Free the device memory of a process. Raises :class:`GpuReleaseError`; then the process holds what it held."""

    @abstractmethod
    def restore(self, pid: int) -> None:
        """Give it back. Raises :class:`GpuReleaseError` when the device has no room: worth another try later."""


class CheckpointProgram(Suspender):
    """NVIDIA's ``cuda-checkpoint`` (github.com/NVIDIA/cuda-checkpoint), driver 550 or newer."""

    name = "cuda-checkpoint"

    def __init__(self, program: str = "cuda-checkpoint") -> None:
        self._program = program

    def missing(self) -> str:
        """As :class:`Suspender` says."""
        path = shutil.which(self._program)
        if path is None:
            return f"the program {self._program} is not on the PATH"
        try:
            done = subprocess.run([path, "--help"], capture_output=True, text=True, timeout=20, check=False)
        except (OSError, subprocess.SubprocessError) as error:
            return f"{path} does not run: {error}"
        if "--toggle" not in done.stdout + done.stderr:
            return f"{path} is something else than NVIDIA's cuda-checkpoint"
        return ""

    def suspend(self, pid: int) -> None:
        """As :class:`Suspender` says."""
        if self._state(pid) == "running":
            self._ask("--toggle", "--pid", str(pid))

    def restore(self, pid: int) -> None:
        """As :class:`Suspender` says."""
        if self._state(pid) != "running":
            self._ask("--toggle", "--pid", str(pid))

    def _state(self, pid: int) -> str:
        return self._ask("--get-state", "--pid", str(pid)).strip().lower()

    def _ask(self, *arguments: str) -> str:
        try:
            done = subprocess.run(
                [self._program, *arguments], capture_output=True, text=True, timeout=_LIMIT_S, check=False
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise ConflictError(f"{self._program} {' '.join(arguments)}: {error}") from error
        if done.returncode:
            said = (done.stderr or done.stdout).strip()[-300:]
            raise ConflictError(f"{self._program} {' '.join(arguments)} ended with {done.returncode}: {said}")
        return done.stdout


class CheckpointBindings(Suspender):
    """``cuCheckpointProcess…`` of the driver through ``cuda-bindings`` (driver 570 or newer)."""

    name = "cuda-bindings"

    def __init__(self) -> None:
        self._driver: Any = None

    def missing(self) -> str:
        """As :class:`Suspender` says."""
        try:
            driver = importlib.import_module("cuda.bindings.driver")
            (status,) = driver.cuInit(0)
        except ImportError:
            return "the package cuda-bindings is not installed"
        except (OSError, RuntimeError) as error:  # no driver's library, or a damaged one
            return f"the driver does not start: {error}"
        if not hasattr(driver, "cuCheckpointProcessCheckpoint"):
            return "this cuda-bindings is older than the checkpoint calls (12.8)"
        if int(status) != 0:
            return f"the driver does not start (cuInit: {status})"
        self._driver = driver
        return ""

    def suspend(self, pid: int) -> None:
        """As :class:`Suspender` says."""
        driver = self._driver
        arguments = driver.CUcheckpointLockArgs()
        arguments.timeoutMs = int(_LIMIT_S * 1000)
        self._check("lock", driver.cuCheckpointProcessLock(pid, arguments))
        try:
            self._check("checkpoint", driver.cuCheckpointProcessCheckpoint(pid, driver.CUcheckpointCheckpointArgs()))
        except GpuReleaseError:
            driver.cuCheckpointProcessUnlock(pid, driver.CUcheckpointUnlockArgs())
            raise

    def restore(self, pid: int) -> None:
        """As :class:`Suspender` says."""
        driver = self._driver
        self._check("restore", driver.cuCheckpointProcessRestore(pid, driver.CUcheckpointRestoreArgs()))
        self._check("unlock", driver.cuCheckpointProcessUnlock(pid, driver.CUcheckpointUnlockArgs()))

    @staticmethod
    def _check(what: str, answer: tuple[Any, ...]) -> None:
        if int(answer[0]) != 0:
            raise ConflictError(f"CUDA checkpoint: {what} was refused ({answer[0]})")


def find_suspender(candidates: Sequence[Suspender] | None = None) -> tuple[Suspender | None, str]:
    """The first that works here, or None and "not available because …"."""
    reasons = []
    for candidate in candidates or (CheckpointBindings(), CheckpointProgram()):
        reason = candidate.missing()
        if not reason:
            return candidate, ""
        reasons.append(reason)
    return None, "not available because " + ", and ".join(reasons)
