"""A kernel of a real Jupyter server, driven through its connection file as another front end would."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from queue import Empty
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from nvml_bed import FakeGpus
from server_bed import ServerBed

LIMIT_S = 120.0


class ServerKernel:
    """One kernel. ``holds`` makes it look (to NVML) as if it held device memory."""

    def __init__(self, bed: ServerBed, gpus: FakeGpus | None = None, path: str = "a.ipynb") -> None:
        self.bed, self.gpus = bed, gpus
        self._holder = 0
        self.id = bed.start_kernel(path)
        file = Path(bed.environment["JUPYTER_RUNTIME_DIR"]) / f"kernel-{self.id}.json"
        self.client = BlockingKernelClient(connection_file=str(file))
        self.client.load_connection_file()
        self.client.start_channels()
        self.wait_ready()

    def wait_ready(self) -> None:
        """Wait for its answer on IOPub: what a process says before the socket is connected (anew) is lost.

        ``wait_for_ready`` of the client takes a kernel that starts slowly for dead.
        """
        deadline = time.monotonic() + LIMIT_S
        while not self._is_heard(self.client.kernel_info()):
            assert time.monotonic() < deadline, self.bed.log()

    def _is_heard(self, asked: str) -> bool:
        with suppress(Empty):
            while self.client.get_shell_msg(timeout=2)["parent_header"].get("msg_id") != asked:
                pass
            while self.client.get_iopub_msg(timeout=1)["parent_header"].get("msg_id") != asked:
                pass
            return True
        return False

    def run(self, code: str, limit_s: float = LIMIT_S) -> Any:
        """Run a cell to its end; returns what its last expression is (JSON)."""
        wanted = {"value": "__import__('json').dumps(globals().get('answer'))"}
        reply = self.client.execute_interactive(
            code, timeout=limit_s, user_expressions=wanted, output_hook=lambda _: None, store_history=False
        )["content"]
        assert reply["status"] == "ok", reply
        return json.loads(eval(reply["user_expressions"]["value"]["data"]["text/plain"]))

    def holds(self, used: int = 1000, share: int = 0) -> int:
        """Have it open the device, and NVML show it on GPU 0; returns its process id."""
        pid = self.opens()
        self.shows(pid, used, share)
        return pid

    def opens(self) -> int:
        """Have it open the device; it holds nothing until it :meth:`shows`."""
        assert self.gpus is not None
        return int(self.run(f"{self.gpus.open_device}\nimport os; answer = os.getpid()"))

    def shows(self, pid: int, used: int = 1000, share: int = 0) -> None:
        """Have NVML show it on GPU 0."""
        assert self.gpus is not None
        self.gpus.hold(pid, used, share)
        self._holder = pid

    def begin(self, code: str) -> str:
        """Send a cell and do not wait."""
        return str(self.client.execute(code, store_history=False))

    def row(self) -> dict[str, Any]:
        """The extension's row of it."""
        row = self.bed.kernel(self.id)
        assert row is not None, self.bed.get("kernels")
        return row

    @property
    def alive(self) -> bool:
        return self.bed.http.get(f"/api/kernels/{self.id}").status_code == 200

    def close(self) -> None:
        self.client.stop_channels()

    def end(self) -> None:
        """Leave nothing on a server that others use, too."""
        self.close()
        self.bed.http.delete(f"/api/kernels/{self.id}")
        if self.gpus is not None:
            self.gpus.let_go(self._holder)


def audit(bed: ServerBed) -> list[dict[str, Any]]:
    """The audit log of a server whose ``audit_log`` is in its folder."""
    path = bed.folder / "audit.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def nothing_before(deadline_s: float, bed: ServerBed, words: set[str], *subjects: str) -> None:
    """None of these actions may come (to ``subjects``, or any) earlier than that (monotonic).

    A look that took longer tells nothing.
    """
    while True:
        done = _done(bed, words, subjects)
        if time.monotonic() >= deadline_s:
            return
        assert not done, done
        time.sleep(0.1)


def never_for(seconds: float, bed: ServerBed, words: set[str], *subjects: str) -> None:
    """Look at the audit log for some limits' length: none of these actions may come (to ``subjects``, or any)."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done = _done(bed, words, subjects)
        assert not done, done
        time.sleep(0.1)


def _done(bed: ServerBed, words: set[str], subjects: tuple[str, ...]) -> list[dict[str, Any]]:
    found = [entry for entry in audit(bed) if not subjects or entry.get("subject") in subjects]
    return [entry for entry in found if entry.get("action") in words]
