"""Hosts with the names of the operators' pages: its commands run there as they are written, ports and addresses too."""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil
import pytest
from doc_blocks import shell_environment
from network_hosts import Network, NetworkHost

from jupyter_gpu_release.client.home import HomePaths

GATEWAY = "gpu.example.org"
_LIMIT_S = 240


class GuideHosts:
    """``head``, ``laptop``, where a user sits, and maybe nodes. All see the store.

    ``gpu.example.org`` is the head's name, or an alias of it: ``head_is_called`` tells.
    """

    def __init__(self, network: Network, folder: Path, head_is_called: str = GATEWAY) -> None:
        self.network, self.folder = network, folder
        self.home = HomePaths(folder / "home")
        self._names = folder / "hosts"
        known = "".join(f"{host.address} {host.name}\n" for host in network.hosts)
        self._names.write_text(f"127.0.0.1 localhost\n{network['head'].address} {GATEWAY}\n{known}")
        network["head"].run("hostname", head_is_called)
        for host in network.hosts:
            self.at(host.name).mkdir()

    def at(self, name: str) -> Path:
        """The folder in which a host's commands run."""
        return self.folder / name

    def prefix(self) -> list[str]:
        """Begins a command that looks names up in the guide's network."""
        return ["unshare", "--mount", "sh", "-c", f'mount --bind "{self._names}" /etc/hosts && exec "$@"', "sh"]

    def environment(self, name: str) -> dict[str, str]:
        """The settings of a host: on the laptop there is no cluster."""
        home = self.home.root if name == "head" else self.folder / "no-cluster-here"
        return {"JUPYTER_GPU_HOME": str(home), "JUPYTER_GPU_PRELOAD": "json", "CUDA_VISIBLE_DEVICES": ""}

    def run(self, name: str, text: str, **settings: str) -> subprocess.CompletedProcess[str]:
        """Run commands of a block on a host; the caller looks at how they ended."""
        return subprocess.run(
            self.network[name].command([*self.prefix(), "bash", "-euo", "pipefail", "-c", text]),
            cwd=self.at(name),
            env=shell_environment(**self.environment(name) | settings),
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            stdin=subprocess.DEVNULL,
        )

    def ok(self, name: str, text: str, **settings: str) -> str:
        """Run commands that must succeed; returns what they say."""
        done = self.run(name, text, **settings)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def stop(self) -> None:
        """End all that runs on the hosts, as power cuts, and remove what they left."""
        connection = self.home.read_connection()
        for host in self.network.hosts:
            host.kill_all()
        if connection is not None:
            shutil.rmtree(connection.runtime, ignore_errors=True)


class Nginx:
    """nginx on a host, with TLS, in front of what ``locations`` of its one server lead to."""

    def __init__(
        self, hosts: GuideHosts, certificate: tuple[str, str], locations: str, until: Callable[..., None]
    ) -> None:
        program = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin")
        if program is None:
            pytest.skip("no nginx: Debian's package nginx-light has it")
        self.folder = hosts.folder / "nginx"
        self.folder.mkdir()
        self.errors = self.folder / "errors"
        settings = self.folder / "nginx.conf"
        settings.write_text(
            _SETTINGS.format(
                folder=self.folder, name=GATEWAY, certificate=certificate[0], key=certificate[1], locations=locations
            )
        )
        command = [program, "-e", str(self.errors), "-p", str(self.folder), "-c", str(settings)]
        self._process = subprocess.Popen(hosts.network["head"].command(command), stdin=subprocess.DEVNULL)
        until(lambda: self._listens(hosts.network["head"]), "nginx to listen")

    def _listens(self, host: NetworkHost) -> bool:
        assert self._process.poll() is None, self.errors.read_text()
        look = host.command(["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/443"])
        return subprocess.run(look, capture_output=True).returncode == 0

    def said(self) -> str:
        """Its errors, such as an upstream that was silent for too long."""
        return self.errors.read_text()

    def stop(self) -> None:
        """End it and its workers."""
        for process in psutil.Process(self._process.pid).children():
            process.send_signal(signal.SIGTERM)
        self._process.terminate()
        self._process.wait(30)


#: it cuts what is silent for 5 s: the usual minute would take the test as long
_SETTINGS = """
daemon off;
user root;
worker_processes 1;
pid {folder}/pid;
events {{}}
http {{
    access_log {folder}/access;
    client_body_temp_path {folder}/bodies;
    proxy_temp_path {folder}/answers;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    proxy_read_timeout 5s;
    proxy_send_timeout 5s;
    server {{
        listen 443 ssl;
        server_name {name};
        ssl_certificate {certificate};
        ssl_certificate_key {key};
        {locations}
    }}
}}
"""


def variables_in(said: str) -> Mapping[str, str]:
    """The variables that a command tells a user to set, as ``NAME=value`` lines."""
    lines = [line.strip() for line in said.splitlines()]
    return dict(line.split("=", 1) for line in lines if line.startswith("JUPYTER_GPU_") and " " not in line)
