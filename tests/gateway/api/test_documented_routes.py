"""Requests made from the gateway's own OpenAPI document by schemathesis: right ones, and wrong ones of every kind.

A few for each route in ``make test-all``, a thousand each in ``make soak``. The gateway has simulated nodes, no Ray.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import hypothesis
import pytest
import requests
import schemathesis
from schemathesis import GenerationMode
from soak import sized

from benchmarks.broker.run import SimulatedCluster, simulated_cluster
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.gateway.api.openapi import openapi_document
from jupyter_gpu_release.gateway.api.route_table import ROUTES

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600), pytest.mark.thorough]
_PLAIN = [route for route in ROUTES if route.handler is not None]
_SCHEMA = schemathesis.openapi.from_dict(openapi_document(_PLAIN))
#: of the statuses that are meant; 429 is the limit for one user
_MEANT = {200, 201, 400, 401, 403, 404, 405, 409, 413, 422, 429}


@pytest.fixture(scope="module")
def cluster() -> Iterator[SimulatedCluster]:
    with simulated_cluster(1, 4) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def link() -> Iterator[requests.Session]:
    with requests.Session() as link:
        link.trust_env = False
        yield link


@pytest.mark.parametrize("route", _PLAIN, ids=lambda route: f"{route.method} {route.path}")
def test_whatever_is_sent_is_answered_as_documented(route, cluster: SimulatedCluster, link: requests.Session) -> None:  # type: ignore[no-untyped-def]
    answers: Counter[int] = Counter()
    operation = _SCHEMA[route.path][route.method]

    def send(case: schemathesis.Case) -> None:
        case.query = {name: value for name, value in (case.query or {}).items() if name != "wait_ms"}  # it would wait
        case.headers = {**(case.headers or {}), "Authorization": f"Bearer {cluster.token}"}
        response = case.call(base_url=cluster.url, session=link, timeout=60)
        answers[response.status_code] += 1
        assert response.status_code in _MEANT, f"{case.as_curl_command()}: {response.status_code} {response.text}"

    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
        limits = hypothesis.settings(
            max_examples=sized(2, 1000), database=None, suppress_health_check=list(hypothesis.HealthCheck)
        )
        limits(hypothesis.given(operation.as_strategy(generation_mode=mode))(send))()
    print(route.method, route.path, sorted(answers.items()))
    assert answers
    with GatewayClient(cluster.url, cluster.token) as gateway:
        assert gateway.health().ready
