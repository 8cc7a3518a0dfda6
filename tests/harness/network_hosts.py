"""Hosts of their own on this machine: network namespaces on one switch, whose links can be cut.

The namespaces have no names: each lives as long as a process in it. So they and the links go when the test is killed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from types import TracebackType

import psutil
import pytest

_LINK, _SWITCH = "link0", "switch0"
#: says that it is there, and ends when whoever reads that is gone; as a host's first process it reaps orphans
_HOLD = "import signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); print('here', flush=True); sys.stdin.read()"
#: the port at which it listens until its input ends
_LISTEN = (
    "import socket, sys; s = socket.create_server(('', 0)); print(s.getsockname()[1], flush=True); sys.stdin.read()"
)
_OWN_PROCESSES = ("--pid", "--fork", "--kill-child", "--mount-proc")


class NetworkHost:
    """A host: programs in it see its own name, its own loopback and one link.

    ``own_processes``: they see no processes but the host's, either; their working directory is the root.
    """

    def __init__(self, name: str, address: str, *, own_processes: bool = False) -> None:
        self.name, self.address, self.own_processes = name, address, own_processes
        more = _OWN_PROCESSES if own_processes else ()
        self._holder = subprocess.Popen(
            ["unshare", "--net", "--uts", *more, sys.executable, "-S", "-c", _HOLD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != b"here\n":
            self.close()
            pytest.skip("no network namespaces here")
        self.pid = psutil.Process(self._holder.pid).children()[0].pid if own_processes else self._holder.pid
        self.run("hostname", name)
        self.run("ip", "link", "set", "lo", "up")

    def command(self, words: Sequence[str]) -> list[str]:
        """``words`` as a command that runs on this host."""
        more = ("--pid", "--mount") if self.own_processes else ()
        return ["nsenter", f"--target={self.pid}", "--net", "--uts", *more, "--", *words]

    def run(self, *words: str) -> None:
        _run(*self.command(words))

    def output(self, *words: str) -> str:
        """The standard output of a program on this host, which has to succeed."""
        done = subprocess.run(self.command(words), capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @contextlib.contextmanager
    def listening(self) -> Iterator[int]:
        """A port at which something listens meanwhile."""
        with subprocess.Popen(
            self.command([sys.executable, "-S", "-c", _LISTEN]), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as program:
            assert program.stdout is not None
            assert program.stdin is not None
            yield int(program.stdout.readline())
            program.stdin.close()

    def processes(self) -> list[psutil.Process]:
        """All that run on this host, but for what holds it; none once that has ended."""
        own, found = _namespace(self.pid), []
        if not own:  # as of init, and of others' zombies
            return []
        for process in psutil.process_iter():
            if process.pid not in (self.pid, self._holder.pid) and _namespace(process.pid) == own:
                found.append(process)
        return found

    def kill_all(self, mounts: str = "") -> None:
        """As a power cut: whatever runs here ends, and nobody is told. ``mounts``: only what is in that namespace."""
        while left := [one for one in self.processes() if mounts in ("", _namespace(one.pid, "mnt"))]:
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(left, 5)

    def close(self) -> None:
        """The namespace goes with the last of its processes."""
        self._holder.communicate()


class Network:
    """Hosts on one switch, by their names; the first has the address 10.77.0.1.

    ``own_processes``: the names of those that see no others' processes.
    """

    def __init__(self, *names: str, own_processes: Sequence[str] = ()) -> None:
        if any(shutil.which(tool) is None for tool in ("ip", "unshare", "nsenter", "hostname")):
            pytest.skip("no network namespaces here: ip, unshare, nsenter or hostname is missing")
        self._switch = NetworkHost("switch", "")
        self.hosts = [
            NetworkHost(name, f"10.77.0.{number}", own_processes=name in own_processes)
            for number, name in enumerate(names, 1)
        ]
        try:
            self._switch.run("ip", "link", "add", _SWITCH, "type", "bridge")
            self._switch.run("ip", "link", "set", _SWITCH, "up")
            for host in self.hosts:
                self._plug_in(host)
        except BaseException:
            self.close()
            raise

    def _plug_in(self, host: NetworkHost) -> None:
        port = f"to-{host.name}"
        link = ("ip", "link", "add", _LINK, "netns", str(host.pid), "type", "veth", "peer", "name", port)
        _run(*link, "netns", str(self._switch.pid))
        self._switch.run("ip", "link", "set", port, "master", _SWITCH, "up")
        host.run("ip", "address", "add", f"{host.address}/24", "dev", _LINK)
        host.run("ip", "link", "set", _LINK, "up")

    def __getitem__(self, name: str) -> NetworkHost:
        return next(host for host in self.hosts if host.name == name)

    def __enter__(self) -> Network:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def cut(self, host: NetworkHost) -> None:
        """Nothing goes to or from a host any more; nobody is told."""
        self._switch.run("ip", "link", "set", f"to-{host.name}", "down")

    def join(self, host: NetworkHost) -> None:
        """Its link is back."""
        self._switch.run("ip", "link", "set", f"to-{host.name}", "up")

    def close(self) -> None:
        """End the hosts; fine twice."""
        for host in (*self.hosts, self._switch):
            host.close()


def _namespace(pid: int, kind: str = "net") -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/{kind}")
    except OSError:
        return ""


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    if "Operation not permitted" in done.stderr:
        pytest.skip("no network namespaces here: not allowed")
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
