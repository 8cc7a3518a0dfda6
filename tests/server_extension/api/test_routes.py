"""Every route: credentials, authorisation, XSRF; the OpenAPI file says what is served."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import pytest
from server_bed import API, LIMIT_S, ServerBed

from jupyter_gpu_release.server_extension.api.handlers import BASE, RouteHandler
from jupyter_gpu_release.server_extension.api.openapi import FILE, file_content, openapi_document
from jupyter_gpu_release.server_extension.api.routes import HANDLERS, OUTPUT
from jupyter_gpu_release.server_extension.api.routes import ROUTES as TABLE

#: parts of routes that stand for something, and an example of each
PARTS = {"{id}": "0f0f0f0f-1111", "{path}": "a/b.csv"}


def _filled(path: str) -> str:
    for part, text in PARTS.items():
        path = path.replace(part, text)
    return BASE + path


ROUTES = [(route.method, _filled(route.path)) for route in TABLE] + [("GET", _filled(OUTPUT[0]))]


def _name(route: tuple[str, str]) -> str:
    return f"{route[0]} {route[1]}"


@pytest.fixture
def stranger(server: ServerBed) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, trust_env=False, timeout=LIMIT_S) as client:
        yield client


@pytest.mark.parametrize("route", ROUTES, ids=_name)
def test_no_route_answers_without_credentials(stranger: httpx.Client, route: tuple[str, str]) -> None:
    for headers in ({}, {"Authorization": "token wrong"}):
        answer = stranger.request(*route, headers=headers)
        # Jupyter sends a browser that asks to its login page
        assert answer.status_code == 403 or (answer.status_code == 302 and "/login" in answer.headers["location"])
        assert "schema_version" not in answer.text


@pytest.mark.parametrize("route", [route for route in ROUTES if route[0] != "GET"], ids=_name)
def test_a_browsers_cookie_alone_changes_nothing(server: ServerBed, route: tuple[str, str]) -> None:
    facts: dict[str, Any] = {"trust_env": False, "follow_redirects": True, "timeout": LIMIT_S}
    with httpx.Client(base_url=server.url, **facts) as browser:
        assert browser.get("/api/me", params={"token": server.token}).status_code == 200
        assert browser.get(f"{API}/status").status_code == 200  # the cookie is good
        refused = browser.request(*route)
        assert refused.status_code == 403
        assert "_xsrf" in refused.text
        browser.get("/login")
        allowed = browser.request(*route, headers={"X-XSRFToken": browser.cookies.get("_xsrf", "")})
        assert allowed.status_code != 403


@pytest.fixture(scope="module")
def forbidding(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerBed]:
    """A server whose authoriser lets nobody in, and who says so (``X-May: read``) look."""
    folder = tmp_path_factory.mktemp("forbidding")
    (folder / "forbid.py").write_text(
        "from jupyter_server.auth import Authorizer\n"
        "class Forbid(Authorizer):\n"
        "    async def is_authorized(self, handler, user, action, resource):\n"
        "        return resource != 'gpu_release' or action == handler.request.headers.get('X-May')\n"
    )
    bed = ServerBed(folder, {"ServerApp": {"authorizer_class": "forbid.Forbid"}})
    yield bed
    bed.stop()


@pytest.mark.parametrize("route", ROUTES, ids=_name)
def test_an_authoriser_can_forbid_every_route(forbidding: ServerBed, route: tuple[str, str]) -> None:
    answer = forbidding.http.request(*route)
    assert answer.status_code == 403
    assert "not authorized" in answer.text or "Forbidden" in answer.text


def test_who_may_only_look_is_told_so(forbidding: ServerBed) -> None:
    looks = {"X-May": "read"}
    assert forbidding.http.get(f"{API}/status", headers=looks).json()["may_act"] is False
    assert forbidding.http.post(f"{API}/runs/some-run/cancel", headers=looks).status_code == 403


@pytest.mark.parametrize("route", ROUTES, ids=_name)
def test_every_route_answers_whom_it_knows(server: ServerBed, route: tuple[str, str]) -> None:
    answer = server.http.request(*route)
    assert answer.status_code in (200, 400, 404, 409, 501, 503), answer.text
    assert answer.headers["content-type"].startswith("application/json")
    if answer.status_code != 200:
        error = answer.json()["error"]
        assert error["message"]
        assert answer.json()["message"] == error["message"]


def test_the_openapi_file_is_of_this_code_and_names_every_route() -> None:
    assert FILE.read_bytes() == file_content(), "run python -m jupyter_gpu_release.server_extension.api.openapi"
    described = {(verb.upper(), path) for path, verbs in openapi_document()["paths"].items() for verb in verbs}
    assert described == {(route.method, BASE + route.path) for route in TABLE} | {("GET", BASE + OUTPUT[0])}


def test_all_routes_are_of_the_one_handler_whose_verbs_are_guarded() -> None:
    """What the tests above walk is all that is served: a verb without a route is refused behind the same guard."""
    assert {entry[1].__name__ for entry in HANDLERS} == {"RouteHandler", "OutputSocket"}
    verbs = {verb for verb in RouteHandler.SUPPORTED_METHODS if verb.lower() in vars(RouteHandler)}
    assert verbs == {route.method for route in TABLE}


@pytest.mark.parametrize("route", [("POST", "/status"), ("GET", "/cluster/start"), ("PUT", "/runs")])
def test_a_verb_without_a_route_is_refused(server: ServerBed, stranger: httpx.Client, route: tuple[str, str]) -> None:
    verb, path = route[0], BASE + route[1]
    assert server.http.request(verb, path).status_code == 405
    assert stranger.request(verb, path).status_code in (302, 403, 405)


@pytest.mark.parametrize(
    "path", [p for v, p in ROUTES if v == "GET" and p in (f"{BASE}/{name}" for name in ("status", "health", "kernels"))]
)
def test_answers_are_as_described(server: ServerBed, path: str) -> None:
    document: dict[str, Any] = json.loads(FILE.read_text())
    schema = document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    answer = server.http.get(path)
    assert answer.status_code == 200
    jsonschema.validate(answer.json(), schema | {"components": document["components"]})


def test_bad_numbers_and_bodies_are_refused(server: ServerBed) -> None:
    for limit in ("0", "-1", "x", "1001"):
        assert server.http.get(f"{API}/runs", params={"limit": limit}).status_code == 400
    assert server.post("leases/x/extend", {"keep_s": "long"}).status_code == 400
    assert server.post("leases/x/extend", {"keep_s": -1}).status_code == 400
    for path, more, said in (
        ("leases/x/extend", {"content": b"{" * 70000}, "the body is larger than 65536 bytes"),
        ("leases/x/extend", {"content": b"{"}, "the body is not what this route takes"),
        ("cells", None, "no notebook is named"),
        ("runs/x/output", None, "this route is a WebSocket"),
    ):
        answer = server.http.get(f"{API}/{path}") if more is None else server.http.post(f"{API}/{path}", **more)
        assert (answer.status_code, said in answer.json()["message"]) == (400, True), answer.text
