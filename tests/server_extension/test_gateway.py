"""The server's line to the gateway: a real one, one that is down, one that comes back."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from certificates import Authority
from ports import free_port
from ray_bed import request
from server_bed import ServerBed
from server_kernel_bed import ServerKernel, audit, never_for

from jupyter_gpu_release.client.autostart import Ready
from jupyter_gpu_release.client.config import GpuRelease
from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.home import read_secret
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.protocol.rest import GatewayFacts, GpuCounts, GpuRow, NodeRow, RunRow, StatusDocument
from jupyter_gpu_release.server_extension.gateway import GatewayConnection, GatewayListener
from jupyter_gpu_release.server_extension.runs.stored import is_own

from .conftest import StartServer

Until = Callable[[Callable[[], object], str], None]
_TOKEN = "the-gateway-token-that-stays-here"


@pytest.mark.slow("the first of a module starts a server and a cluster")
def test_the_own_cluster_is_found_and_shown(on_cluster: ServerBed, until: Until) -> None:
    until(lambda: on_cluster.get("status")["cluster"], "the gateway's status")
    status = on_cluster.get("status")
    assert status["gateway"]["state"] == "connected"
    assert status["cluster"]["gpus"]["total"] == 4
    assert status["cluster"]["simulated"] is True
    assert "gateway" not in [problem["what"] for problem in status["problems"]]


def test_runs_are_listed_and_cancelled(cluster: Ready, on_cluster: ServerBed, until: Until) -> None:
    token = read_secret(Path(cluster.connection.token_file))
    session = GatewaySession(Target(cluster.connection.url, token), "server-test")
    session.connect(60)
    code = "import time\nfor n in range(3): print(f'\\r{n}/2', end='', flush=True)\ntime.sleep(600)"
    asked = request(code, "server-test", notebook="a.ipynb")
    session.submit(asked)

    def row() -> dict[str, str]:
        return next((row for row in on_cluster.get("runs")["runs"] if row["run"] == asked.run), {"state": ""})

    until(lambda: row()["state"] == "running", "the run in the list")
    until(lambda: on_cluster.get("status")["cluster"]["runs"], "the run in the status, long before the next look")
    until(lambda: _shown(cluster, asked.run).progress == "2/2", "the progress in the gateway's status")
    assert on_cluster.post(f"runs/{asked.run}/cancel").status_code == 200
    until(lambda: row()["state"] in ("cancelled", "failed"), "the end of the run")
    until(lambda: not on_cluster.get("status")["cluster"]["runs"], "its end in the status")
    until(lambda: _status(cluster).usage.today.used_s > 0, "the account, which is read once a second")
    session.submit(request("pass", "server-test", notebook="a.ipynb"))  # a change: the server hears of the account
    until(lambda: on_cluster.get("status")["usage"]["today"]["used_s"] > 0, "the account in the status")
    usage = on_cluster.get("status")["usage"]
    sums = [usage["today"]["used_s"], usage["today"]["held_s"], usage["week"]["held_s"], usage["all_week"]["held_s"]]
    assert sums == sorted(sums)
    assert asked.run in [row["run"] for row in on_cluster.get("runs", mine="1", limit="2")["runs"]]
    assert on_cluster.post("runs/20260101-000000-00000000/cancel").status_code == 404
    session.close()


def _status(cluster: Ready) -> StatusDocument:
    with GatewayClient(cluster.connection.url, read_secret(Path(cluster.connection.token_file))) as client:
        return client.status()


def _shown(cluster: Ready, run: str) -> RunRow:
    return next(row for row in _status(cluster).runs if row.run == run)


@pytest.mark.slow("a lease runs out")
def test_a_warm_lease_is_shown_extended_and_released(cluster: Ready, on_cluster: ServerBed, until: Until) -> None:
    token = read_secret(Path(cluster.connection.token_file))
    session = GatewaySession(Target(cluster.connection.url, token), "keeps-warm")
    session.connect(60)
    asked = request("1 + 1", "keeps-warm", gpus=2, notebook="a.ipynb", keep_s=60.0)
    session.submit(asked)

    def kept() -> list[dict[str, Any]]:
        return [row for row in on_cluster.get("status")["cluster"]["warm"] if row["session"] == "keeps-warm"]

    until(kept, "the lease in the status")
    [row] = kept()
    assert (row["lease"], row["gpus"], row["notebook"]) == (asked.run, 2, "a.ipynb")
    gpus = [gpu for node in on_cluster.get("status")["cluster"]["nodes"] for gpu in node["gpus"]]
    assert [(gpu["lease"], gpu["warm_until"]) for gpu in gpus if gpu["state"] == "warm"] == [
        (asked.run, row["until"])
    ] * 2
    warned = [{"action": "warn", "kind": "lease", "rule": "idle-warning"}]
    until(lambda: _policy_on(on_cluster, asked.run) == warned, "the idle policy's warning")
    longer = on_cluster.post(f"leases/{asked.run}/extend", {"keep_s": 300}).json()  # "keep" answers it
    assert longer["until"] > row["until"] + 200
    on_cluster.set(GpuCuller={"lease_idle_timeout": 7, "warn_before": 6})  # it would be over by now, had nobody said so
    never_for(7, on_cluster, {"release"}, asked.run)
    until(lambda: [row["until"] for row in kept()] == [longer["until"]], "its new end in the status")
    assert on_cluster.post(f"leases/{asked.run}/release").json()["state"] == "gone"
    until(lambda: not kept(), "its end in the status")
    assert on_cluster.post(f"leases/{asked.run}/release").status_code == 409
    assert on_cluster.post("leases/20260101-000000-00000000/extend").status_code == 404
    session.close()


def _policy_on(bed: ServerBed, lease: str) -> list[dict[str, Any]]:
    found = [entry for entry in audit(bed) if entry["subject"] == lease]
    return [{name: entry[name] for name in ("action", "kind", "rule")} for entry in found]


def test_the_token_stays_in_the_server(cluster: Ready, on_cluster: ServerBed) -> None:
    token = read_secret(Path(cluster.connection.token_file))
    texts = [on_cluster.http.get(f"/jupyter-gpu-release/api/{name}").text for name in ("status", "health", "runs")]
    texts += [on_cluster.log(), on_cluster.http.get("/metrics").text]
    assert not [text for text in texts if token in text]


class _Gateway(BaseHTTPRequestHandler):
    """As much of a gateway as a look needs, one of before changes were told; knows one token."""

    def do_GET(self) -> None:
        good = self.headers["Authorization"] == f"Bearer {_TOKEN}"
        refused = {"error": {"code": "unauthenticated", "message": "unknown token", "mend": "get one"}}
        self._answer(200 if good else 401, msgspec.json.encode(self._status() if good else refused))

    def _status(self) -> StatusDocument:
        script = cast(_Script, self.server)
        return StatusDocument(
            1,
            True,
            GatewayFacts("http://x", "0"),
            GpuCounts(2, 0, 2, 0),
            queue=[],
            runs=script.runs,
            nodes=[NodeRow("n", "h", script.gpus)],
            user="ann",
        )

    def do_POST(self) -> None:
        cast(_Script, self.server).released.append(self.path)
        self._answer(200, b"{}")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


class _Script(ThreadingHTTPServer):
    """Serves from a thread; what it shows is changed by the test."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port or free_port()), _Gateway)
        self.gpus: list[GpuRow] = []
        self.runs: list[RunRow] = []
        self.released: list[str] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def end(self) -> None:
        self.shutdown()
        self.server_close()


def _gpu(state: str, user: str, run: str) -> GpuRow:
    return GpuRow("0", "u", "n", 1, 1, 0.0, state, user, run)


_SOON: dict[str, Any] = {"GpuRelease": {"poll_interval": 0.2, "max_backoff": 1.0}}


@pytest.mark.thorough
def test_a_gateway_that_is_down_while_the_policy_decides(start_server: StartServer, until: Until) -> None:
    """What it was heard of last is not forgotten, and not acted on; what is idle without it is."""
    gateway = _Script()
    port = gateway.port
    named = {"JUPYTER_GPU_URL": f"http://127.0.0.1:{port}", "JUPYTER_GPU_TOKEN": _TOKEN}
    bed, gpus = start_server(
        _SOON, named, action="shutdown", save_before_shutdown=False, lease_idle_timeout=3, users=["ann"]
    )
    waiting, idle = (ServerKernel(bed, gpus, path=f"{name}.ipynb") for name in ("waiting", "idle"))
    try:
        gateway.runs = [RunRow("r1", "ann", "running", notebook="waiting.ipynb", kernel=waiting.id)]
        until(lambda: waiting.row()["why"] == "its run r1 is running", "the run")
        gateway.gpus = [_gpu("warm", "ann", "w1"), _gpu("running", "ann", "r1"), _gpu("warm", "bob", "w2")]
        until(lambda: len(bed.get("status")["cluster"]["nodes"][0]["gpus"]) == 3, "the leases")
        gateway.end()
        until(lambda: bed.get("status")["gateway"]["state"] == "unreachable", "the loss to be noticed")
        lost = bed.get("status")
        assert lost["cluster"]["nodes"][0]["gpus"][0]["state"] == "warm"  # as it was heard of last
        assert lost["gateway"]["age_s"] > 0
        assert f"127.0.0.1:{port}" in lost["problems"][0]["message"]
        assert bed.http.get("/jupyter-gpu-release/api/runs").status_code == 200  # what the store has
        for kernel in (waiting, idle):
            kernel.holds()
        until(lambda: not idle.alive, "the end of what is idle without the gateway's word")
        until(lambda: waiting.row()["why"] == "its run r1 is running, or was", "the one that waits to be known as such")
        before = len(audit(bed))
        never_for(5, bed, {"warn", "shutdown"}, waiting.id)
        never_for(0.1, bed, {"release"}, "w1")
        assert waiting.alive
        gateway = _Script(port)  # it comes back: the run is over, the lease still warm
        gateway.gpus = [_gpu("warm", "ann", "w1"), _gpu("running", "ann", "r2"), _gpu("warm", "bob", "w2")]
        until(lambda: bed.get("status")["gateway"]["state"] == "connected", "the return")
        until(lambda: not waiting.alive, "the end of what is idle now")
        until(lambda: gateway.released, "the release of the warm lease")
        assert set(gateway.released) == {"/v1/leases/w1/release"}
        leases = [(entry["action"], entry["subject"]) for entry in audit(bed)[before:] if entry["kind"] == "lease"]
        assert set(leases) <= {("warn", "w1"), ("release", "w1")}
        assert _TOKEN not in bed.log()
    finally:
        gateway.end()
        waiting.close()
        idle.close()


@pytest.mark.asyncio
async def test_a_silent_gateway_is_asked_less_and_less_until_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_GPU_TOKEN", _TOKEN)
    gateway = _Script()
    port = gateway.port
    gateway.end()
    settings = GpuRelease(url=f"http://127.0.0.1:{port}", poll_interval=0.5, max_backoff=5.0)
    line = GatewayConnection(settings, GatewayListener())
    for expected_s in (1.0, 2.0, 4.0, 5.0, 5.0):
        await line.ask_status()
        assert 0.8 * expected_s <= line.pause_s(0.0) <= expected_s
    gateway = _Script(port)
    try:
        await line.ask_status()
        assert line.pause_s(0.0) == 0.5
        assert line.state().state == "connected"
    finally:
        await line.close()
        gateway.end()


@pytest.mark.asyncio
async def test_whose_runs_are_ones_own_is_known_after_the_cluster_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_GPU_TOKEN", _TOKEN)
    monkeypatch.setenv("JUPYTER_GPU_HOME", str(tmp_path))
    gateway = _Script()
    settings = GpuRelease(url=f"http://127.0.0.1:{gateway.port}")
    line = GatewayConnection(settings, GatewayListener())
    try:
        await line.ask_status()
        assert is_own(line, "ann")
        settings.url = ""  # as after `jupyter gpu stop`: no cluster is known any more
        await line.ask_status()
        assert line.state().state == "none"
        assert (line.status, line.remembered) == (None, None)  # no kernel waits for its runs
        assert is_own(line, "ann")
        assert not is_own(line, "bob")
    finally:
        await line.close()
        gateway.end()


@pytest.mark.asyncio
async def test_certificates_that_were_renewed_are_trusted_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_GPU_TOKEN", _TOKEN)
    trusted, renewed = Authority(tmp_path, "first").file, Authority(tmp_path, "second").file
    line = GatewayConnection(GpuRelease(url="https://gpu.example.org", ca_file=str(trusted)), GatewayListener())
    first = await line._connected()
    assert await line._connected() is first
    os.utime(renewed, ns=(1, 1))
    os.replace(renewed, trusted)
    assert await line._connected() is not first
    await line.close()


@pytest.mark.asyncio
async def test_a_wrong_token_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUPYTER_GPU_TOKEN", "wrong")
    gateway = _Script()
    line = GatewayConnection(GpuRelease(url=f"http://127.0.0.1:{gateway.port}"), GatewayListener())
    try:
        await line.ask_status()
        assert line.state().state == "refused"
        assert "unknown token" in line.state().message
    finally:
        await line.close()
        gateway.end()
