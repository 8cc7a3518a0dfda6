"""Requests of the REST clients: each goes to a route of the gateway, and what comes back is read, or said in words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import httpx
import msgspec
import pytest

from jupyter_gpu_release.client import rest
from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.rest import AsyncGatewayClient, GatewayClient, GatewayRequests, safe_path
from jupyter_gpu_release.errors import (
    AuthenticationError,
    GatewayUnavailableError,
    NoSuchRunError,
    OptionError,
    WrongAddressError,
)
from jupyter_gpu_release.gateway.api.route_table import ROUTES
from jupyter_gpu_release.protocol.admin import NodeDrain, TokenRequest, TokenRevocation
from jupyter_gpu_release.protocol.environments import EnvironmentRemoval, Plan, Question
from jupyter_gpu_release.protocol.lineage import CacheQuestion, CacheUse
from jupyter_gpu_release.protocol.rest import EstimateQuestion, NotifyChange
from jupyter_gpu_release.protocol.runs import ResourceAsk

RUN = "20261121-034512-9f3a12bc"
TARGET = Target("http://gateway.test", "secret", True)

#: call → request line; what stands behind a space is the body
CALLS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "health": (lambda c: c.health(), "GET /v1/health"),
    "checks": (lambda c: c.checks(), "GET /v1/checks"),
    "status": (lambda c: c.status(), "GET /v1/status"),
    "queues": (lambda c: c.queues(), "GET /v1/queues"),
    "ask_estimate": (lambda c: c.ask_estimate(EstimateQuestion(ResourceAsk(gpus=2))), "POST /v1/outlook"),
    "estimate": (lambda c: c.estimate(RUN), f"GET /v1/runs/{RUN}/outlook"),
    "runs": (lambda c: c.runs(), "GET /v1/runs?limit=100"),
    "own runs": (lambda c: c.runs(7, mine=True, brief=True), "GET /v1/runs?limit=7&mine=true&brief=true"),
    "trials": (lambda c: c.trials("a", "b"), "GET /v1/runs?limit=10000&mine=true&sweep=a%2Cb"),
    "run": (lambda c: c.run(RUN), f"GET /v1/runs/{RUN}"),
    "view": (lambda c: c.view(RUN), f"GET /v1/runs/{RUN}/outcome"),
    "view for": (lambda c: c.view(RUN, session="s"), f"GET /v1/runs/{RUN}/outcome?session=s"),
    "cancel": (lambda c: c.cancel(RUN), f"POST /v1/runs/{RUN}/cancel"),
    "kill": (lambda c: c.cancel(RUN, kill=True), f"POST /v1/runs/{RUN}/cancel?kill=true"),
    "preempt": (lambda c: c.preempt(RUN), f"POST /v1/runs/{RUN}/preempt"),
    "release_lease": (lambda c: c.release_lease(RUN), f"POST /v1/leases/{RUN}/release"),
    "pin": (lambda c: c.pin(RUN), f"POST /v1/runs/{RUN}/pin"),
    "unpin": (lambda c: c.pin(RUN, pinned=False), f"POST /v1/runs/{RUN}/unpin"),
    "import_run": (lambda c: c.import_run("abc", "eve"), "POST /v1/imports/abc?exported_by=eve"),
    "collect": (lambda c: c.collect(keep=3), "POST /v1/gc?dry_run=false&keep=3"),
    "events": (lambda c: c.events(RUN, 5), f"GET /v1/runs/{RUN}/events?after=5"),
    "create_token": (lambda c: c.create_token(TokenRequest("ann")), 'POST /v1/tokens {"user":"ann"}'),
    "tokens": (lambda c: c.tokens(), "GET /v1/tokens"),
    "revoke_tokens": (lambda c: c.revoke_tokens(TokenRevocation(user="ann")), "POST /v1/tokens/revoke"),
    "drain_node": (lambda c: c.drain_node(NodeDrain("n1")), "POST /v1/nodes/drain"),
    "resume_node": (lambda c: c.resume_node(NodeDrain("n1")), "POST /v1/nodes/resume"),
    "packages": (lambda c: c.packages(), "GET /v1/packages"),
    "check_packages": (lambda c: c.check_packages(Plan("3", "here")), "POST /v1/packages/check"),
    "resolve_packages": (lambda c: c.resolve_packages(Question([], [], [], [])), "POST /v1/packages/resolve"),
    "send_wheel": (lambda c: c.send_wheel("sha256:ab", b"x"), "POST /v1/packages/wheels/sha256:ab"),
    "environments": (lambda c: c.environments(), "GET /v1/environments"),
    "build_environment": (lambda c: c.build_environment(Plan("3", "here")), "POST /v1/environments/build"),
    "remove_environment": (
        lambda c: c.remove_environment(EnvironmentRemoval("abcd")),
        'POST /v1/environments/remove {"digest":"abcd"}',
    ),
    "notify": (lambda c: c.notify(), "GET /v1/notify"),
    "change_notify": (lambda c: c.change_notify(NotifyChange("a@b.c")), "POST /v1/notify"),
    "lineage": (lambda c: c.lineage(RUN), f"GET /v1/runs/{RUN}/lineage"),
    "cached": (lambda c: c.cached(CacheQuestion("k", [])), "POST /v1/cache"),
    "reused": (lambda c: c.reused(RUN, CacheUse()), f"POST /v1/runs/{RUN}/reused"),
    "document": (lambda c: c.document("/openapi.json"), "GET /openapi.json"),
    "extend_lease": (lambda c: c.extend_lease(RUN, 60.0), f'POST /v1/leases/{RUN}/extend {{"keep_s":60.0}}'),
    "test_notify": (lambda c: c.test_notify(9.0), "POST /v1/notify/test"),
}


class Wire:
    """The network: keeps the request, and gives one answer."""

    def __init__(self, answer: httpx.Response | Exception) -> None:
        self.answer = answer
        self.asked: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return httpx.Response(self.answer.status_code, content=self.answer.content)

    def sync_client(self) -> GatewayClient:
        client = GatewayClient.for_target(TARGET)
        kept = client._client
        client._client = httpx.Client(
            base_url=kept.base_url, headers=kept.headers, timeout=kept.timeout, transport=httpx.MockTransport(self)
        )
        return client

    def async_client(self) -> AsyncGatewayClient:
        client = AsyncGatewayClient(TARGET)
        kept = client._client
        client._client = httpx.AsyncClient(
            base_url=kept.base_url, headers=kept.headers, timeout=kept.timeout, transport=httpx.MockTransport(self)
        )
        return client


def _refused(status: int, code: str) -> httpx.Response:
    return httpx.Response(status, json={"error": {"code": code, "message": "no", "mend": "do that"}})


def _line(request: httpx.Request, expected: str) -> str:
    body = f" {request.content.decode()}" if " {" in expected else ""
    return f"{request.method} {request.url.raw_path.decode()}{body}"


def _is_route(request: httpx.Request) -> bool:
    asked = request.url.path.split("/")
    for route in ROUTES:
        parts = zip_longest(route.path.split("/"), asked, fillvalue="")
        if route.method == request.method and all(part == word or part.startswith("{") for part, word in parts):
            return True
    return False


#: seconds that the answer of a call may take, where the gateway waits for others itself
PATIENCE_S = {"test_notify": 19.0, "check_packages": 100.0, "resolve_packages": 100.0, "build_environment": 3610.0}


@pytest.mark.parametrize("name", CALLS)
def test_each_call_is_a_request_to_a_route(name: str) -> None:
    call, expected = CALLS[name]
    wire = Wire(_refused(400, "bad_option"))
    with wire.sync_client() as client, pytest.raises(OptionError) as caught:
        call(client)
    assert (caught.value.message, caught.value.hint) == ("no", "do that")
    (request,) = wire.asked
    assert _line(request, expected) == expected
    assert _is_route(request)
    assert request.headers["Authorization"] == "Bearer secret"
    assert request.extensions["timeout"]["read"] == PATIENCE_S.get(name, 10.0)


@pytest.mark.parametrize(
    ("call", "line", "read_s"),
    [
        (lambda c: c.ask(GatewayRequests.cancel, RUN, kill=True), f"POST /v1/runs/{RUN}/cancel?kill=true", 10.0),
        (lambda c: c.ask(GatewayRequests.test_notify, 9.0), "POST /v1/notify/test", 19.0),
        (lambda c: c.next_status("7", 2.5), "GET /v1/status?after=7&wait_ms=2500", 12.5),
    ],
)
def test_the_client_of_the_server_asks_the_same(call: Callable[[Any], Any], line: str, read_s: float) -> None:
    wire = Wire(_refused(404, "no_such_run"))

    async def ask() -> None:
        client = wire.async_client()
        try:
            await call(client)
        finally:
            await client.close()

    with pytest.raises(NoSuchRunError):
        asyncio.run(ask())
    (request,) = wire.asked
    assert _line(request, line) == line
    assert request.headers["Authorization"] == "Bearer secret"
    assert request.extensions["timeout"]["read"] == read_s


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (httpx.ConnectError("refused"), GatewayUnavailableError, "the gateway http://gateway.test does not answer"),
        (httpx.ReadTimeout("slow"), GatewayUnavailableError, "does not answer: slow"),
        (_refused(401, "unauthenticated"), AuthenticationError, "^no"),
        (httpx.Response(404, text="<html>"), WrongAddressError, "answered with HTTP 404: not a gateway"),
        (httpx.Response(503, text="<html>"), GatewayUnavailableError, "answered with HTTP 503"),
        (httpx.Response(400, json={"error": "x"}), WrongAddressError, "answered with HTTP 400"),
        (httpx.Response(200, json=["x"]), GatewayUnavailableError, "/v1/health answered with something else"),
    ],
)
def test_what_is_no_answer_is_said_in_words(
    answer: httpx.Response | Exception, kind: type[Exception], words: str
) -> None:
    with Wire(answer).sync_client() as client, pytest.raises(kind, match=words) as caught:
        client.health()
    assert type(caught.value) is kind
    assert caught.value.hint

    async def ask() -> None:
        client = Wire(answer).async_client()
        try:
            await client.ask(GatewayRequests.health)
        finally:
            await client.close()

    with pytest.raises(kind, match=words):
        asyncio.run(ask())


def test_its_connection_ends_with_it() -> None:
    with Wire(_refused(500, "internal")).sync_client() as client:
        assert not client._client.is_closed
    assert client._client.is_closed


def test_a_name_leads_nowhere_else() -> None:
    assert safe_path("../../v1/gc?x#") == "v1gcx"
    assert (safe_path(".."), safe_path(""), safe_path(RUN)) == ("-", "-", RUN)


def test_the_last_run_is_the_newest_or_the_newest_that_goes_on() -> None:
    def client(*states: str) -> GatewayClient:
        row = {"user": "ann", "gpus": 1, "ranks": 1, "simulated": False, "submitted_at": 1.0}
        rows = [{**row, "run": str(number), "state": state} for number, state in enumerate(states)]
        answer = msgspec.json.encode({"schema_version": 1, "runs": rows})
        return Wire(httpx.Response(200, content=answer)).sync_client()

    assert client("failed", "running").newest().run == "0"
    assert client("failed", "running", "queued").newest(live=True).run == "1"
    with pytest.raises(NoSuchRunError, match="no run is under way"):
        client("failed").newest(live=True)
    with pytest.raises(NoSuchRunError, match="there is no run yet"):
        client().newest()


def test_the_gateways_waiting_is_told_in_milliseconds() -> None:
    assert rest._waited_s("db;dur=3, wait;dur=1500.5") == 1.5005
    assert rest._waited_s("") == 0.0
