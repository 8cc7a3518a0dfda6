"""The gateway's whole route table with no, wrong, expired, revoked, another user's, the user's and an admin's token.

Everything is made from ``ROUTES`` and ``ClientMessage``: a new route or message is tried without a word here.
"""

from __future__ import annotations

import json
import time
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from feeds import Reading
from ray_bed import GatewayBed, RayBed, request
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from jupyter_gpu_release.broker.ledger import StoredToken, open_ledger, put_token
from jupyter_gpu_release.broker.routes import ROUTES, Route
from jupyter_gpu_release.broker.tokens import digest_of
from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.client.session import ConnectionLost, GatewaySession
from jupyter_gpu_release.core.access_documents import TokenRequest, TokenRevocation
from jupyter_gpu_release.core.messages import decode, encode
from jupyter_gpu_release.core.session_messages import (
    PROTOCOL,
    ClientMessage,
    Detach,
    GatewayMessage,
    Heartbeat,
    Hello,
    Refused,
    Welcome,
)
from jupyter_gpu_release.errors import AuthenticationError, ForbiddenError

HTTP_ROUTES = [route for route in ROUTES if route.handler is not None]
SOCKET_ROUTES = [route for route in ROUTES if route.socket is not None]
#: messages of a session that name a run
RUN_MESSAGES = [kind for kind in typing.get_args(ClientMessage) if "run" in kind.__struct_fields__]
UNKNOWN = ("none", "wrong", "expired", "revoked")
_LET_IN = {200, 201, 202, 204, 400, 404, 409, 422}


@dataclass
class Team:
    """A gateway, tokens by name, and two runs of ann's: one over, one that goes on."""

    bed: GatewayBed
    secrets: dict[str, str]
    over: str
    held: str

    def headers(self, who: str, **more: str) -> dict[str, str]:
        secret = self.secrets.get(who)
        return ({"Authorization": f"Bearer {secret}"} if secret else {}) | more

    def path(self, route: Route, run: str) -> str:
        path = route.path.replace("{run}", run)
        path = path.replace("{lease}", "jgr-none").replace("{name}", "0" * 16)  # there are none
        assert "{" not in path, f"say here what stands for the parameter of {route.path}"
        return path

    def ask(self, who: str, route: Route, run: str, **headers: str) -> httpx.Response:
        url = self.bed.url + self.path(route, run)
        return httpx.request(route.method, url, headers=self.headers(who, **headers), trust_env=False, timeout=20)

    def open(self, who: str, route: Route, run: str, **headers: str) -> ClientConnection:
        url = self.bed.url.replace("http", "ws", 1) + self.path(route, run)
        return connect(url, additional_headers=self.headers(who, **headers), proxy=None, open_timeout=20)

    def refused(self, who: str, route: Route, run: str, **headers: str) -> tuple[int, str]:
        """Status and code of the refused upgrade."""
        with pytest.raises(InvalidStatus) as refused, self.open(who, route, run, **headers):
            pass
        response = refused.value.response
        return response.status_code, json.loads(response.body)["error"]["code"]

    def rest(self, who: str) -> GatewayClient:
        return GatewayClient(self.bed.url, self.secrets[who])

    def audit(self) -> list[dict[str, Any]]:
        text = (Path(self.bed.config.home) / "log" / "audit.jsonl").read_text()
        for secret in self.secrets.values():
            assert secret not in text
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def team(ray_bed: RayBed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    bed = GatewayBed(ray_bed, tmp_path_factory.mktemp("routes"), free_attempts=10_000, reconnect_grace_s=1.0)
    engine = open_ledger(Path(bed.config.home) / "ledger.sqlite")
    with engine.begin() as connection:
        past_s = time.time() - 10
        put_token(connection, StoredToken(digest_of("jgr_expired"), "old", "ann", "admin", past_s, 0.0))
    engine.dispose()
    assert bed.deploy().ok
    secrets = {"root": bed.token, "wrong": "jgr_" + "x" * 43, "expired": "jgr_expired"}
    with bed.rest() as root:
        for name, role in (("ann", "user"), ("bob", "user"), ("chief", "admin"), ("revoked", "admin")):
            secrets[name] = root.create_token(TokenRequest(name, role, 3600.0)).secret
        root.revoke_tokens(TokenRevocation(user="revoked"))
    session = GatewaySession(Target(bed.url, secrets["ann"]), "s-ann")
    session.connect()
    over, held = request("print 1\nvalues 5", "s-ann"), request("print 1\nhold", "s-ann")
    Reading(session.submit(over)).end()
    reading = Reading(session.submit(held))
    reading.state("running")
    yield Team(bed, secrets, over.run, held.run)
    bed.let_go(held.run)
    assert reading.end().state == "succeeded", "somebody who may not has ended ann's run"
    session.close()
    bed.end()


def _name(route: Route) -> str:
    return f"{route.method} {route.path}"


def is_closed_to(who: str, route: Route) -> bool:
    """Whether ``who`` is known and may not: a user at an admin's route, another user at ann's run."""
    return (route.admin and who in ("ann", "bob")) or ("{run}" in route.path and who == "bob")


# ------------------------------------------------------------------------------------------------- REST
@pytest.mark.parametrize("who", UNKNOWN)
@pytest.mark.parametrize("route", HTTP_ROUTES, ids=_name)
def test_whom_the_gateway_does_not_know_is_refused(team: Team, route: Route, who: str) -> None:
    answer = team.ask(who, route, team.held)
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthenticated")
    assert answer.headers["www-authenticate"] == "Bearer"
    words = {"expired": "expired on", "revoked": "revoked on", "none": "no bearer token", "wrong": "does not know"}
    assert words[who] in answer.json()["error"]["message"]


@pytest.mark.parametrize("who", ["ann", "bob", "chief", "root"])
@pytest.mark.parametrize("route", HTTP_ROUTES, ids=_name)
def test_who_is_known_gets_what_the_role_allows(team: Team, route: Route, who: str) -> None:
    if is_closed_to(who, route):
        answer = team.ask(who, route, team.held)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")
    else:
        answer = team.ask(who, route, team.over)
        assert answer.status_code in _LET_IN, answer.text
        assert answer.status_code != 404 or "{run}" not in route.path


def test_tokens_are_the_admins_business(team: Team) -> None:
    assert {_name(route) for route in ROUTES if "token" in route.path} == {
        "POST /v1/tokens",
        "GET /v1/tokens",
        "POST /v1/tokens/revoke",
    }
    with team.rest("ann") as ann, team.rest("root") as root:
        before = root.tokens()
        for forbidden in (
            lambda: ann.create_token(TokenRequest("ann", "admin")),
            lambda: ann.revoke_tokens(TokenRevocation(user="bob")),
            ann.tokens,
        ):
            with pytest.raises(ForbiddenError, match="is for admins, and ann is not one"):
                forbidden()
        assert [(row.id, row.state) for row in root.tokens().tokens] == [(row.id, row.state) for row in before.tokens]


@pytest.mark.parametrize("headers", [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Host": "evil"}], ids=str)
@pytest.mark.parametrize("route", HTTP_ROUTES, ids=_name)
def test_foreign_pages_are_refused_even_an_admins(team: Team, route: Route, headers: dict[str, str]) -> None:
    answer = team.ask("root", route, team.held, **headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")


def test_no_secret_in_any_answer(team: Team) -> None:
    for route in HTTP_ROUTES:
        if route.method == "GET":
            text = team.ask("root", route, team.over).text
            assert not [name for name, secret in team.secrets.items() if secret in text], route.path


# -------------------------------------------------------------------------------------------- WebSockets
@pytest.mark.parametrize("who", UNKNOWN)
@pytest.mark.parametrize("route", SOCKET_ROUTES, ids=_name)
def test_whom_the_gateway_does_not_know_gets_no_socket(team: Team, route: Route, who: str) -> None:
    assert team.refused(who, route, team.held) == (401, "unauthenticated")


@pytest.mark.parametrize("who", ["ann", "bob", "chief", "root"])
@pytest.mark.parametrize("route", SOCKET_ROUTES, ids=_name)
def test_who_is_known_gets_the_sockets_that_the_role_allows(team: Team, route: Route, who: str) -> None:
    if is_closed_to(who, route):
        assert team.refused(who, route, team.held) == (403, "forbidden")
    else:
        with team.open(who, route, team.over):
            pass


@pytest.mark.parametrize("headers", [{"Origin": "https://evil.example"}, {"Origin": "null"}], ids=str)
@pytest.mark.parametrize("route", SOCKET_ROUTES, ids=_name)
def test_foreign_pages_get_no_socket(team: Team, route: Route, headers: dict[str, str]) -> None:
    assert team.refused("root", route, team.held, **headers) == (403, "forbidden")


def _greeted(team: Team, who: str) -> ClientConnection:
    route = next(route for route in SOCKET_ROUTES if route.path == "/v1/session")
    socket = team.open(who, route, "")
    socket.send(encode(Hello(PROTOCOL, f"messages-{who}")))
    assert isinstance(decode(socket.recv(20), GatewayMessage), Welcome)
    return socket


@pytest.mark.parametrize("kind", RUN_MESSAGES, ids=lambda kind: kind.__name__)
def test_no_message_reaches_another_users_run(team: Team, kind: type[msgspec.Struct]) -> None:
    with _greeted(team, "bob") as socket:
        socket.send(encode(kind(run=team.held)))  # type: ignore[call-arg]
        answer = decode(socket.recv(20), GatewayMessage)
        assert isinstance(answer, Refused)
        assert (answer.run, answer.code) == (team.held, "forbidden")
    with _greeted(team, "chief") as socket:  # an admin's does (this run is over: nothing is changed)
        socket.send(encode(kind(run=team.over)))  # type: ignore[call-arg]
        socket.send(encode(Heartbeat(1.0)))
        while not isinstance(answer := decode(socket.recv(20), GatewayMessage), Heartbeat):
            assert not (isinstance(answer, Refused) and answer.code == "forbidden") or kind is Detach, "owners only"


# ------------------------------------------------------------------------------------- the end of a token
def _token(team: Team, user: str, expires_s: float = 3600.0) -> str:
    with team.rest("root") as root:
        secret = root.create_token(TokenRequest(user, expires_s=expires_s)).secret
    team.secrets[user] = secret
    return secret


def _submitted(team: Team, user: str, script: str) -> str:
    asked = request(script, "")
    url, body = f"{team.bed.url}/v1/runs", msgspec.json.encode(asked)
    answer = httpx.post(url, headers=team.headers(user), content=body, trust_env=False, timeout=20)
    assert answer.status_code == 201, answer.text
    return asked.run


def _closing(socket: ClientConnection) -> tuple[int, str]:
    """Code and words of the closing frame."""
    while True:
        try:
            socket.recv(20)
        except ConnectionClosed as closed:
            frame = closed.rcvd
            break
    assert frame is not None
    return frame.code, frame.reason


@pytest.mark.parametrize("route", SOCKET_ROUTES, ids=_name)
@pytest.mark.parametrize("how", ["revoked", "expired"])
def test_a_tokens_end_closes_what_it_opened(team: Team, route: Route, how: str) -> None:
    user = f"carl-{how}-{SOCKET_ROUTES.index(route)}"
    _token(team, user, 3600.0 if how == "revoked" else 4.0)
    run = _submitted(team, user, "hold")
    with team.open(user, route, run) as socket, team.open("root", route, team.held) as other:
        if route.path == "/v1/session":
            for each in (socket, other):
                each.send(encode(Hello(PROTOCOL, f"end-{user}-{each is other}")))
                assert isinstance(decode(each.recv(20), GatewayMessage), Welcome)
        if how == "revoked":
            with team.rest("chief") as chief:
                (row,) = chief.revoke_tokens(TokenRevocation(user=user)).tokens
            assert (row.user, row.state) == (user, "revoked")
        code, reason = _closing(socket)
        assert code == 1008
        assert f"this token {how}" in reason.replace("was ", "")
        assert other.ping().wait(20), "another's socket is open still"
    with team.rest(user) as client, pytest.raises(AuthenticationError, match=how):
        client.health()
    with team.rest("root") as root:
        root.cancel(run, kill=True)


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
