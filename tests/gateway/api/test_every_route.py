"""The gateway's whole route table with no, wrong, expired, revoked, another user's, the user's and an admin's token.

Everything is made from ``ROUTES`` and ``ClientMessage``: a new route or message is tried without a word here.
"""

from __future__ import annotations

import typing

import msgspec
import pytest
from team_bed import SOCKET_ROUTES, Team, name_of
from websockets.sync.client import ClientConnection

from jupyter_gpu_release.errors import ForbiddenError
from jupyter_gpu_release.gateway.api.route import Route
from jupyter_gpu_release.gateway.api.route_table import ROUTES
from jupyter_gpu_release.protocol.admin import TokenRequest, TokenRevocation
from jupyter_gpu_release.protocol.session import (
    PROTOCOL,
    ClientMessage,
    Detach,
    GatewayMessage,
    Heartbeat,
    Hello,
    Refused,
    Supply,
    Welcome,
)
from jupyter_gpu_release.protocol.wire import decode, encode

HTTP_ROUTES = [route for route in ROUTES if route.handler is not None]
#: messages of a session that name a run
RUN_MESSAGES = [kind for kind in typing.get_args(ClientMessage) if "run" in kind.__struct_fields__]
UNKNOWN = ("none", "wrong", "expired", "revoked")
_LET_IN = {200, 201, 202, 204, 400, 404, 409, 422}


#: admins neither load nor reuse the values of others: pickles run code
_VALUES_OF_THE_OWNER = {"/v1/runs/{run}/reused"}


def is_closed_to(who: str, route: Route) -> bool:
    """Tell if ``who`` is known and may not: a user at an admin's route, another's run, anyone's values."""
    if route.path in _VALUES_OF_THE_OWNER:
        return who != "ann"
    return (route.admin and who in ("ann", "bob")) or ("{run}" in route.path and who == "bob")


# ------------------------------------------------------------------------------------------------- REST
@pytest.mark.slow("the first of a module starts its gateway")
@pytest.mark.parametrize("who", UNKNOWN)
@pytest.mark.parametrize("route", HTTP_ROUTES, ids=name_of)
def test_whom_the_gateway_does_not_know_is_refused(team: Team, route: Route, who: str) -> None:
    answer = team.ask(who, route, team.held)
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthenticated")
    assert answer.headers["www-authenticate"] == "Bearer"
    words = {"expired": "expired on", "revoked": "revoked on", "none": "no bearer token", "wrong": "does not know"}
    assert words[who] in answer.json()["error"]["message"]


@pytest.mark.parametrize("who", ["ann", "bob", "chief", "root"])
@pytest.mark.parametrize("route", HTTP_ROUTES, ids=name_of)
def test_who_is_known_gets_what_the_role_allows(team: Team, route: Route, who: str) -> None:
    if is_closed_to(who, route):
        answer = team.ask(who, route, team.held)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")
    else:
        answer = team.ask(who, route, team.over)
        assert answer.status_code in _LET_IN, answer.text
        assert answer.status_code != 404 or "{run}" not in route.path


def test_tokens_are_the_admins_business(team: Team) -> None:
    assert {name_of(route) for route in ROUTES if "token" in route.path} == {
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
@pytest.mark.parametrize("route", HTTP_ROUTES, ids=name_of)
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
@pytest.mark.parametrize("route", SOCKET_ROUTES, ids=name_of)
def test_whom_the_gateway_does_not_know_gets_no_socket(team: Team, route: Route, who: str) -> None:
    assert team.refused(who, route, team.held) == (401, "unauthenticated")


@pytest.mark.parametrize("who", ["ann", "bob", "chief", "root"])
@pytest.mark.parametrize("route", SOCKET_ROUTES, ids=name_of)
def test_who_is_known_gets_the_sockets_that_the_role_allows(team: Team, route: Route, who: str) -> None:
    if is_closed_to(who, route):
        assert team.refused(who, route, team.held) == (403, "forbidden")
    else:
        with team.open(who, route, team.over):
            pass


@pytest.mark.parametrize("headers", [{"Origin": "https://evil.example"}, {"Origin": "null"}], ids=str)
@pytest.mark.parametrize("route", SOCKET_ROUTES, ids=name_of)
def test_foreign_pages_get_no_socket(team: Team, route: Route, headers: dict[str, str]) -> None:
    assert team.refused("root", route, team.held, **headers) == (403, "forbidden")


def _greeted(team: Team, who: str) -> ClientConnection:
    route = next(route for route in SOCKET_ROUTES if route.path == "/v1/session")
    socket = team.open(who, route, "")
    socket.send(encode(Hello(PROTOCOL, f"messages-{who}")))
    assert isinstance(decode(socket.recv(60), GatewayMessage), Welcome)
    return socket


@pytest.mark.parametrize("kind", RUN_MESSAGES, ids=lambda kind: kind.__name__)
def test_no_message_reaches_another_users_run(team: Team, kind: type[msgspec.Struct]) -> None:
    with _greeted(team, "bob") as socket:
        socket.send(encode(kind(run=team.held)))  # type: ignore[call-arg]
        answer = decode(socket.recv(60), GatewayMessage)
        assert isinstance(answer, Refused)
        assert (answer.run, answer.code) == (team.held, "forbidden")
    with _greeted(team, "chief") as socket:  # an admin's does (this run is over: nothing is changed)
        socket.send(encode(kind(run=team.over)))  # type: ignore[call-arg]
        socket.send(encode(Heartbeat(1.0)))
        while not isinstance(answer := decode(socket.recv(60), GatewayMessage), Heartbeat):
            assert not (isinstance(answer, Refused) and answer.code == "forbidden") or kind in (Detach, Supply), (
                "owners only"
            )
