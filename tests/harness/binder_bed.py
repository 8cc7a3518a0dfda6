"""A hosted session as ``binder/`` describes it: the repository is the home of a user who has nothing else.

`postBuild` installs the package into an environment that has what `environment.yml` and the package's dependencies
bring (:mod:`fresh_clone`).
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
from fresh_clone import copy_repository, make_environment
from ports import free_port

LIMIT_S = 180.0
_MAPPING = re.compile(r"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \d+ *(.*)$", re.MULTILINE)
_FIELD = re.compile(r"^(\w+): +(\d+) kB$", re.MULTILINE)
#: a peak that is higher by less is none: to look at all mappings takes a while
_NEWS = 1.01
#: of the tests' own environment: where packages are got from, and what finds processes that were left
_PASSED_ON = ("PIP_", "SSL_", "REQUESTS_CA", "JUPYTER_GPU_TEST", "JUPYTER_GPU_RUNTIME")


class BinderBed:
    """Home, environment and, once started, the server of one session."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        copy_repository(self.home)
        make_environment(folder / "env")
        self.token, self.url = secrets.token_hex(16), f"http://127.0.0.1:{free_port()}"
        self._log_file = folder / "session.log"
        runtime = self.home / ".local" / "share" / "jupyter" / "runtime"
        self.environment = {
            **{name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)},
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "JUPYTER_RUNTIME_DIR": str(runtime),
            "PATH": f"{folder / 'env' / 'bin'}:/usr/local/bin:/usr/bin:/bin",
        }
        self._server: subprocess.Popen[bytes] | None = None
        self.http = httpx.Client(
            base_url=self.url, headers={"Authorization": f"token {self.token}"}, trust_env=False, timeout=LIMIT_S
        )

    def run(self, *command: str | Path) -> str:
        """Run a command in the session, to its end; returns what it said."""
        done = subprocess.run(
            command,
            cwd=self.home,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=400,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    def start(self) -> None:
        """JupyterLab, by ``binder/start``, as the hub's command line has it."""
        port = self.url.rpartition(":")[2]
        command = ["jupyter-lab", "--ip=127.0.0.1", f"--port={port}", f"--IdentityProvider.token={self.token}"]
        command += ["--no-browser", "--allow-root"]
        with self._log_file.open("wb") as log:
            self._server = subprocess.Popen(
                [self.home / "binder" / "start", *command], cwd=self.home, env=self.environment, stdout=log, stderr=log
            )
        self.wait_for("/api/status", lambda answer: True)

    def wait_for(self, path: str, is_right: Any) -> Any:
        """Ask the server until it gives the right answer."""
        deadline = time.monotonic() + LIMIT_S
        while True:
            with contextlib.suppress(httpx.TransportError):
                answer = self.http.get(path)
                if answer.status_code == 200 and is_right(answer):
                    return answer
            assert self._server is not None
            assert self._server.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.1)

    def start_kernel(self, path: str) -> str:
        """Open a notebook; returns its kernel's id."""
        wanted = {"path": path, "name": "", "type": "notebook", "kernel": {"name": "python3"}}
        answer = self.http.post("/api/sessions", json=wanted)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["kernel"]["id"])

    def log(self) -> str:
        """The end of what server and kernels said."""
        return self._log_file.read_text(errors="replace")[-4000:]

    def stop(self) -> None:
        """End all of it."""
        with contextlib.suppress(subprocess.TimeoutExpired, AssertionError):
            self.run("jupyter", "gpu", "stop", "--yes")
        if self._server is not None:
            self._server.terminate()
            try:
                self._server.wait(60)
            except subprocess.TimeoutExpired:
                self._server.kill()
                self._server.wait()
        self.http.close()

    def memory_mib(self) -> dict[str, float]:
        """Each process of the session, by id and name, with its proportional share (PSS) of what is not of a file."""
        found = {}
        for process in self._processes():
            with contextlib.suppress(OSError):
                name = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                share = _fields_kib((process / "smaps_rollup").read_text())
                found[f"{process.name} {name}"] = (share["Pss_Anon"] + share["Pss_Shmem"]) / 1024
        return found

    def mapped_files_mib(self) -> float:
        """The files that they have mapped, each once: other tests map the same libraries, so a PSS says less."""
        most: dict[str, int] = {}
        for process in self._processes():
            with contextlib.suppress(OSError):
                _, *mappings = _MAPPING.split((process / "smaps").read_text())
                for path, fields in zip(mappings[::2], mappings[1::2], strict=True):
                    if path.startswith("/") and not path.startswith(("/dev/", "/memfd:")):
                        kib = _fields_kib(fields)
                        most[path] = max(most.get(path, 0), kib["Rss"] - kib["Anonymous"])
        return sum(most.values()) / 1024

    def _processes(self) -> Iterator[Path]:
        mark = b"HOME=" + os.fsencode(self.home)
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (process / "environ").read_bytes().split(b"\0"):
                    yield process


def _fields_kib(text: str) -> dict[str, int]:
    return {name: int(kib) for name, kib in _FIELD.findall(text)}


class PeakMemory:
    """Watches a session while its block runs: the moment at which all of it together had most."""

    def __init__(self, bed: BinderBed) -> None:
        self._bed = bed
        self.processes: dict[str, float] = {}
        self.files_mib = 0.0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    @property
    def mib(self) -> float:
        """All of it at that moment."""
        return sum(self.processes.values()) + self.files_mib

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            now = self._bed.memory_mib()
            if sum(now.values()) > _NEWS * sum(self.processes.values()):
                self.processes, self.files_mib = now, max(self.files_mib, self._bed.mapped_files_mib())
            if self._is_over.wait(1.0):
                return
