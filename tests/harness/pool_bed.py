"""A pool of a real Slurm's nodes, and functions that are launched on it: ``PoolBed``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from slurm_bed import SlurmBed

from jupyter_gpu_release.client.discovery import target_of
from jupyter_gpu_release.client.home import HomePaths
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.local_cluster.start import running_connection, stop_embedded
from jupyter_gpu_release.protocol.rest import NodeRow, StatusDocument

_LAUNCH = """
import json, sys
from jupyter_gpu_release import checkpoint, launch
from jupyter_gpu_release.errors import RunLostError
def look(until):
    import os, psutil, time
    from pathlib import Path
    job = next(filter(None, (above.environ().get("SLURM_JOB_ID") for above in psutil.Process().parents())))
    held = [Path(f"{until}.{job}.{gpu}") for gpu in os.environ["JUPYTER_GPU_IDS"].split(",") if until]
    for file in held:
        file.touch(exist_ok=False)  # fails where a GPU is given twice
    if until:
        with open(until + ".jobs", "a") as file:
            print(job, file=file)
    while until and not Path(until).exists():
        checkpoint({})
        time.sleep(0.05)
    for file in held:
        file.unlink()
    return [os.environ.get("JUPYTER_GPU_IDS"), job, os.environ.get("CUDA_VISIBLE_DEVICES")]
def end_of(run):
    try:
        return run.result(timeout=400)
    except RunLostError as error:
        return [type(error).__name__]
runs = [launch(look, sys.argv[3], **json.loads(sys.argv[1])) for _ in range(int(sys.argv[2]))]
print(json.dumps([end_of(run) for run in runs]))
"""


class PoolBed:
    """A Slurm, and a cluster that borrows its nodes."""

    def __init__(self, folder: Path, python: str = sys.executable, *, confines: bool = False) -> None:
        """``python``, ``confines``: as :class:`SlurmBed` has them."""
        self.slurm = SlurmBed(python, confines=confines)
        self.home = HomePaths(folder / "home")
        self.file = folder / "pool.yml"
        more = {"SLURM_CONF": str(self.slurm.conf), "JUPYTER_GPU_HOME": str(self.home.root)}
        self.environment = {**os.environ, **more, "JUPYTER_GPU_PRELOAD": "numpy"}
        self._launched: list[subprocess.Popen[str]] = []

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """``jupyter gpu …``."""
        command = [sys.executable, "-m", "jupyter_gpu_release.cli", *words]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=300, check=False)

    def start(self, text: str) -> subprocess.CompletedProcess[str]:
        """``start --slurm`` with a file."""
        self.file.write_text(text)
        return self.command("start", "--slurm", str(self.file))

    def launch(self, gpus: int, *, times: int = 1, until: Path | str = "", **options: object) -> subprocess.Popen[str]:
        """Launch functions that last until a file is there; they print the GPUs that they had."""
        arguments = [json.dumps({"gpus": gpus, **options}), str(times), str(until)]
        command = [sys.executable, "-c", _LAUNCH, *arguments]
        process = subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, text=True)
        self._launched.append(process)
        return process

    def end_launched(self) -> None:
        """End what a failed test has left."""
        for process in self._launched:
            with process:
                process.kill()

    def stop(self) -> None:
        """End everything."""
        self.end_launched()
        os.environ["SLURM_CONF"] = str(self.slurm.conf)
        try:
            stop_embedded(self.home)
        finally:
            del os.environ["SLURM_CONF"]
            self.slurm.stop()

    def waits(self) -> list[str]:
        """Why those that wait do so."""
        return [row.reason for row in self._status().queue]

    def told(self) -> list[str]:
        """Words to users of runs that run."""
        return [row.reason for row in self._status().runs if row.reason and row.state == "running"]

    def troubles(self) -> int:
        """How often the gateway has noted that Slurm refused, or gave no answer."""
        return (self.home.log / "gateway.log").read_text().count(": Slurm: ")

    def nodes(self) -> list[NodeRow]:
        """The nodes as the gateway shows them."""
        return self._status().nodes

    def _status(self) -> StatusDocument:
        connection = running_connection(self.home)
        assert connection is not None
        with GatewayClient.for_target(target_of(connection), timeout_s=60) as gateway:
            return gateway.status()

    def set_node(self, name: str, state: str) -> None:
        """As an admin does."""
        self.slurm.ask("scontrol", "update", f"NodeName={name}", f"State={state}", "Reason=test")

    def says(self, words: str) -> bool:
        """Tell if somebody waits with these words."""
        return any(words in reason for reason in self.waits())


def answer(process: subprocess.Popen[str]) -> list[list[object]]:
    """The lines that a launch has printed."""
    out, _ = process.communicate(timeout=400)
    assert process.returncode == 0
    return list(json.loads(out.splitlines()[-1]))


def jobs_of(until: Path) -> list[str]:
    """The jobs on whose nodes a launched function has begun, one after the other."""
    path = Path(f"{until}.jobs")
    return path.read_text().split() if path.exists() else []
