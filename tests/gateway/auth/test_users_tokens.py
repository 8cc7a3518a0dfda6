"""Users' tokens on a real gateway: what their end closes, what survives a restart, what the audit log says."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from feeds import Reading
from ray_bed import request
from team_bed import SOCKET_ROUTES, Team, name_of
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection

from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.feed import ConnectionLost
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.errors import AuthenticationError, ForbiddenError
from jupyter_gpu_release.gateway.api.route import Route
from jupyter_gpu_release.protocol.admin import TokenRequest, TokenRevocation
from jupyter_gpu_release.protocol.session import PROTOCOL, GatewayMessage, Hello, Welcome
from jupyter_gpu_release.protocol.wire import decode, encode


def _token(team: Team, user: str, expires_s: float = 3600.0) -> str:
    with team.rest("root") as root:
        secret = root.create_token(TokenRequest(user, expires_s=expires_s)).secret
    team.secrets[user] = secret
    return secret


def _submitted(team: Team, user: str, script: str) -> str:
    asked = request(script, "")
    url, body = f"{team.bed.url}/v1/runs", msgspec.json.encode(asked)
    answer = httpx.post(url, headers=team.headers(user), content=body, trust_env=False, timeout=60)
    assert answer.status_code == 201, answer.text
    return asked.run


def _closing(socket: ClientConnection) -> tuple[int, str]:
    """Code and words of the closing frame."""
    while True:
        try:
            socket.recv(60)
        except ConnectionClosed as closed:
            frame = closed.rcvd
            break
    assert frame is not None
    return frame.code, frame.reason


def _opened(team: Team, user: str, route: Route, run: str, session: str) -> ClientConnection:
    socket = team.open(user, route, run)
    if route.path == "/v1/session":
        socket.send(encode(Hello(PROTOCOL, session)))
        assert isinstance(decode(socket.recv(60), GatewayMessage), Welcome)
    return socket


def _expiring(team: Team, user: str, route: Route, run: str, session: str) -> ClientConnection:
    """By a token that lasts no longer than it takes to open it, or not much."""
    for lasts_s in (3.0, 10.0):
        _token(team, user, lasts_s)
        with suppress(InvalidStatus, ConnectionClosed):
            return _opened(team, user, route, run, session)
    _token(team, user, 40.0)
    return _opened(team, user, route, run, session)


@pytest.mark.parametrize("route", SOCKET_ROUTES, ids=name_of)
@pytest.mark.parametrize("how", ["revoked", "expired"])
def test_a_tokens_end_closes_what_it_opened(team: Team, route: Route, how: str) -> None:
    user = f"carl-{how}-{SOCKET_ROUTES.index(route)}"
    _token(team, user)
    run = _submitted(team, user, "hold")
    with (
        _opened(team, "root", route, team.held, f"other-than-{user}") as other,
        (_expiring if how == "expired" else _opened)(team, user, route, run, f"end-{user}") as socket,
    ):
        if how == "revoked":
            with team.rest("chief") as chief:
                (row,) = chief.revoke_tokens(TokenRevocation(user=user)).tokens
            assert (row.user, row.state) == (user, "revoked")
        code, reason = _closing(socket)
        assert code == 1008
        assert f"this token {how}" in reason.replace("was ", "")
        assert other.ping().wait(60), "another's socket is open still"
    with team.rest(user) as client, pytest.raises(AuthenticationError, match=how):
        client.health()
    with team.rest("root") as root:
        root.cancel(run, kill=True)


def test_a_tokens_end_ends_the_wait_for_a_change(team: Team) -> None:
    secret = _token(team, "watcher")
    with httpx.Client(base_url=team.bed.url, headers=team.headers("watcher"), trust_env=False, timeout=60) as client:
        serial = client.get("/v1/status").json()["serial"]
        with ThreadPoolExecutor(1) as pool, team.rest("chief") as chief:
            # whatever else happens on this gateway may answer it: it asks again, as servers do
            waiting = pool.submit(_watch_until_refused, client, serial)
            chief.revoke_tokens(TokenRevocation(user="watcher"))
            refused = waiting.result(20)  # the wait would be over after 30 s
    assert refused["code"] == "unauthenticated"
    assert "this token was revoked" in refused["message"]
    assert secret not in str(refused)


def _watch_until_refused(client: httpx.Client, serial: str) -> dict[str, str]:
    while True:
        answer = client.get("/v1/status", params={"after": serial, "wait_ms": 30000}).json()
        if "error" in answer:
            return dict(answer["error"])
        serial = answer["serial"]


def test_a_kernel_hears_that_its_token_is_revoked(team: Team) -> None:
    session = GatewaySession(Target(team.bed.url, _token(team, "dora")), "s-dora")
    session.connect()
    asked = request("hold", "s-dora")
    reading = Reading(session.submit(asked))
    reading.state("running")
    with team.rest("root") as root:
        root.revoke_tokens(TokenRevocation(user="dora"))
        lost = reading.until(lambda item: isinstance(item, ConnectionLost) and item.final)
        assert isinstance(lost, ConnectionLost)
        assert "this token was revoked" in str(lost.error)
        session.close()
        watcher = GatewaySession(Target(team.bed.url, team.secrets["root"]), "s-watch")
        watcher.connect()  # her kernel is gone for the gateway: its runs end after the grace
        assert Reading(watcher.follow(asked.run)).end().state == "cancelled"
        watcher.close()


def test_revocations_survive_the_gateway(team: Team, until: Any) -> None:
    kept, gone = _token(team, "kept"), _token(team, "gone")
    with team.rest("root") as root:
        root.revoke_tokens(TokenRevocation(user="gone"))
        before = team.bed.kill_gateway()
        until(lambda: _pid(root) not in (None, before), "the gateway's next life")
        assert {row.user: row.state for row in root.tokens().tokens if row.user in ("kept", "gone")} == {
            "kept": "active",
            "gone": "revoked",
        }
    with GatewayClient(team.bed.url, kept) as client:
        assert client.health()
    with GatewayClient(team.bed.url, gone) as client, pytest.raises(AuthenticationError, match="revoked"):
        client.health()


def _pid(client: GatewayClient) -> int | None:
    try:
        return client.health().pid
    except Exception:
        return None


# --------------------------------------------------------------------------------------------- audit log
def test_what_admins_do_and_what_is_refused_is_audited(team: Team) -> None:
    run = _submitted(team, "ann", "hold")
    with team.rest("chief") as chief, team.rest("bob") as bob:
        for forbidden in (bob.cancel, bob.events):
            with pytest.raises(ForbiddenError):
                forbidden(run)
        with pytest.raises(ForbiddenError, match="for admins"):
            bob.tokens()
        chief.run(run)
        chief.cancel(run, kill=True)
        issued = chief.create_token(TokenRequest("eve", "user", 60.0, "a label"))
        chief.revoke_tokens(TokenRevocation(id=issued.token.id))
        chief.tokens()
    team.secrets["eve"] = issued.secret
    session = next(route for route in SOCKET_ROUTES if route.path == "/v1/session")
    team.refused("root", session, "", Origin="https://evil.example")
    team.refused("expired", session, "")
    lines = team.audit()

    def noted(**facts: str) -> list[dict[str, Any]]:
        return [line for line in lines if facts.items() <= line.items()]

    for facts in (
        {"user": "bob", "action": "run.change", "target": run, "result": "forbidden", "detail": "owner ann"},
        {"user": "bob", "action": "run.read", "target": run, "result": "forbidden"},
        {"user": "bob", "action": "GET /v1/tokens", "result": "forbidden", "role": "user"},
        {"user": "chief", "action": "run.read", "target": run, "result": "ok"},
        {"user": "chief", "action": "run.change", "target": run, "result": "ok"},
        {"user": "chief", "action": "token.create", "target": issued.token.id, "result": "ok"},
        {"user": "chief", "action": "token.revoke", "target": issued.token.id, "result": "ok"},
        {"user": "chief", "action": "token.list", "result": "ok"},
    ):
        line = noted(**facts)[-1]
        assert line["origin"] == "127.0.0.1"
        assert line["token"]
    assert noted(action="WS /v1/session", result="unauthenticated")
    assert noted(action="WS /v1/session", result="forbidden")
    assert not noted(user="ann", action="run.read"), "what owners do with their own runs is their own business"


def test_a_token_in_a_url_opens_nothing_and_is_not_logged(team: Team) -> None:
    secret = team.secrets["root"]
    for url in (f"/v1/health?token={secret}", f"/v1/runs/{secret}", f"/{secret}"):
        assert httpx.get(team.bed.url + url, trust_env=False).status_code == 401
        httpx.get(team.bed.url + url, headers=team.headers("root"), trust_env=False)
    assert team.audit()
    for file in Path(team.bed.config.home).rglob("log/*"):
        assert secret not in file.read_text()
