"""A gateway with TLS and behind a proxy: all clients reach it, and a certificate that is not right is told in words."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest
from certificates import Authority
from feeds import Reading
from ray_bed import GatewayBed, RayBed, request

from jupyter_gpu_release.client.cluster_facts import ClusterFacts
from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.rest import AsyncGatewayClient, GatewayClient, GatewayRequests
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.client.websocket import follow_run
from jupyter_gpu_release.errors import GatewayUnavailableError, WrongAddressError


@dataclass
class Secured:
    bed: GatewayBed
    authority: Authority
    target: Target


@pytest.fixture(scope="module")
def secured(ray_bed: RayBed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder / "certificates")
    cert, key = authority.sign("gateway", "127.0.0.1")
    bed = GatewayBed(
        ray_bed,
        folder,
        tls_cert=cert,
        tls_key=key,
        ca_file=str(authority.file),
        free_attempts=10_000,
        proxy_url="https://gpu.example.org/team/gpu",
    )
    answer = bed.deploy()
    assert answer.ok, answer
    yield Secured(bed, authority, bed.target)
    bed.end()


def test_everything_goes_over_tls(secured: Secured) -> None:
    assert secured.target.url.startswith("https://")
    before = set(threading.enumerate())
    session = GatewaySession(secured.target, "secured")
    session.connect(60.0)
    asked = request("print 1\nvalues 5", "secured")
    assert Reading(session.submit(asked)).end().state == "succeeded"
    own = [thread.name for thread in threading.enumerate() if thread not in before]
    assert own == ["gpu-session"], "reading and writing TLS in two threads at once kills the process"
    session.close()
    with GatewayClient.for_target(secured.target) as gateway:
        assert gateway.run(asked.run).state == "succeeded"
    gpus = ClusterFacts(lambda: secured.target).gpus(60.0)
    assert gpus is not None
    assert gpus.total == 4

    async def look() -> str:
        client = AsyncGatewayClient(secured.target)
        status = await client.ask(GatewayRequests.status)
        await client.close()
        states = [message async for message in follow_run(secured.target, asked.run, 0, 60.0)]
        assert states
        return status.gateway.url

    assert asyncio.run(look()) == secured.bed.config.proxy_url, "the address for others"


def test_a_proxys_path_may_be_there_or_not(secured: Secured) -> None:
    headers = {"Authorization": f"Bearer {secured.bed.token}", "Host": "gpu.example.org"}
    with httpx.Client(verify=secured.target.tls() or False, trust_env=False, timeout=60) as client:
        for path in ("/v1/health", "/team/gpu/v1/health"):
            assert client.get(secured.bed.url + path, headers=headers).status_code == 200
        assert client.get(secured.bed.url + "/team/gpux/v1/health", headers=headers).status_code == 404
        assert client.get(secured.bed.url + "/v1/health", headers=headers | {"Host": "x.org"}).status_code == 403
    behind = replace(secured.target, url=secured.target.url + "/team/gpu")
    session = GatewaySession(behind, "behind")
    session.connect(60.0)
    assert Reading(session.submit(request("print 1", "behind"))).end().state == "succeeded"
    session.close()


def _said(target: Target) -> tuple[str, str]:
    """Sentences of a notebook and of a command about a gateway that they do not trust."""
    with pytest.raises(WrongAddressError) as by_socket:
        GatewaySession(target, "distrust").connect(60.0)
    with pytest.raises(GatewayUnavailableError) as by_rest, GatewayClient.for_target(target) as gateway:
        gateway.health()
    assert by_socket.value.message == by_rest.value.message
    return by_rest.value.message, by_rest.value.hint


def test_a_certificate_that_is_not_right_is_told_with_its_cure(secured: Secured) -> None:
    said, mend = _said(replace(secured.target, ca_file=""))
    assert "nobody whom this machine trusts has signed its certificate" in said
    assert "JUPYTER_GPU_CA_FILE" in mend
    said, mend = _said(replace(secured.target, url=secured.target.url.replace("127.0.0.1", "localhost")))
    assert "the certificate is for another host" in said
    assert "localhost" in said
    assert "a name that the certificate has" in mend


def test_a_certificate_that_has_expired_is_told_with_its_cure(secured: Secured, tmp_path: Path) -> None:
    """``start`` refuses such a one, but one may expire while the gateway runs."""
    cert, key = secured.authority.sign("expired", "127.0.0.1", days=-1)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)

    def answer(link: socket.socket) -> None:
        with contextlib.suppress(OSError), context.wrap_socket(link, server_side=True):
            pass

    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        serving = pool.submit(lambda: [answer(server.accept()[0]) for _ in range(2)])
        said, mend = _said(replace(secured.target, url=f"https://127.0.0.1:{server.getsockname()[1]}"))
        serving.result(60)
    assert "the certificate has expired" in said
    assert "has to renew it" in mend


def test_tls_to_plain_text_is_told(shared_gateway: GatewayBed, secured: Secured) -> None:
    plain = replace(secured.target, url=shared_gateway.url.replace("http:", "https:"))
    said, mend = _said(plain)
    assert "it speaks no TLS" in said
    assert "http://" in mend


def test_plain_text_to_tls_is_told(secured: Secured) -> None:
    """It may also be a gateway that was just killed: so it is tried again, and said as a guess."""
    plain = replace(secured.target, url=secured.target.url.replace("https:", "http:"))
    session = GatewaySession(plain, "plain")
    with pytest.raises(GatewayUnavailableError) as by_socket:
        session.connect(3.0)
    session.close()
    with pytest.raises(GatewayUnavailableError) as by_rest, GatewayClient.for_target(plain, timeout_s=60) as gateway:
        gateway.health()
    for caught in (by_socket, by_rest):
        assert f"perhaps it speaks TLS: then write {secured.target.url}; else" in caught.value.hint


def test_those_who_begin_no_handshake_hold_nobody_up(secured: Secured) -> None:
    address = ("127.0.0.1", secured.bed.config.port)
    with contextlib.ExitStack() as silent, GatewayClient.for_target(secured.target, timeout_s=60) as gateway:
        flood = [silent.enter_context(socket.create_connection(address)) for _ in range(300)]
        for connection in flood[:44]:
            connection.settimeout(60)
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(1) == b"", "300 wait, 256 may: the oldest are let go of"
        assert gateway.health().ready


def test_a_renewed_certificate_is_served_without_a_restart(secured: Secured, until: Callable[..., None]) -> None:
    """Last here: the earlier authority signs no longer."""
    folder = Path(secured.bed.config.tls_cert).parent
    cert, key = secured.authority.sign("expired", "127.0.0.1", days=-1)
    pid = secured.bed.life()
    os.replace(key, secured.bed.config.tls_key)
    os.replace(cert, secured.bed.config.tls_cert)
    until(lambda: "the certificate has expired" in secured.bed.log(), "the expired certificate is refused")
    assert secured.bed.life() == pid, "it still serves the one that is valid"
    other = Authority(folder, "another")
    cert, key = other.sign("renewed", "127.0.0.1")
    os.replace(key, secured.bed.config.tls_key)
    os.replace(cert, secured.bed.config.tls_cert)
    secured.bed.target = replace(secured.target, ca_file=str(other.file))
    until(lambda: secured.bed.life() == pid, "the same gateway with the new certificate")
