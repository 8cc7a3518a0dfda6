"""Whatever is sent to the gateway, none of it is the gateway's own failure, and it goes on.

A few hundred requests in ``make test``, 60,000 in ``make soak``; made from the route table and the record types, so
a new route, message or field is tried without a word here. A failure names the seed.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import socket
import threading
from collections import Counter
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec
import pytest
from hostile import MESSAGES, example, fields_of, written
from ray_bed import request
from soak import sized
from team_bed import Team
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.gateway.api.route import Route
from jupyter_gpu_release.gateway.api.route_table import ROUTES
from jupyter_gpu_release.protocol.session import PROTOCOL, GatewayMessage, Heartbeat, Hello
from jupyter_gpu_release.protocol.states import new_run_id
from jupyter_gpu_release.protocol.wire import decode, encode

pytestmark = pytest.mark.soak
#: some requests are answered after 10 s only, when the gateway gives up on the rest of them
_THREADS = sized(3, 24)
_VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2**31, 2**53 + 1, 2**63, -(2**63), 2**64 - 1, 1e300, -0.0, 1e-320, float("nan"), float("inf"),
    "", "x", "\0", "../..", "é💥\u202e", "'; DROP TABLE runs; --", "x" * 300, "x" * 5000, "9" * 5000, [], [[[[]]]], {},
    {"": {}}, ["x"] * 300, {"x": 1}, b"", b"\xff" * 50, "20260101-000000-00000000", "NaN", "1e999", "[::1", "%00",
)  # fmt: skip
_HEADERS = (
    ("Host", "["), ("Host", ""), ("Origin", "http://["), ("Origin", "x" * 3000), ("Content-Length", "9" * 30),
    ("Authorization", "Bearer"), ("Authorization", "Bearer é"), ("Authorization", "Basic eDp5"),
    ("Upgrade", "websocket"),
    ("Connection", "upgrade"), ("Content-Type", "text/\xff"), ("Transfer-Encoding", "gzip"), ("X", "\x01"),
)  # fmt: skip


class Fuzzer:
    """Makes requests and messages from one seed."""

    def __init__(self, team: Team, seed: int) -> None:
        self._team = team
        self._chance = random.Random(seed)

    def value(self) -> Any:
        return self._chance.choice(_VALUES)

    def record(self, kind: type[msgspec.Struct]) -> Any:
        """A message that is right but for a few places, or nothing like one."""
        if self._chance.random() < 0.05:
            return self.value()
        made: Any = example(kind)
        places = [path for path, _ in fields_of(kind)]
        for _ in range(self._chance.choice((0, 1, 1, 1, 2, 5)) if places else 0):
            made = written(made if isinstance(made, dict) else {}, self._chance.choice(places), self.value())
        if "run" in made and self._chance.random() < 0.3:
            made["run"] = self._chance.choice((self._team.over, new_run_id(), "x"))
        return made

    def packed(self, kind: type[msgspec.Struct]) -> bytes:
        return self._garbled(encode(self.record(kind)))

    def body(self, kind: Any) -> bytes:
        if kind is None or self._chance.random() < 0.1:
            return str(self.value()).encode("utf-8", "surrogatepass")
        return self._garbled(json.dumps(self.record(kind), default=lambda value: value.decode("latin-1")).encode())

    def _garbled(self, data: bytes) -> bytes:
        chance = self._chance.random()
        if chance < 0.1:
            return data[: self._chance.randrange(len(data) + 1)]
        if chance < 0.2 and data:
            where = self._chance.randrange(len(data))
            return data[:where] + self._chance.randbytes(self._chance.choice((1, 4))) + data[where + 1 :]
        if chance < 0.21:
            return b"\x91" * 50_000 + data if data[:1] != b"{" else b"[" * 50_000
        return data

    def path(self, route: Route) -> str:
        parts = [self._part(part) if part.startswith("{") else part for part in route.path.split("/")]
        query = [(name, self._word()) for name in route.query if self._chance.random() < 0.5]
        if self._chance.random() < 0.1:
            query.append((self._word(), self._word()))
        return "/".join(parts) + ("?" if query else "") + "&".join(f"{quote(k)}={quote(v)}" for k, v in query)

    def _part(self, _name: str) -> str:
        return quote(self._chance.choice((self._team.over, new_run_id(), self._word())), safe="%")

    def _word(self) -> str:
        value = self.value()
        return (value.decode("latin-1") if isinstance(value, bytes) else str(value))[:3000]

    def request(self) -> tuple[str, str, bytes, dict[str, str]]:
        route = self._chance.choice([route for route in ROUTES if route.handler is not None])
        method = (
            route.method if self._chance.random() < 0.95 else self._chance.choice(("PUT", "DELETE", "OPTIONS", "HEAD"))
        )
        who = self._chance.choice(("ann", "ann", "bob", "root", "chief", "wrong", "none"))
        headers = self._team.headers(who)
        if self._chance.random() < 0.05:
            headers |= dict([self._chance.choice(_HEADERS)])
        path = self.path(route)
        if "wait_ms" in path:
            path = path.replace("wait_ms", "wait")  # a valid one waits for 30 s
        return method, path, self.body(route.body) if method == "POST" else b"", headers

    def raw(self) -> bytes:
        """Bytes of no protocol, or nearly of HTTP."""
        start = self._chance.choice((b"GET / HTTP/1.1\r\n", b"POST /v1/runs HTTP/9.9\r\n", b"\x16\x03\x01", b""))
        return start + self._chance.randbytes(self._chance.randrange(200)) + b"\r\n\r\n"


class Sender(threading.Thread):
    """Sends a share of the requests and counts the answers; what may not be is in ``failures``."""

    def __init__(self, team: Team, seed: int, count: int) -> None:
        super().__init__(name=f"fuzzer {seed}")
        self.answers: Counter[str] = Counter()
        self.failures: list[str] = []
        self._team, self._seed, self._count = team, seed, count
        self._fuzzer = Fuzzer(team, seed)
        self._place = urlsplit(team.bed.url)

    def run(self) -> None:
        try:
            while sum(self.answers.values()) < self._count * 2 // 3:
                self._over_http()
            while sum(self.answers.values()) < self._count:
                self._over_a_socket()
        except Exception as error:
            self.failures.append(f"seed {self._seed}: {error!r}")

    def _over_http(self) -> None:
        link = http.client.HTTPConnection(self._place.hostname or "", self._place.port, timeout=60)
        with contextlib.closing(link):
            for _ in range(50):
                method, path, body, headers = self._fuzzer.request()
                try:
                    link.request(method, path, body, headers)
                    answer = link.getresponse()
                    text = answer.read()
                except (http.client.HTTPException, OSError, ValueError) as error:
                    self.answers[type(error).__name__] += 1  # a header that no client may send, or the end after it
                    return
                self.answers[str(answer.status)] += 1
                if answer.status >= 500:
                    self.failures.append(f"seed {self._seed}: {method} {path} {body[:300]!r} {headers}: {text!r}")
        with socket.create_connection((self._place.hostname, self._place.port), timeout=60) as raw:
            raw.sendall(self._fuzzer.raw())
            raw.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):
                self.answers[f"raw {raw.recv(12)[9:].decode('latin-1')}"] += 1

    def _over_a_socket(self) -> None:
        url = self._team.bed.url.replace("http", "ws", 1) + "/v1/session"
        with (
            contextlib.suppress(ConnectionClosed),
            connect(url, additional_headers=self._team.headers("bob"), proxy=None, open_timeout=60) as link,
        ):
            begins_well = self._fuzzer._chance.random() < 0.9
            link.send(encode(Hello(PROTOCOL, f"fuzz-{self._seed}")) if begins_well else self._fuzzer.packed(Hello))
            for number in range(30):
                self.answers["message"] += 1
                link.send(self._fuzzer.packed(self._fuzzer._chance.choice(MESSAGES)))
                link.send(encode(Heartbeat(float(number))))
                while not isinstance(decode(link.recv(60), GatewayMessage), Heartbeat):
                    pass


def test_nothing_that_is_sent_is_the_gateways_failure(team: Team) -> None:
    with team.rest("root") as root:
        before = root.health()
    begun = len(team.bed.log())
    seed = random.randrange(2**32) // _THREADS * _THREADS
    senders = [Sender(team, seed + number, sized(600, 60_000) // _THREADS) for number in range(_THREADS)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    answers = sum((sender.answers for sender in senders), Counter())
    print(sorted(answers.items()))
    assert [failure for sender in senders for failure in sender.failures] == []
    assert {"200", "400", "401", "403", "404"} <= set(answers)
    with team.rest("root") as root:
        after = root.health()
    assert (after.ready, after.pid) == (True, before.pid), after.problems
    assert "Traceback" not in team.bed.log()[begun:]
    session = GatewaySession(Target(team.bed.url, team.secrets["ann"]), "s-after")
    session.connect(60.0)
    try:
        feed = session.submit(request("print 1", "s-after", gpus=0))
        while feed.view is None or feed.view.state != "succeeded":
            assert feed.next_item(60) is not None
    finally:
        session.close()
