"""A fake libnvidia-ml.so.1 under the real pynvml, and the file that says what it shows."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SOURCE = Path(__file__).parent / "fake_nvml.c"


def build_library(folder: Path) -> Path:
    """Compile it; the folder belongs on ``LD_LIBRARY_PATH``."""
    target = folder / "libnvidia-ml.so.1"
    command = ["gcc", "-shared", "-fPIC", "-O2", "-Wl,-soname,libnvidia-ml.so.1", "-o", str(target), str(SOURCE)]
    subprocess.run(command, check=True)
    return folder


class FakeGpus:
    """GPUs of 80 GB whose state a test changes while servers look at them."""

    def __init__(self, library: Path, folder: Path, gpus: int = 2) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / "nvml-state"
        #: stands for /dev/nvidia0: who has it open uses a GPU (process ids are not to be trusted in containers)
        self.device = folder / "dev-nvidia0"
        self.device.touch()
        self.environment = {"LD_LIBRARY_PATH": str(library), "FAKE_NVML": str(self.file)}
        self.gpus = [f"gpu H100 GPU-{index} 80000 {{used}} 0 40 70000" for index in range(gpus)]
        self._held: dict[int, str] = {}
        self._used: dict[int, int] = {}
        self.show()

    def hold(self, pid: int, used: int, share: int) -> None:
        """Show a process on GPU 0, besides those that hold something already."""
        self._held[pid], self._used[pid] = f"process 0 {pid} {used} {share}", used
        self.show(*self._held.values(), used=sum(self._used.values()))

    def let_go(self, *pids: int) -> None:
        """Show them no longer (none named: nobody)."""
        for pid in pids or tuple(self._held):
            self._held.pop(pid, None)
            self._used.pop(pid, None)
        self.show(*self._held.values(), used=sum(self._used.values()))

    def show(self, *lines: str, used: int = 0) -> None:
        """Show these lines (processes, lost GPUs, errors) besides the GPUs; seen whole or not at all."""
        text = "\n".join([*(gpu.format(used=used) for gpu in self.gpus), *lines]) + "\n"
        part = self.file.with_suffix(".part")
        part.write_text(text, errors="surrogateescape")  # a name may have broken bytes
        os.replace(part, self.file)

    @property
    def open_device(self) -> str:
        """What a kernel runs to look like a process that uses a GPU."""
        return f"_device = open({str(self.device)!r})"
