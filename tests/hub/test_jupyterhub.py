"""Users of a real JupyterHub: whose runs theirs are, the tokens that its service hands out, the idle culler."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from hub_bed import ADMIN, HubBed, Server
from server_bed import API
from server_kernel_bed import ServerKernel

from jupyter_gpu_release.client.autostart import Ready
from jupyter_gpu_release.client.home import read_secret
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.protocol.admin import TokenRevocation
from jupyter_gpu_release.protocol.rest import RunRow
from jupyter_gpu_release.protocol.states import RunState

Until = Callable[[Callable[[], object], str], None]
#: goes on until its file is there, in the background
_LONG = """
get_ipython().run_cell_magic("gpu_train", "--gpus 1 --async --name {name}", '''
import os, time
while not os.path.exists({gate!r}):
    time.sleep(0.05)
found = 6 * 7''')
"""
_IDLE_S = 25
#: a Hub, its proxy and five servers start
pytestmark = [pytest.mark.timeout(600), pytest.mark.thorough]


@pytest.fixture(scope="module")
def hub(cluster: Ready, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubBed]:
    bed = HubBed(tmp_path_factory.mktemp("hub"), cluster)
    yield bed
    bed.stop()


@pytest.fixture(scope="module")
def gateway(cluster: Ready) -> Iterator[GatewayClient]:
    with GatewayClient(cluster.connection.url, read_secret(Path(cluster.connection.token_file))) as client:
        yield client


def _token_file(server: Server) -> Path:
    return Path(server.environment["JUPYTER_RUNTIME_DIR"]) / f"jupyter_gpu_token-{server.name}"


def _is_connected(server: Server, user: str) -> bool:
    status = server.get(f"{API[1:]}/status")
    return status["gateway"]["state"] == "connected" and status["cluster"]["user"] == user


def _run(gateway: GatewayClient, name: str) -> RunRow:
    return next(run for run in gateway.runs(20).runs if run.name == name)


def _begin(server: Server, gate: Path, name: str, gateway: GatewayClient, until: Until) -> ServerKernel:
    """A kernel with a run that goes on until the file is there."""
    kernel = ServerKernel(server, path=f"{name}.ipynb")  # type: ignore[arg-type]
    kernel.run(_LONG.format(name=name, gate=str(gate)))
    until(lambda: _run(gateway, name).state == RunState.RUNNING.word, "the run")
    return kernel


def test_the_hubs_user_is_the_gateways_on_each_of_her_servers(
    hub: HubBed, gateway: GatewayClient, until: Until, tmp_path: Path
) -> None:
    """Also when her tokens end under a run: the server asks for another one, and nobody notices."""
    first, named = hub.server("ann"), hub.server("ann", "training")
    for server in (first, named):
        until(lambda server=server: _is_connected(server, "ann"), "the gateway's status")
    labels = {row.label for row in gateway.tokens().tokens if row.user == "ann" and row.role == "user"}
    assert labels == {"JupyterHub", "JupyterHub training"}

    kernel = _begin(named, tmp_path / "gate", "longer", gateway, until)
    assert _run(gateway, "longer").user == "ann"
    before = {server.name: read_secret(_token_file(server)) for server in (first, named)}
    assert stat.S_IMODE(_token_file(named).stat().st_mode) == 0o600
    gateway.revoke_tokens(TokenRevocation(user="ann"))
    for server in (first, named):
        until(lambda server=server: read_secret(_token_file(server)) != before[server.name], "her new token")
        until(lambda server=server: _is_connected(server, "ann"), "the gateway's status")
    (tmp_path / "gate").touch()
    assert kernel.run("%gpu_wait\nanswer = found") == 42
    until(lambda: _run(gateway, "longer").state == RunState.SUCCEEDED.word, "its end")
    kernel.client.stop_channels()

    secrets = [*before.values(), *(read_secret(_token_file(server)) for server in (first, named))]
    words = hub.log() + " ".join(
        word for process in psutil.process_iter(["cmdline"]) for word in process.info["cmdline"] or []
    )
    assert not [secret for secret in secrets if secret in words]


def test_a_token_of_the_hub_that_opens_no_server_gets_none(hub: HubBed) -> None:
    hub.http.post("/hub/api/users/bob")
    narrow = hub.http.post("/hub/api/users/bob/tokens", json={"scopes": ["read:users!user=bob"]}).json()["token"]
    whole = hub.http.post("/hub/api/users/bob/tokens", json={}).json()["token"]
    codes = {narrow: "forbidden", ADMIN: "forbidden", "guessed": "unauthenticated", whole: ""}
    for token, code in codes.items():
        answer = httpx.post(
            f"{hub.url}/services/gpu-tokens/token",
            headers={"Authorization": f"token {token}"},
            trust_env=False,
            timeout=60,
        )
        assert answer.json().get("error", {}).get("code", "") == code, answer.text


def test_the_idle_culler_leaves_a_server_alone_while_its_run_goes_on(
    hub: HubBed, gateway: GatewayClient, until: Until, tmp_path: Path
) -> None:
    """A named server as well: it is its user's second one, and the Hub has an activity of its own for each."""
    working = {"overnight": hub.server("carol"), "weekend": hub.server("carol", "training")}
    idle = hub.server("dave")
    for name, server in working.items():
        _begin(server, tmp_path / "gate", name, gateway, until).client.stop_channels()  # nobody looks on
    with hub.culler(_IDLE_S):
        until(lambda: not idle.is_ready(), "the idle server's end")
        for name, server in working.items():
            assert server.is_ready()
            assert _run(gateway, name).state == RunState.RUNNING.word
        (tmp_path / "gate").touch()
        until(lambda: not any(server.is_ready() for server in working.values()), "the others' end, once they are idle")
    for name in working:
        until(lambda name=name: _run(gateway, name).state == RunState.SUCCEEDED.word, "its end")
