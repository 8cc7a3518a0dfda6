"""The test bed: a cluster of its own (own home, own store) and real kernels, all gone afterwards."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from jupyter_client.manager import start_new_kernel

from jupyter_gpu_release.local_cluster.ray_head import LOOPBACK_ONLY

#: of a run's name: its second
_STAMP = len("20261121-034512")


class Kernel:
    """A real ipykernel with the extension loaded."""

    def __init__(self, folder: Path, *, load: bool = True) -> None:
        self.manager, self.client = start_new_kernel(kernel_name="python3", cwd=str(folder))
        if load:
            self.run("%load_ext jupyter_gpu_release")

    def run(self, code: str, limit_s: float = 180) -> list[dict[str, Any]]:
        """Execute ``code``; returns its IOPub messages; raises with the traceback when the cell failed."""
        messages: list[dict[str, Any]] = []
        reply = self.client.execute_interactive(code, timeout=limit_s, output_hook=messages.append)
        if reply["content"]["status"] != "ok":
            raise RuntimeError("\n".join(reply["content"].get("traceback", [str(reply["content"])])))
        return messages

    def value(self, expression: str) -> Any:
        """The value of a JSON-able expression in the kernel."""
        reply = self.client.execute_interactive(
            "import json", user_expressions={"v": f"json.dumps({expression})"}, timeout=60, output_hook=lambda _: None
        )
        answer = reply["content"]["user_expressions"]["v"]
        if answer["status"] != "ok":
            raise RuntimeError(str(answer))
        return json.loads(eval(answer["data"]["text/plain"]))

    def reply_ms(self, code: str) -> float:
        """Milliseconds from sending a cell to its reply."""
        began = time.perf_counter()
        message = self.client.execute(code)
        reply = self.client.get_shell_msg(timeout=180)
        took = (time.perf_counter() - began) * 1000
        if reply["parent_header"]["msg_id"] != message or reply["content"]["status"] != "ok":
            raise RuntimeError(str(reply["content"]))
        self.run("")  # takes what the cell showed out of the way
        return took

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


class Bed:
    """A running embedded cluster."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.work = folder / "work"
        self.work.mkdir()
        os.environ["JUPYTER_GPU_HOME"] = str(self.home)

    def start(self, *options: str) -> float:
        """Start the cluster with 4 GPUs (simulated where there are none); returns the seconds that it took."""
        began = time.monotonic()
        self.cli("start", *options)
        return time.monotonic() - began

    def connection(self) -> dict[str, Any]:
        """The connection file."""
        document: dict[str, Any] = json.loads((self.home / "connection.json").read_text())
        return document

    def status(self) -> dict[str, Any]:
        """``jupyter gpu status --json``."""
        document: dict[str, Any] = json.loads(self.cli("status", "--json"))
        return document

    def manifests(self, count: int) -> list[dict[str, Any]]:
        """Manifests of the newest runs, once they are released: names of runs of one second are in no order."""
        folders = sorted((Path(self.connection()["store"]) / "runs").iterdir(), key=lambda folder: folder.name)
        since = folders[-count].name[:_STAMP]
        found = [manifest_of(folder) for folder in folders if folder.name[:_STAMP] >= since]
        return sorted(found, key=lambda manifest: float(manifest["submitted_at"]))[-count:]

    def ray_environment(self) -> dict[str, str]:
        """What a Ray driver of its own needs to join this cluster."""
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.home / "ray-token"), **LOOPBACK_ONLY}

    def compete(self, kinds: Sequence[str], count: int) -> dict[str, list[Any]]:
        """What functions of :mod:`benchmarks.competitors` find, one after the other, in a Ray driver of their own."""
        command = [
            sys.executable,
            "-m",
            "benchmarks.competitors",
            ",".join(kinds),
            self.connection()["ray_address"],
            str(count),
        ]
        environment = {**os.environ, **self.ray_environment(), "RAY_TRAIN_V2_ENABLED": "1"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if done.returncode:
            raise RuntimeError(f"{', '.join(kinds)}: {done.stderr[-2000:]}")
        found: dict[str, list[Any]] = json.loads(done.stdout.strip().splitlines()[-1])
        return found

    def stop(self) -> None:
        self.cli("stop", "--yes")

    def cli(self, *arguments: str) -> str:
        """Run the command line; a session of its own: signals that end a benchmark let it end the cluster."""
        command = [sys.executable, "-m", "jupyter_gpu_release.cli", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, start_new_session=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(arguments)}: {done.stdout}{done.stderr}")
        return done.stdout


def manifest_of(folder: Path, limit_s: float = 120.0) -> dict[str, Any]:
    """The manifest of a released run. It is written a moment after the release, so it may not be there yet."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        with suppress(FileNotFoundError):
            document: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
            if document.get("gone_at") and document.get("outcome"):
                return document
        time.sleep(0.05)
    raise TimeoutError(f"{folder / 'manifest.json'} does not say that the lease is gone")


#: the cluster that all share, while there is one
_SHARED: list[Bed] = []


@contextmanager
def shared_bed() -> Iterator[None]:
    """Every :func:`bed` within is the same cluster, but for those of their own: starts would take most of the time."""
    with bed() as made:
        _SHARED.append(made)
        try:
            yield
        finally:
            _SHARED.clear()
            os.environ["JUPYTER_GPU_HOME"] = str(made.home)


@contextmanager
def bed(*options: str, own: bool = False) -> Iterator[Bed]:
    """A started cluster; stopped and removed on every way out. ``own``: never that which all share.

    ``options``: of ``start``, where it is not the shared one.
    """
    if _SHARED and not own:
        os.environ["JUPYTER_GPU_HOME"] = str(_SHARED[0].home)
        yield _SHARED[0]
        return
    made = Bed(Path(tempfile.mkdtemp(prefix="jgr-bench-")))
    try:
        made.start(*options)
        yield made
    finally:
        made.stop()
        shutil.rmtree(made.folder, ignore_errors=True)


@contextmanager
def kernel(folder: Path, *, load: bool = True) -> Iterator[Kernel]:
    """A kernel that is shut down on every way out."""
    made = Kernel(folder, load=load)
    try:
        yield made
    finally:
        made.close()
