"""The HTTP interface: every route authenticated, foreign pages refused, errors in one form, documents stable."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec
import pytest
from feeds import Reading
from ray_bed import GatewayBed, request
from websockets.sync.client import connect

from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.errors import NoSuchRunError
from jupyter_gpu_release.gateway.api.app import BODY_LIMIT_BYTES, settings_for
from jupyter_gpu_release.gateway.api.route_table import ROUTES
from jupyter_gpu_release.protocol.admin import TokenRequest
from jupyter_gpu_release.protocol.session import PROTOCOL, Accepted, GatewayMessage, Heartbeat, Hello, Refused, Welcome
from jupyter_gpu_release.protocol.wire import decode, encode


@pytest.fixture
def http(gateway: GatewayBed) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=gateway.url, trust_env=False, timeout=60) as client:
        yield client


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def test_a_page_of_the_gateway_itself_is_let_in(gateway: GatewayBed, http: httpx.Client) -> None:
    assert http.get("/v1/health", headers=_bearer(gateway.token) | {"Origin": gateway.url}).status_code == 200


def test_unknown_paths_and_methods(gateway: GatewayBed, http: httpx.Client) -> None:
    assert http.get("/v2/runs").status_code == 401
    missing = http.get("/v2/runs", headers=_bearer(gateway.token))
    assert (missing.status_code, "GET /v2/runs" in missing.json()["error"]["message"]) == (404, True)
    assert http.delete("/v1/runs", headers=_bearer(gateway.token)).status_code == 405


def test_the_token_is_nowhere_in_the_ledger(gateway: GatewayBed) -> None:
    for file in Path(gateway.config.home).glob("ledger.sqlite*"):
        assert gateway.token.encode() not in file.read_bytes()
        assert file.stat().st_mode & 0o077 == 0


def test_bodies_are_bounded(gateway: GatewayBed, http: httpx.Client) -> None:
    answer = http.post("/v1/runs", headers=_bearer(gateway.token), content=b" " * (BODY_LIMIT_BYTES + 1))
    assert answer.status_code == 400
    assert "larger than" in answer.json()["error"]["message"]

    def unannounced() -> Iterator[bytes]:
        for _ in range(BODY_LIMIT_BYTES // (1 << 20) + 1):
            yield b" " * (1 << 20)

    answer = http.post("/v1/runs", headers=_bearer(gateway.token), content=unannounced())
    assert answer.status_code == 400
    assert "larger than" in answer.json()["error"]["message"]


def test_malformed_requests(gateway: GatewayBed, http: httpx.Client) -> None:
    headers = _bearer(gateway.token)
    assert http.post("/v1/runs", headers=headers, content=b"{").json()["error"]["code"] == "bad_request"
    wrong = http.post("/v1/runs", headers=headers, json={"run": 1})
    assert "run" in wrong.json()["error"]["message"]
    assert http.get("/v1/runs?limit=many", headers=headers).json()["error"]["code"] == "bad_request"
    assert http.get("/v1/runs/nonsense", headers=headers).status_code == 404


def test_submit_list_show_cancel_over_rest(gateway: GatewayBed, http: httpx.Client, until) -> None:
    asked = request("print 3\nhold", "", name="by rest")
    answer = http.post("/v1/runs", headers=_bearer(gateway.token), content=msgspec.json.encode(asked))
    assert answer.status_code == 201
    assert answer.json()["run"] == asked.run
    with gateway.rest() as client:
        until(lambda: client.run(asked.run).state == "running", "running")
        assert [row.run for row in client.status().runs] == [asked.run]

        def held() -> list[str | None]:
            return [gpu.run for node in client.status().nodes for gpu in node.gpus if gpu.state == "running"]

        until(lambda: held() == [asked.run], "its GPU, which the gateway hears of after the node")
        until(lambda: client.events(asked.run).last == 3, "three events")
        page = client.events(asked.run, after=1)
        assert [(event.n, event.data["text"]) for event in page.events] == [(2, "line 2\n"), (3, "line 3\n")]
        client.cancel(asked.run)
        until(lambda: client.run(asked.run).state == "cancelled", "cancelled")
        row = client.runs().runs[0]
        assert (row.run, row.name, row.state, row.held_s > 0) == (asked.run, "by rest", "cancelled", True)
        with pytest.raises(NoSuchRunError):
            client.run("20260101-000000-00000000")


def test_the_status_document_is_what_interface_md_says(gateway: GatewayBed, http: httpx.Client) -> None:
    document = http.get("/v1/status", headers=_bearer(gateway.token)).json()
    assert document["schema_version"] == 1
    assert document["simulated"] is True
    assert document["gateway"].items() >= {"url": gateway.url, "up": True}.items()
    assert document["gpus"] == {"total": 4, "held": 0, "free": 4, "external": 0, "warm": 0}
    assert document["queue"] == []
    assert document["runs"] == []
    (node,) = document["nodes"]
    assert len(node["gpus"]) == 4
    fields = {"index", "uuid", "name", "memory_bytes", "used_bytes", "utilization", "state", "user", "run"}
    assert set(node["gpus"][0]) == fields | {"lease", "warm_until", "drained", "unwell", "parts", "slice_of"}
    assert {gpu["state"] for gpu in node["gpus"]} == {"free"}


def test_the_status_of_a_long_queue_is_bounded_and_says_what_it_leaves_out(gateway: GatewayBed, open_session) -> None:
    """Of others' runs the head of the queue, and the asker's own (a 3,000 run queue was 1.3 MB for everybody)."""
    session = open_session()
    held = request("hold", "session", gpus=4)
    holder = Reading(session.submit(held))
    holder.state("running")
    many = [request("print 1", "session") for _ in range(230)]
    feeds = [Reading(session.submit(asked)) for asked in many]
    with gateway.rest() as root:
        secret = root.create_token(TokenRequest("eve", "user", 3600.0)).secret
    others = GatewaySession(Target(gateway.url, secret), "s-eve")
    others.connect(60.0)
    own = request("print 1", "s-eve", gpus=2)
    for feed in feeds:
        feed.until(lambda item: isinstance(item, Accepted))
    Reading(others.submit(own)).until(lambda item: isinstance(item, Accepted))
    with gateway.rest() as root, GatewayClient(gateway.url, secret) as eve:
        seen, whole = eve.status(), root.status()
    others.close()
    session.close()  # ends the rest
    assert (seen.queue_total, seen.queue_gpus) == (whole.queue_total, whole.queue_gpus) == (231, 232)
    # who has less goes first once a pass has looked: until then her run is the last
    shown, hers = [row.run for row in seen.queue], [asked.run for asked in many]
    assert shown in ([*hers[:200], own.run], [own.run, *hers[:199]])
    assert [row.run for row in whole.queue if row.run != own.run] == hers, "all 230 of its own"
    assert {row.run for row in seen.runs} == {held.run, *(row.run for row in seen.queue)}


def test_openapi_names_every_route_and_resolves(gateway: GatewayBed, http: httpx.Client) -> None:
    document = http.get("/openapi.json", headers=_bearer(gateway.token)).json()
    assert document["openapi"].startswith("3.")
    assert set(document["paths"]) == {route.path for route in ROUTES}
    schemas = document["components"]["schemas"]
    references = {ref.rsplit("/", 1)[1] for ref in _references(document)}
    assert {"RunView", "StatusDocument", "RunRequest", "Error"} <= references
    assert references <= set(schemas)


def _references(part: object) -> Iterator[str]:
    if isinstance(part, dict):
        for key, value in part.items():
            if key == "$ref":
                yield value
            else:
                yield from _references(value)
    elif isinstance(part, list):
        for value in part:
            yield from _references(value)


def test_a_session_of_another_protocol_is_refused(gateway: GatewayBed) -> None:
    with _session_socket(gateway) as link:
        link.send(encode(Hello(PROTOCOL + 2, "s", "9.9")))
        refused = decode(link.recv(timeout=60), GatewayMessage)
        assert isinstance(refused, Refused)
        assert (refused.run, refused.code) == ("", "protocol_version")
        assert "9.9" in refused.message
        assert refused.hint
        with pytest.raises(Exception, match="1008"):
            link.recv(timeout=60)


@pytest.mark.parametrize("protocol", [PROTOCOL - 1, PROTOCOL + 1])
def test_a_session_of_the_version_before_or_after_is_served(gateway: GatewayBed, protocol: int) -> None:
    with _session_socket(gateway) as link:
        link.send(encode(Hello(protocol, f"apart-{protocol}", "9.9")))
        assert isinstance(decode(link.recv(timeout=60), GatewayMessage), Welcome)


@pytest.mark.parametrize(
    "first", [b"\x00", b"", encode(Heartbeat(1.0)), "text"], ids=["junk", "empty", "other", "text"]
)
def test_a_session_must_begin_with_hello(gateway: GatewayBed, first: bytes | str) -> None:
    with _session_socket(gateway) as link:
        link.send(first)
        refused = decode(link.recv(timeout=60), GatewayMessage)
        assert isinstance(refused, Refused)
        assert refused.code == "bad_request"


def test_junk_after_hello_ends_the_session_only(gateway: GatewayBed) -> None:
    with _session_socket(gateway) as link:
        link.send(encode(Hello(PROTOCOL, "s")))
        link.recv(timeout=60)
        link.send(b"\xc1")
        refused = decode(link.recv(timeout=60), GatewayMessage)
        assert isinstance(refused, Refused)
        assert refused.code == "bad_request"
    with gateway.rest() as client:
        assert client.health().ready


def test_events_as_json_socket(gateway: GatewayBed, open_session) -> None:
    asked = request("print 4\nhold\nprint 2", "session")
    reading = Reading(open_session().submit(asked))
    reading.event(4)
    url = gateway.url.replace("http", "ws", 1) + f"/v1/runs/{asked.run}/events?after=1"
    numbers, last = [], {}
    with connect(url, additional_headers=_bearer(gateway.token), proxy=None, open_timeout=60) as link:
        for text in link:
            last = json.loads(text)
            if last["type"] == "events":
                numbers += [event[0] for event in last["events"]]
                if numbers == [2, 3, 4]:
                    gateway.let_go(asked.run)
    assert numbers == [2, 3, 4, 5, 6]
    assert last["view"]["state"] == "succeeded"
    reading.end()


def _session_socket(gateway: GatewayBed) -> connect:
    url = gateway.url.replace("http", "ws", 1) + "/v1/session"
    return connect(url, additional_headers=_bearer(gateway.token), proxy=None, open_timeout=60)


def test_half_a_request_holds_nobody_up(gateway: GatewayBed) -> None:
    host, port = gateway.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as idle:
        idle.send(b"GET /v1/health HTTP/1.1\r\n")
        with gateway.rest() as client:
            assert client.health().ready


def test_an_idle_connection_is_its_clients_to_close() -> None:
    """One that the gateway closes may carry a request just then: our clients must give it up first."""

    async def app(scope: object, receive: object, send: object) -> None: ...

    assert settings_for(app).timeout_keep_alive > 2 * (httpx.Limits().keepalive_expiry or 0)


_UPGRADE = (
    "GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nConnection: Upgrade\r\n"
    "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
_POST = "POST /v1/runs HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nContent-Length: 1000\r\n\r\n{{"
_WAIT = "GET /v1/status?after={serial}&wait_ms=20000 HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n"


def test_a_client_that_goes_leaves_no_traceback(gateway: GatewayBed, open_session, until) -> None:
    """At whatever moment it does, politely or not."""
    asked = request("print 4\nhold", "session")
    reading = Reading(open_session().submit(asked))
    reading.event(4)
    host, port = gateway.url.removeprefix("http://").split(":")
    with gateway.rest() as client:
        serial = client.status().serial
    facts = {"host": host, "token": gateway.token, "serial": serial}
    hello = encode(Hello(PROTOCOL, "goes"))
    masked = b"\x82" + bytes([0x80 | len(hello)]) + b"\0\0\0\0" + hello
    session = _UPGRADE.format(path="/v1/session", **facts).encode()
    events = _UPGRADE.format(path=f"/v1/runs/{asked.run}/events", **facts).encode()
    denied = _UPGRADE.format(path="/v1/session", **facts | {"token": "wrong"}).encode()
    whole = [
        session,
        session + masked,
        session + masked[:5],
        events,
        denied,
        _POST.format(**facts).encode(),
        _WAIT.format(**facts).encode(),
    ]
    begun = len(gateway.log())
    for said in whole:
        for reset in (True, False):
            for answered in (True, False):
                with socket.create_connection((host, int(port))) as link:
                    link.sendall(said)
                    if answered and said not in whole[-2:]:
                        link.recv(10_000)
                    if reset:
                        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    gateway.let_go(asked.run)
    assert reading.end().state == "succeeded"
    with gateway.rest() as client:
        assert client.health().ready
    assert "Traceback" not in gateway.log()[begun:]
