"""``GET doctor``: this server, its kernels and its sidebar, and the cluster as seen from here."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from server_bed import ServerBed

from jupyter_gpu_release._version import __version__
from jupyter_gpu_release.checks.finding import BROKEN, NOTE, OK, Finding
from jupyter_gpu_release.checks.jupyter_servers import check_jupyter_servers
from jupyter_gpu_release.client.config import GpuRelease
from jupyter_gpu_release.server_extension.audit import SCHEMAS
from jupyter_gpu_release.server_extension.doctor import (
    ServerFacts,
    check_events,
    check_extension,
    check_kernels,
    check_sidebar,
    examine,
)
from jupyter_gpu_release.server_extension.gateway import GatewayConnection, GatewayListener
from jupyter_gpu_release.server_extension.models import Problem


def _levels(document: dict[str, Any]) -> dict[tuple[str, str], set[str]]:
    assert document["schema_version"] == 1
    assert document["ok"] == all(one["level"] != BROKEN for one in document["findings"])
    assert all(one["mend"] for one in document["findings"] if one["level"] != OK)
    found: dict[tuple[str, str], set[str]] = {}
    for one in document["findings"]:
        found.setdefault((one["where"], one["check"]), set()).add(one["level"])
    return found


def test_without_a_cluster_it_looks_at_the_server(server: ServerBed) -> None:
    found = _levels(server.get("doctor"))
    assert {("server", check) for check in ("package", "events", "kernels", "home", "sidebar")} <= found.keys()
    assert found["server", "cluster"] == {NOTE}
    assert found["server", "events"] == {OK}
    assert OK in found["server", "extension"]
    assert not any(where == "gateway" for where, _ in found)


@pytest.mark.thorough
def test_gateway_and_nodes_are_looked_at_from_the_server(on_cluster: ServerBed) -> None:
    """Two pages that ask at once are both told."""
    told: list[dict[str, Any]] = []
    pages = [threading.Thread(target=lambda: told.append(on_cluster.get("doctor"))) for _ in range(2)]
    for page in pages:
        page.start()
    for page in pages:
        page.join()
    assert len(told) == 2
    found = _levels(told[0])
    assert found["gateway", "gateway"] == found["server", "clocks"] == {OK}
    assert found["server", "store"] == {OK}
    assert (os.uname().nodename, "nodes") in found


@pytest.mark.asyncio
async def test_a_gateway_that_does_not_answer_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_GPU_TOKEN", "secret-word")
    line = GatewayConnection(GpuRelease(url="http://127.0.0.1:9"), GatewayListener())
    try:
        document = msgspec.to_builtins(await examine(ServerFacts(2, [], [], SCHEMAS, {}), lambda: line))
    finally:
        await line.close()
    found = _levels(document)
    assert found["gateway", "gateway"] == found["server", "network"] == {BROKEN}
    assert not document["ok"]
    assert "secret-word" not in json.dumps(document)


def test_the_command_asks_the_servers_that_run_here(server: ServerBed, tmp_path: Path) -> None:
    runtime = server.folder / "runtime"
    found = list(check_jupyter_servers(runtime, 60.0))
    assert {one.where for one in found} == {"server"}
    assert all(one.finding.startswith(server.url) for one in found)
    assert {"extension", "events", "kernels", "package"} <= {one.check for one in found}
    assert not {"cluster", "gateway", "home"} & {one.check for one in found}, "what lies behind it is not looked at"
    (facts,) = [json.loads(path.read_text()) for path in runtime.glob("jpserver-*.json")]
    elsewhere = {"url": f"{facts['url']}not/there/"}  # a server without the extension answers so
    for name, changes in {"wrong": {"token": "wrong"}, "dead": {"pid": 1 << 22}, "plain": elsewhere}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "jpserver-1.json").write_text(json.dumps({**facts, **changes}))
    for name, token in {"none": "", "strange": "ключ"}.items():  # the first has a password instead
        (tmp_path / name).mkdir()
        (tmp_path / name / "jpserver-1.json").write_text(json.dumps({**facts, "token": token}))
    refused = _one(check_jupyter_servers(tmp_path / "wrong", 60.0))
    assert "HTTP 403" in _one(check_jupyter_servers(tmp_path / "none", 60.0)).finding
    assert _one(check_jupyter_servers(tmp_path / "strange", 60.0)).level == NOTE
    missing = _one(check_jupyter_servers(tmp_path / "plain", 60.0))
    assert (refused.level, "HTTP 403" in refused.finding, "palette" in refused.hint) == (NOTE, True, True)
    assert (missing.level, "server extension enable" in missing.hint) == (NOTE, True)
    assert not list(check_jupyter_servers(tmp_path / "dead", 60.0))


def _one(findings: Iterable[Finding]) -> Finding:
    (finding,) = findings
    return finding


@pytest.mark.parametrize(
    ("version", "level", "words"),
    [(__version__, OK, "finds its version"), ("0.0.1", NOTE, "version 0.0.1"), ("", NOTE, "finds no sidebar")],
)
def test_the_sidebar_that_jupyterlab_finds(tmp_path: Path, version: str, level: str, words: str) -> None:
    if version:
        (tmp_path / "second" / "jupyter-gpu-release").mkdir(parents=True)
        (tmp_path / "second" / "jupyter-gpu-release" / "package.json").write_text(json.dumps({"version": version}))
    finding = _one(check_sidebar([str(tmp_path / "first"), str(tmp_path / "second")]))
    assert (finding.level, words in finding.finding) == (level, True)
    assert bool(finding.hint) == (level != OK)


def test_the_package_in_the_python_of_each_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Notebooks' own files are not imported for it, and ``python3`` is the server's own, as Jupyter starts it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    (tmp_path / "email.py").write_text("raise SystemExit(1)")
    bare = tmp_path / "python-bare"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # without site-packages
    bare.chmod(0o755)
    old = tmp_path / "python-old"
    old.write_text("#!/bin/sh\necho 0.0.1\n")
    old.chmod(0o755)
    kernels = {
        "bare": [str(bare), "-m", "x"],
        "gone": [str(tmp_path / "python-gone")],
        "here": [sys.executable, "-m"],
        "old": [str(old)],
        "own": ["python3", "-m"],
        "julia": ["/usr/bin/julia"],
        "odd": [],
    }
    found = {one.finding.split()[2]: one for one in check_kernels(kernels)}
    assert {name: one.level for name, one in found.items()} == {
        "bare": NOTE,
        "gone": NOTE,
        "here": OK,
        "old": NOTE,
        "own": OK,
    }
    assert f"{old} -m pip install" in found["old"].hint
    assert "have no magics" in found["bare"].finding


def test_an_event_that_the_server_does_not_know_is_broken() -> None:
    assert _one(check_events(SCHEMAS)).level == OK
    missing = _one(check_events(list(SCHEMAS)[1:]))
    assert (missing.level, next(iter(SCHEMAS)) in missing.finding) == (BROKEN, True)
    assert missing.hint == "restart the Jupyter server"


def test_loops_that_ended_and_settings_that_are_wrong() -> None:
    said = [
        Problem("nvml", "no driver", "nothing to do"),
        Problem("idle policy", "c.GpuCuller: no such action"),
        Problem("gateway", "is looked at anew"),
    ]
    facts = ServerFacts(1, [Problem("monitor", "this loop ended")], said, [], {})
    dead, driver, policy = check_extension(facts)
    assert [one.level for one in (dead, driver, policy)] == [BROKEN, NOTE, BROKEN]
    assert all(one.hint for one in (dead, driver, policy))
    assert "monitor: this loop ended" in dead.finding
    assert _one(check_extension(ServerFacts(2, [], [], [], {}))).finding.endswith("its 2 loops run")
