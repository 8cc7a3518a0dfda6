"""A real ``jupyter server`` with the extension, in a process and folders of its own."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import live_settings
from ports import free_port

CONFIG = Path(__file__).parents[2] / "jupyter-config" / "server-config" / "jupyter_gpu_release.json"
API = "/jupyter-gpu-release/api"
LIMIT_S = 120.0


class ServerBed:
    """``config`` is traitlets configuration by class; ``environment`` is added to the server's."""

    def __init__(
        self, folder: Path, config: dict[str, Any] | None = None, environment: dict[str, str] | None = None
    ) -> None:
        self.folder = folder
        self.token = secrets.token_hex(16)
        self.url = f"http://127.0.0.1:{free_port()}"
        self.log_file = folder / "server.log"
        root = folder / "notebooks"
        for sub in ("notebooks", "config", "data", "runtime", "ipython"):
            (folder / sub).mkdir(parents=True, exist_ok=True)
        wanted = {
            "ServerApp": {
                "port": int(self.url.rsplit(":", 1)[1]),
                "port_retries": 0,
                "open_browser": False,
                "allow_root": True,
                "root_dir": str(root),
                "log_level": "INFO",
                "ip": "127.0.0.1",
                # what the installed data file does (test_enabled.py installs a wheel's)
                "jpserver_extensions": {"jupyter_gpu_release": True, "live_settings": True, "jupyterlab": False},
            },
            "IdentityProvider": {"token": self.token},
        }
        for name, traits in (config or {}).items():
            wanted.setdefault(name, {}).update(traits)
        (folder / "config" / "jupyter_server_config.json").write_text(json.dumps(wanted))
        self.environment = {
            **os.environ,
            "JUPYTER_CONFIG_DIR": str(folder / "config"),
            "JUPYTER_DATA_DIR": str(folder / "data"),
            "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
            "IPYTHONDIR": str(folder / "ipython"),
            "JUPYTER_GPU_HOME": str(folder / "gpu-home"),
            **(environment or {}),
            "PYTHONPATH": ":".join(filter(None, [str(folder), (environment or {}).get("PYTHONPATH")])),
        }
        shutil.copy(live_settings.__file__, folder)
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jupyter_server"],
                cwd=root,
                env=self.environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
        self.http = httpx.Client(
            base_url=self.url, headers={"Authorization": f"token {self.token}"}, trust_env=False, timeout=LIMIT_S
        )
        try:
            self._wait_ready()
        except BaseException:  # nobody else knows it yet
            self.stop()
            raise

    def _wait_ready(self) -> None:
        deadline = time.monotonic() + LIMIT_S
        while True:
            assert self.process.poll() is None, self.log()
            try:
                if self.http.get("/api").status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.05)

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def get(self, path: str, **parameters: Any) -> Any:
        """A document of the extension; fails for anything but 200."""
        answer = self.http.get(f"{API}/{path}", params=parameters)
        assert answer.status_code == 200, (answer.status_code, answer.text, self.log()[-3000:])
        return answer.json()

    def post(self, path: str, body: Any = None) -> httpx.Response:
        return self.http.post(f"{API}/{path}", json=body if body is not None else {})

    def set(self, **settings: dict[str, Any]) -> None:
        """Change settings of the running server: ``set(GpuCuller={"cull_idle_timeout": 3})``."""
        answer = self.http.put(live_settings.PATH, json=settings)
        assert answer.status_code == 204, (answer.status_code, answer.text, self.log()[-3000:])

    def start_kernel(self, path: str = "a.ipynb", name: str = "python3") -> str:
        """A session with a kernel of this kernelspec; returns the kernel's id."""
        body = {"path": path, "name": "", "type": "notebook", "kernel": {"name": name}}
        answer = self.http.post("/api/sessions", json=body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["kernel"]["id"])

    def kernel(self, kernel: str) -> dict[str, Any] | None:
        """The extension's row of a kernel."""
        rows = self.get("kernels")["kernels"]
        return next((row for row in rows if row["id"] == kernel), None)

    def stop(self) -> None:
        """End the server as ``jupyter server stop`` does."""
        self.http.close()
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
