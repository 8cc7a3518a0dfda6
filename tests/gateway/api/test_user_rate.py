"""A user who asks too often is told so, what her kernels say in crowds waits, and nobody else has to wait for it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import httpx
import pytest
from ray_bed import GatewayBed, RayBed
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from jupyter_gpu_release.gateway.auth.tokens import digest_of
from jupyter_gpu_release.gateway.db.database import open_ledger, put_token
from jupyter_gpu_release.gateway.db.rows import StoredToken


@pytest.fixture(scope="module")
def slow(ray_bed: RayBed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayBed]:
    """A gateway that hears each user every 2 s, 5 times at once; its own deployment asks no more than that."""
    bed = GatewayBed(ray_bed, tmp_path_factory.mktemp("rate"), user_requests_per_s=0.5, free_attempts=0)
    engine = open_ledger(Path(bed.config.home) / "ledger.sqlite")
    with engine.begin() as connection:
        for user in ("ann", "bob", "eve"):
            put_token(connection, StoredToken(digest_of(f"{user}-token"), f"{user}-1", user, "user", None, 0.0))
    engine.dispose()
    assert bed.deploy().ok
    yield bed
    bed.end()


def _headers(user: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {user}-token"}


def _ask(slow: GatewayBed, user: str) -> httpx.Response:
    # no certificates: to read the machine's takes 30 ms of CPU each time
    return httpx.get(f"{slow.url}/v1/runs", headers=_headers(user), trust_env=False, verify=False, timeout=60)


def _check(headers: Mapping[str, str], body: bytes, user: str) -> None:
    assert headers["retry-after"] in ("1", "2")
    error = json.loads(body)["error"]
    assert error["code"] == "too_many_requests"
    assert error["message"] == f"{user} asks more than 0.5 times a second"
    assert error["mend"] == "ask less often"


@pytest.mark.slow("it waits for the rate")
def test_who_asks_too_often_is_told_when_to_come_back_and_others_are_served(slow: GatewayBed) -> None:
    statuses = []
    while 429 not in statuses and len(statuses) < 500:  # a machine that stands still gives some back
        answer = _ask(slow, "ann")
        statuses.append(answer.status_code)
    assert statuses[:5] == [200] * 5
    assert statuses[-1] == 429
    _check(answer.headers, answer.content, "ann")
    assert _ask(slow, "bob").status_code == 200
    time.sleep(int(answer.headers["retry-after"]))
    assert _ask(slow, "ann").status_code == 200, "what was refused costs nothing"


def test_an_address_with_unknown_tokens_is_told_its_whole_wait(slow: GatewayBed, until: Callable[..., None]) -> None:
    """The wait doubles with each token that is looked at: 1 s, 2 s and so on."""

    def told() -> str:
        answer = _ask(slow, "nobody")
        assert answer.status_code in (401, 429)
        return answer.headers.get("retry-after", "")

    until(lambda: told() == "2", "the second wait")


def test_sockets_that_are_opened_count_too(slow: GatewayBed) -> None:
    def open_sockets() -> None:
        for _ in range(500):
            with connect(url, additional_headers=_headers("eve"), proxy=None, open_timeout=60):
                pass

    url = slow.url.replace("http", "ws", 1) + "/v1/session"
    with pytest.raises(InvalidStatus) as refused:
        open_sockets()
    response = refused.value.response
    assert response.status_code == 429
    _check(response.headers, response.body, "eve")
