"""A gateway for other machines, by the operators' pages: with TLS of its own, then behind nginx with a path."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from doc_blocks import block
from guide_hosts import GuideHosts, Nginx, variables_in
from kernel_bed import RemoteNotebook
from network_hosts import Network

pytestmark = [pytest.mark.timeout(900), pytest.mark.thorough]  # two clusters, a kernel and nginx
Until = Callable[..., None]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuideHosts]:
    with Network("laptop", "head") as network:
        bed = GuideHosts(network, tmp_path_factory.mktemp("guide"))
        try:
            bed.ok("head", block("operate/certificates.md", "# How to make a certificate").text)
            yield bed
        finally:
            bed.stop()


@pytest.fixture
def secured(hosts: GuideHosts) -> Iterator[None]:
    """The gateway with a certificate of its own."""
    hosts.ok("head", block("operate/other-machines.md", "# How to let other machines in").text)
    yield
    hosts.ok("head", "jupyter gpu stop --yes")


def test_a_gateway_with_a_certificate_of_ones_own_is_watched_from_elsewhere(hosts: GuideHosts, secured: None) -> None:
    hosts.ok("head", "jupyter gpu token create --user monitor --expires 365d --out ../laptop/monitor.token")
    by_command, by_http = block("operate/monitor.md", "# How to monitor it").commands()
    refused = hosts.run("laptop", by_http)
    assert "certificate" in refused.stderr, "an authority that nobody has named"
    health = json.loads(hosts.ok("laptop", by_http.replace("curl -sSf", "curl --cacert ../head/ca.pem -sSf")))
    assert (health["ready"], health["problems"]) == (True, [])
    known = {
        "JUPYTER_GPU_URL": "https://gpu.example.org:8765",
        "JUPYTER_GPU_TOKEN_FILE": "monitor.token",
        "JUPYTER_GPU_CA_FILE": "../head/ca.pem",
    }
    assert json.loads(hosts.ok("laptop", by_command, **known))["gpus"]["total"] == 4


@pytest.fixture(scope="module")
def proxied(hosts: GuideHosts, until: Until) -> Iterator[Nginx]:
    """The gateway and nginx in front of it, with the guide's certificate. Its other two paths are taken off requests,
    and one passes on no WebSockets.
    """
    hosts.ok("head", block("operate/proxy.md", "# How to put a proxy in front", "jupyter gpu start").text)
    location = block("operate/proxy.md", "# How to put a proxy in front", "location")
    off = {"127.0.0.1:8765;": "127.0.0.1:8765/;"}
    taken_off = location.filled({"/team/": "/other/", **off})
    without = location.filled({"/team/": "/plain/", **off, "proxy_set_header Upgrade $http_upgrade;": ""})
    certificate = (str(hosts.at("head") / "gateway.crt"), str(hosts.at("head") / "gateway.key"))
    nginx = Nginx(hosts, certificate, location.text + taken_off + without, until)
    yield nginx
    nginx.stop()


@pytest.fixture(scope="module")
def known(proxied: Nginx, hosts: GuideHosts) -> dict[str, str]:
    """Ann's settings, as the command says that makes her token."""
    said = hosts.ok("head", "jupyter gpu token create --user ann --out ../laptop/ann.token")
    files = {
        "JUPYTER_GPU_TOKEN_FILE": hosts.at("laptop") / "ann.token",
        "JUPYTER_GPU_CA_FILE": hosts.at("head") / "ca.pem",
    }
    return {**variables_in(said), **{name: str(path) for name, path in files.items()}}


@pytest.fixture
def notebook(hosts: GuideHosts, known: dict[str, str]) -> Iterator[RemoteNotebook]:
    laptop = hosts.network["laptop"]
    opened = RemoteNotebook(laptop, hosts.at("laptop"), hosts.environment("laptop") | known, prefix=hosts.prefix())
    yield opened
    opened.close()


#: looks at a run with the clients that the Jupyter server has for the sidebar and for the page of a run
_LOOK = """
import asyncio, sys
from jupyter_gpu_release.client.discovery import find_gateway
from jupyter_gpu_release.client.rest import AsyncGatewayClient, GatewayRequests
from jupyter_gpu_release.client.websocket import follow_run

async def look():
    client = AsyncGatewayClient(find_gateway())
    print((await client.ask(GatewayRequests.status)).user)
    await client.close()
    async for message in follow_run(find_gateway(), sys.argv[1], 0, 60.0):
        for event in getattr(message, "events", []):
            print(event.n)

asyncio.run(look())
"""
_SILENT = "import time\nbegan = time.monotonic()\nwhile time.monotonic() < began + 7: time.sleep(0.1)\n"


_CONNECT = """
from jupyter_gpu_release.client.discovery import find_gateway
from jupyter_gpu_release.client.session import GatewaySession
GatewaySession(find_gateway(), "plain").connect(60.0)
"""


def test_a_proxy_that_passes_on_no_websockets_is_named(hosts: GuideHosts, known: dict[str, str]) -> None:
    variables = {**known, "JUPYTER_GPU_URL": "https://gpu.example.org/plain"}
    assert json.loads(hosts.ok("laptop", "jupyter gpu status --json", **variables))["user"] == "ann"
    said = hosts.run("laptop", f"python -c '{_CONNECT}'", **variables).stderr
    assert "RequestError: GET /v1/session: no WebSocket. A proxy in between takes its headers off" in said
    assert "jupyter gpu docs operate/proxy" in said


def test_everything_works_behind_nginx_with_a_path(
    hosts: GuideHosts, proxied: Nginx, known: dict[str, str], notebook: RemoteNotebook, tmp_path: Path
) -> None:
    """Its certificate, its path, its time limits, and a gateway that dies behind it."""
    assert known["JUPYTER_GPU_URL"] == "https://gpu.example.org/team"
    taken_off = {**known, "JUPYTER_GPU_URL": "https://gpu.example.org/other"}
    for variables in (known, taken_off):
        status = json.loads(hosts.ok("laptop", "jupyter gpu status --json", **variables))
        assert (status["user"], status["gateway"]["url"]) == ("ann", "https://gpu.example.org/team")

    notebook.ok("small, large = 21, bytes(3 << 20)")
    shown = notebook.ok(f"%%gpu_train\n{_SILENT}print('said')\nanswer, twice = 2 * small, large * 2")
    assert shown.lines() == ["said"]
    assert notebook.value("[answer, len(twice)]") == [42, 6 << 20]
    assert proxied.said() == "", "nginx has cut what was silent"
    (run,) = json.loads(hosts.ok("laptop", "jupyter gpu runs --json", **known))["runs"]
    assert "said" in notebook.ok(f"%gpu_logs {run['run']}").text()
    assert "said" in hosts.ok("laptop", f"jupyter gpu attach {run['run']}", **known)
    (tmp_path / "look.py").write_text(_LOOK)
    assert hosts.ok("laptop", f"python '{tmp_path}/look.py' {run['run']}", **known).split()[:2] == ["ann", "1"]
    notebook.ok(f"del answer, twice\n%gpu_attach {run['run']}")
    assert notebook.value("[answer, len(twice)]") == [42, 6 << 20]

    go = tmp_path / "go"
    wait = f"import os, time\nprint('begun', flush=True)\nwhile not os.path.exists({str(go)!r}): time.sleep(0.05)"
    cell = notebook.begin(f"%%gpu_train\n{wait}\nlater = 7")
    notebook.until(lambda shown: "begun" in shown.lines())
    os.kill(json.loads(hosts.ok("head", _HEALTH))["pid"], signal.SIGKILL)
    go.touch()
    shown = notebook.end(cell)
    assert shown.status == "ok", shown.traceback
    assert notebook.value("later") == 7
    findings = json.loads(hosts.ok("laptop", "jupyter gpu doctor --json", **known))["findings"]
    assert [one for one in findings if one["level"] == "broken"] == []


_HEALTH = 'curl -sSf -H "Authorization: Bearer $(cat "$JUPYTER_GPU_HOME/token")" http://127.0.0.1:8765/v1/health'
