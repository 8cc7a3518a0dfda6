"""Hosts of their own on this machine: network namespaces that are joined by a link, which can be cut.

The namespaces have no names: each lives as long as a process in it. So they and the link go when the test is killed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType

import pytest

_LINK = "link0"
#: says that it is there, and ends when whoever reads that is gone
_HOLD = "import sys; print('here', flush=True); sys.stdin.read()"


class NetworkHost:
    """A host: programs in it see its own loopback and one link."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._holder = subprocess.Popen(
            ["unshare", "--net", sys.executable, "-S", "-c", _HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != b"here\n":
            self.close()
            pytest.skip("no network namespaces here")
        self.run("ip", "link", "set", "lo", "up")

    @property
    def pid(self) -> int:
        return self._holder.pid

    def command(self, words: Sequence[str]) -> list[str]:
        """``words`` as a command that runs on this host."""
        return ["nsenter", f"--target={self.pid}", "--net", "--", *words]

    def run(self, *words: str) -> None:
        _run(*self.command(words))

    def close(self) -> None:
        """The namespace goes with the last of its processes."""
        self._holder.communicate()


class TwoHosts:
    """Two hosts with a link between them."""

    def __init__(self) -> None:
        if shutil.which("ip") is None or shutil.which("unshare") is None or shutil.which("nsenter") is None:
            pytest.skip("no network namespaces here: ip, unshare or nsenter is missing")
        self.first, self.second = NetworkHost("10.77.0.1"), NetworkHost("10.77.0.2")
        ends = ("ip", "link", "add", _LINK, "netns", str(self.first.pid), "type", "veth", "peer", "name", _LINK)
        try:
            _run(*ends, "netns", str(self.second.pid))
            for host in (self.first, self.second):
                host.run("ip", "address", "add", f"{host.address}/24", "dev", _LINK)
                host.run("ip", "link", "set", _LINK, "up")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> TwoHosts:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def cut(self) -> None:
        """Nothing goes over the link any more; neither end is told."""
        self.first.run("ip", "link", "set", _LINK, "down")

    def join(self) -> None:
        """The link is back."""
        self.first.run("ip", "link", "set", _LINK, "up")

    def close(self) -> None:
        """End the hosts; fine twice."""
        for host in (self.first, self.second):
            host.close()


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    if "Operation not permitted" in done.stderr:
        pytest.skip("no network namespaces here: not allowed")
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
