"""Users of a real JupyterHub: whose runs theirs are, their tokens, the idle culler, the sidebar behind its proxy."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest
from hub_bed import ADMIN, HubBed, Server
from lab_bed import Lab, execute, open_lab
from playwright.sync_api import Browser, Page, expect
from server_bed import API
from server_kernel_bed import ServerKernel
from sidebar_bed import open_notebook, opened, press, reload_lab, row, show_panel, write_notebook
from soak import ONLY_IN_SOAK

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
_CELL = """%%gpu_train --name training
import time
print("epoch 1")
time.sleep(600)"""
_IDLE_S = 25
#: a Hub, its proxy and three servers start
pytestmark = [pytest.mark.timeout(600), pytest.mark.thorough]


class HubsLab(Lab):
    """A page without a token in its address: who is logged in at the Hub is let in."""

    def page_url(self, path: str = "lab") -> str:
        return f"{self.url}/{path}?reset"


@pytest.fixture(scope="module")
def hub(cluster: Ready, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubBed]:
    bed = HubBed(tmp_path_factory.mktemp("hub"), cluster, ["--LabApp.expose_app_in_browser=True"])
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


@contextmanager
def _logged_in(browser: Browser, hub: HubBed, user: str, folder: Path) -> Iterator[Page]:
    """JupyterLab with its sidebar, as somebody sees it who logs in at the Hub."""
    with opened(browser) as page:
        page.goto(f"{hub.url}/hub/login")
        page.locator("#username_input").fill(user)
        page.locator("#password_input").fill("anything")
        page.locator("#login_submit").click()
        page.wait_for_url(re.compile(f"/user/{user}/lab"))
        open_lab(page, HubsLab(f"{hub.url}/user/{user}", "", folder))
        show_panel(page, 420)
        yield page


def _cancel(page: Page, name: str) -> None:
    press(row(page, "My runs", name), "Cancel")
    page.get_by_role("button", name="Cancel the run").click()
    icon = row(page, "My runs", name).locator(".jp-GpuRelease-icon")
    expect(icon).to_have_attribute("title", re.compile("^Cancelled:"))


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


def test_a_user_of_a_hub_sees_and_cancels_her_run(
    browser: Browser, hub: HubBed, gateway: GatewayClient, until: Until, tmp_path: Path
) -> None:
    _begin(hub.server("ann"), tmp_path / "gate", "held", gateway, until).client.stop_channels()
    with _logged_in(browser, hub, "ann", tmp_path) as page:
        expect(row(page, "My runs", "held")).to_have_attribute("aria-label", re.compile("Running"))
        expect(row(page, "GPUs", "you")).to_be_visible()
        _cancel(page, "held")


@ONLY_IN_SOAK
def test_a_cell_in_a_hubs_server_heals_after_a_reload_and_when_it_is_cancelled(
    browser: Browser, hub: HubBed, tmp_path: Path
) -> None:
    hub.server("eve")
    write_notebook(hub.homes / "eve" / "training.ipynb", "%load_ext jupyter_gpu_release", _CELL)
    with _logged_in(browser, hub, "eve", tmp_path) as page:
        cell = open_notebook(page, "training.ipynb")
        execute(page, "notebook:run-all-cells")
        expect(cell.locator(".jp-OutputArea")).to_contain_text("epoch 1", timeout=60_000)
        reload_lab(page)
        cell = open_notebook(page, "training.ipynb")
        expect(cell.locator(".jp-OutputArea")).to_contain_text("epoch 1")
        expect(cell.locator(".jp-InputPrompt").first).to_contain_text("*")
        _cancel(page, "training")
        expect(cell.locator(".jp-OutputArea")).to_contain_text("RunCancelledError: cancelled by you")
        reload_lab(page)
        cell = open_notebook(page, "training.ipynb")
        expect(cell.locator(".jp-OutputArea")).to_contain_text("RunCancelledError: cancelled by you")
        expect(cell.locator(".jp-InputPrompt").first).not_to_contain_text("*")


def test_the_idle_culler_leaves_a_server_alone_while_its_run_goes_on(
    hub: HubBed, gateway: GatewayClient, until: Until, tmp_path: Path
) -> None:
    """A named server as well: it is its user's second one, and the Hub has an activity of its own for each."""
    idle = hub.server("dave")
    working = {"overnight": hub.server("ann"), "weekend": hub.server("ann", "training")}
    for name, server in working.items():
        _begin(server, tmp_path / "gate", name, gateway, until).client.stop_channels()  # nobody looks on
    with hub.culler(_IDLE_S):
        until(lambda: not idle.is_ready(), "the idle server's end")
        for name, server in working.items():
            assert server.is_ready()
            assert _run(gateway, name).state == RunState.RUNNING.word
    (tmp_path / "gate").touch()
    for name in working:
        until(lambda name=name: _run(gateway, name).state == RunState.SUCCEEDED.word, "its end")
    with hub.culler(2):
        until(lambda: not any(server.is_ready() for server in working.values()), "the others' end, now they are idle")
