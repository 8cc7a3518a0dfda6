"""Whatever is sent to the gateway, none of it is the gateway's own failure, and it goes on.

A few hundred requests in ``make test-all``, 60,000 in ``make soak``; made from the route table and the record types, so
a new route, message or field is tried without a word here. Clients that break the WebSocket protocol itself are some
tens, or thousands. A failure names the seed.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager as Context
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec
import psutil
import pytest
from hostile import MESSAGES, example, fields_of, written
from ray_bed import request
from soak import sized
from team_bed import Team
from websockets.client import ClientProtocol
from websockets.exceptions import ConnectionClosed
from websockets.frames import Opcode
from websockets.protocol import State
from websockets.sync.client import connect
from websockets.uri import parse_uri

from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.gateway.api.app import _FRAME_LIMIT_BYTES
from jupyter_gpu_release.gateway.api.route import Route
from jupyter_gpu_release.gateway.api.route_table import ROUTES
from jupyter_gpu_release.protocol.session import PROTOCOL, GatewayMessage, Heartbeat, Hello
from jupyter_gpu_release.protocol.states import new_run_id
from jupyter_gpu_release.protocol.wire import decode, encode

pytestmark = pytest.mark.soak
#: some requests are answered after 10 s only, when the gateway gives up on the rest of them
_THREADS = sized(3, 24)
#: by which the gateway may grow meanwhile: far less than one for each request
_DESCRIPTORS = 20
_MEMORY_BYTES = 100 << 20
_VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1,
    2**31,
    2**53 + 1,
    2**63,
    -(2**63),
    2**64 - 1,
    1e300,
    -0.0,
    1e-320,
    float("nan"),
    float("inf"),
    "",
    "x",
    "\0",
    "../..",
    "é💥\u202e",
    "'; DROP TABLE runs; --",
    "x" * 300,
    "x" * 5000,
    "9" * 5000,
    [],
    [[[[]]]],
    {},
    {"": {}},
    ["x"] * 300,
    {"x": 1},
    b"",
    b"\xff" * 50,
    "20260101-000000-00000000",
    "NaN",
    "1e999",
    "[::1",
    "%00",
)
_HEADERS = (
    ("Host", "["),
    ("Host", ""),
    ("Origin", "http://["),
    ("Origin", "x" * 3000),
    ("Content-Length", "9" * 30),
    ("Authorization", "Bearer"),
    ("Authorization", "Bearer é"),
    ("Authorization", "Basic eDp5"),
    ("Upgrade", "websocket"),
    ("Connection", "upgrade"),
    ("Content-Type", "text/\xff"),
    ("Transfer-Encoding", "gzip"),
    ("X", "\x01"),
)


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


def _head(first: int, length: int, *, mask: bool = True) -> bytes:
    """The beginning of a frame: whatever ``first`` byte, a declared ``length``, and a mask that changes nothing."""
    bit = 0x80 if mask else 0
    if length < 126:
        return bytes([first, bit | length]) + bytes(4 * mask)
    return struct.pack("!BBQ", first, bit | 127, length) + bytes(4 * mask)


def _whole(first: int, data: bytes = b"", *, mask: bool = True) -> bytes:
    return _head(first, len(data), mask=mask) + data


def _cut(chance: random.Random, data: bytes) -> list[bytes]:
    where = chance.randrange(len(data) + 1)
    return [data[:where], data[where:]]


_FIN, _CONT, _TEXT, _BINARY = 0x80, Opcode.CONT, Opcode.TEXT, Opcode.BINARY
_CLOSE, _PING = _FIN | Opcode.CLOSE, _FIN | Opcode.PING
#: pieces of what no client may send: whoever reads it ends the connection
_BROKEN: dict[str, Callable[[random.Random], list[bytes]]] = {
    "an unknown opcode": lambda chance: [_whole(_FIN | chance.choice((3, 4, 5, 6, 7, 11, 12, 13, 14, 15)), b"x")],
    "no mask": lambda chance: _cut(chance, _whole(_FIN | _BINARY, b"x" * 50, mask=False)),
    "reserved bits": lambda chance: [_whole(_FIN | _BINARY | chance.choice((0x10, 0x20, 0x40, 0x70)), b"x")],
    "too large": lambda chance: [_head(_FIN | _BINARY, chance.choice((_FRAME_LIMIT_BYTES + 1, 2**32, 2**63 - 1)))],
    "too large in parts": lambda _: [_whole(_BINARY, b"x"), _head(_CONT, _FRAME_LIMIT_BYTES)],
    "a negative length": lambda _: [_head(_FIN | _BINARY, 2**64 - 1)],
    "a long ping": lambda chance: _cut(chance, _head(_PING, 126) + bytes(126)),
    "a ping in parts": lambda _: [_whole(Opcode.PING, b"x")],
    "the rest of nothing": lambda chance: [_whole(chance.choice((0, _FIN)) | _CONT, b"x")],
    "a message in a message": lambda _: [_whole(_BINARY, b"x"), _whole(_FIN | _BINARY, b"x")],
    "no text": lambda chance: _cut(chance, _whole(_FIN | _TEXT, b"\xff\xfe")),
    "no text, twice, and a close": lambda _: [_whole(_FIN | _TEXT, b"\xff") * 2 + _whole(_CLOSE)],
    "a close of one byte": lambda _: [_whole(_CLOSE, b"\x03")],
    "a close with no code": lambda chance: [_whole(_CLOSE, chance.choice((b"\0\0", b"\x03\xed", b"\x03\xe8\xff")))],
    "a close in a message": lambda _: [_whole(_BINARY, b"x"), _whole(_CLOSE)],
    "a close": lambda _: [_whole(_CLOSE, b"\x03\xe8"), _whole(_FIN | _BINARY, b"too late")],
}
#: what may go on for ever: the connection lasts until the client goes
_UNFINISHED: dict[str, Callable[[random.Random], list[bytes]]] = {
    "nothing": lambda _: [],
    "random bytes": lambda chance: [chance.randbytes(chance.randrange(1, 500)) for _ in range(3)],
    "a head": lambda chance: [_head(_FIN | _BINARY, _FRAME_LIMIT_BYTES)[: chance.randrange(1, 14)]],
    "half a message": lambda chance: [_head(_FIN | _BINARY, _FRAME_LIMIT_BYTES) + bytes(chance.randrange(50_000))],
    "drops": lambda _: [bytes([byte]) for byte in _head(_FIN | _BINARY, 1000) + bytes(10)],
    "endless parts": lambda chance: [_whole(_BINARY, b"x")] + [_whole(_CONT, b"x" * chance.randrange(2)) * 1000] * 5,
    "pings": lambda _: [_whole(_PING, bytes(125)) * 200] * 5,
    "pongs": lambda _: [_whole(_FIN | Opcode.PONG, bytes(125)) * 200],
}


class RawSocket:
    """A client that upgrades a connection as it should and then sends bytes as they are."""

    def __init__(self, team: Team, who: str, path: str, **more: str) -> None:
        self._protocol = ClientProtocol(parse_uri(team.bed.url.replace("http", "ws", 1) + path))
        asked = self._protocol.connect()
        asked.headers.update(team.headers(who, **more))
        self._protocol.send_request(asked)
        place = urlsplit(team.bed.url)
        self.link = socket.create_connection((place.hostname, place.port), timeout=60)
        self.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.send(*self._protocol.data_to_send())

    def send(self, *pieces: bytes, pause_s: float = 0.0) -> None:
        """Send until the gateway ends the connection."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for piece in pieces:
                self.link.sendall(piece)
                time.sleep(pause_s)

    def upgraded(self) -> bool:
        """Wait for the answer to the upgrade; tell if it was granted."""
        while self._protocol.state is State.CONNECTING and self._read():
            pass
        return self._protocol.state is State.OPEN

    def read_to_the_end(self, *, echo: bool = True) -> None:
        """Read until the gateway has ended the connection; raises if it does not for a minute."""
        while self._read():
            answer = self._protocol.data_to_send()
            self.send(*(answer if echo else ()))

    def go(self, how: str) -> None:
        """Close the connection, or half of it, or reset it."""
        with contextlib.closing(self.link):
            if how == "half":
                with contextlib.suppress(OSError):  # it was ended already
                    self.link.shutdown(socket.SHUT_WR)
                self.read_to_the_end(echo=False)
            elif how == "reset":
                self.link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def _read(self) -> bool:
        try:
            data = self.link.recv(1 << 16)
        except ConnectionResetError:
            return False
        self._protocol.receive_data(data) if data else self._protocol.receive_eof()
        return bool(data)


class Breaker(threading.Thread):
    """Upgrades connections and breaks the protocol on them; what the gateway does not end is in ``failures``."""

    def __init__(self, team: Team, seed: int, count: int) -> None:
        super().__init__(name=f"breaker {seed}")
        self.failures: list[str] = []
        self.sent: Counter[str] = Counter()
        self._team, self._seed, self._count = team, seed, count
        self._chance = random.Random(seed)
        self._tricks = [*_BROKEN.items(), *_UNFINISHED.items()]

    def run(self) -> None:
        for number in range(self._count):
            name, pieces = self._tricks[(self._seed + number) % len(self._tricks)]
            who, path = self._chance.choice((("bob", "/v1/session"), ("ann", f"/v1/runs/{self._team.held}/events")))
            try:
                self._break(number, name, pieces(self._chance), who, path)
            except Exception as error:
                self.failures.append(f"seed {self._seed}: {name}, {path}: {error!r}")

    def _break(self, number: int, name: str, pieces: list[bytes], who: str, path: str) -> None:
        raw = RawSocket(self._team, who, path)
        waits = self._chance.random() < 0.7  # others send before they are let in
        with contextlib.closing(raw.link):
            if waits and not raw.upgraded():
                self.sent["refused"] += 1
                return
            if path == "/v1/session" and self._chance.random() < 0.7:
                raw.send(_whole(_FIN | _BINARY, encode(Hello(PROTOCOL, f"raw-{self._seed}-{number}"))))
            raw.send(*pieces, pause_s=0.01 if name == "drops" or not waits else 0.0)
            self.sent[name] += 1
            if name in _BROKEN and waits:
                raw.read_to_the_end()
            else:
                raw.go(self._chance.choice(("whole", "half", "reset")))


class Process:
    """The gateway's process as its system sees it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._process = psutil.Process(pid)

    def connections(self, port: int) -> int:
        return sum(bool(each.raddr) and each.laddr.port == port for each in self._process.net_connections("tcp"))

    def descriptors(self) -> int:
        return self._process.num_fds()

    def rss_bytes(self) -> int:
        return self._process.memory_info().rss

    def threads(self) -> Counter[str]:
        """How many of each name; gRPC ends some of its own when it has little to do."""
        names = [(task / "comm").read_text().strip() for task in Path(f"/proc/{self.pid}/task").iterdir()]
        return Counter(name for name in names if name != "event_engine")


@pytest.fixture
def unharmed(team: Team, until: Callable[..., None]) -> Callable[[], Context[None]]:
    """Checks that the gateway is the same after the block: ready, no fault in its log, nothing kept, no thread less."""
    with team.rest("root") as root:
        process = Process(root.health().pid)
    port, at_first = team.bed.config.port, process.threads()

    @contextlib.contextmanager
    def check() -> Iterator[None]:
        until(lambda: process.connections(port) <= 1, "the end of earlier connections but that of ann's kernel")
        threads = process.threads() & at_first  # but those that were at work on something
        begun, descriptors, rss_bytes = len(team.bed.log()), process.descriptors(), process.rss_bytes()
        yield
        until(lambda: process.connections(port) <= 1, "the end of all connections of clients that have gone")
        with team.rest("root") as root:
            health = root.health()
        assert (health.ready, health.pid) == (True, process.pid), health.problems
        assert "Traceback" not in team.bed.log()[begun:]
        until(lambda: process.descriptors() <= descriptors + _DESCRIPTORS, f"no more than {descriptors} descriptors")
        assert process.rss_bytes() < rss_bytes + _MEMORY_BYTES
        assert threads - process.threads() == Counter(), "threads that ended"

    return check


def _drive(senders: list[Any]) -> None:
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    assert [failure for sender in senders for failure in sender.failures] == []


def _seed() -> int:
    return random.randrange(2**32) // _THREADS * _THREADS


@pytest.mark.thorough
def test_nothing_that_is_sent_is_the_gateways_failure(team: Team, unharmed: Callable[[], Context[None]]) -> None:
    seed = _seed()
    _drive([Sender(team, seed, 30)])  # what is made at its first use is no leak
    senders = [Sender(team, seed + number, sized(600, 60_000) // _THREADS) for number in range(_THREADS)]
    with unharmed():
        silent = [RawSocket(team, "bob", "/v1/session") for _ in range(3)]
        _drive(senders)
        for each in silent:
            with contextlib.closing(each.link):
                each.read_to_the_end(echo=False)
    answers = sum((sender.answers for sender in senders), Counter())
    print(sorted(answers.items()))
    assert {"200", "400", "401", "403", "404"} <= set(answers)
    session = GatewaySession(Target(team.bed.url, team.secrets["ann"]), "s-after")
    session.connect(60.0)
    try:
        feed = session.submit(request("print 1", "s-after", gpus=0))
        while feed.view is None or feed.view.state != "succeeded":
            assert feed.next_item(60) is not None
    finally:
        session.close()


@pytest.mark.slow("hundreds of sockets")
def test_who_breaks_the_websocket_protocol_harms_only_himself(
    team: Team, unharmed: Callable[[], Context[None]]
) -> None:
    seed = _seed()
    breakers = [Breaker(team, seed + number, sized(240, 24_000) // _THREADS) for number in range(_THREADS)]
    with unharmed():
        _drive(breakers)
    sent = sum((breaker.sent for breaker in breakers), Counter())
    print(sorted(sent.items()))
    assert {*_BROKEN, *_UNFINISHED} <= set(sent)
