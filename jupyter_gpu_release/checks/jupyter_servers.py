"""Jupyter servers of this user on this machine: each looks at itself, and tells."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import psutil

from .finding import Finding, Report, note

_ROUTE = "jupyter-gpu-release/api/doctor"
_SERVER = "server"
_IN_SIDEBAR = "*Check the GPU Cluster…* in its JupyterLab's palette shows what it finds"


class RunningServer(msgspec.Struct, frozen=True):
    """The file that a running server keeps in Jupyter's runtime folder, as far as it matters here."""

    url: str = ""
    token: str = ""
    pid: int = 0


def running_servers(folder: Path) -> list[RunningServer]:
    """The servers that still run, by their files of this user."""
    found = []
    for path in sorted(folder.glob("jpserver-*.json")):
        try:
            if path.stat().st_uid == os.getuid():
                found.append(msgspec.json.decode(path.read_bytes(), type=RunningServer))
        except (OSError, msgspec.MsgspecError):  # it is just ending
            continue
    return [server for server in found if server.url.startswith("http") and psutil.pid_exists(server.pid)]


def check_jupyter_servers(folder: Path, patience_s: float) -> Iterator[Finding]:
    """Have each server look at itself alone; what lies behind it is looked at from here."""
    for server in running_servers(folder):
        for finding in _ask(server, patience_s):
            yield msgspec.structs.replace(finding, finding=f"{server.url}: {finding.finding}", where=_SERVER)


def _ask(server: RunningServer, patience_s: float) -> list[Finding]:
    try:
        answer = httpx.get(
            server.url.rstrip("/") + f"/{_ROUTE}?only=server",
            timeout=patience_s,
            trust_env=False,
            headers={"Authorization": f"token {server.token}"} if server.token else {},  # it may have a password
        )
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:  # a token that no header can have
        return [note("extension", f"it does not answer this command: {error}", _IN_SIDEBAR)]
    if answer.status_code == httpx.codes.NOT_FOUND:
        mend = "jupyter server extension enable jupyter_gpu_release, in its environment, and restart it"
        return [note("extension", "this extension is not loaded there: no sidebar, no idle policy", mend)]
    try:
        return msgspec.json.decode(answer.content, type=Report).findings
    except msgspec.MsgspecError:  # it wants a password, say
        return [note("extension", f"it tells this command nothing (HTTP {answer.status_code})", _IN_SIDEBAR)]
