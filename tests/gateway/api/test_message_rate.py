"""A client that floods its session waits for its turns; nothing of it is lost, and others start as soon as ever."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from feeds import Reading
from ray_bed import GatewayBed, RayBed, request
from websockets.sync.client import connect

from jupyter_gpu_release.client.discovery import Target
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.protocol.admin import TokenRequest
from jupyter_gpu_release.protocol.session import PROTOCOL, GatewayMessage, Heartbeat, Hello, Signal
from jupyter_gpu_release.protocol.wire import decode, encode

_PER_S = 20
_AT_ONCE = 10 * _PER_S
#: submits and kills as fast as the connection takes them
_FLOOD = """
import sys, threading
from websockets.sync.client import connect
from jupyter_gpu_release.protocol.cell import CellPayload
from jupyter_gpu_release.protocol.runs import ResourceAsk, RunRequest
from jupyter_gpu_release.protocol.session import PROTOCOL, Hello, Signal, Submit
from jupyter_gpu_release.protocol.states import new_run_id
from jupyter_gpu_release.protocol.wire import encode

url, token, name, gpus = sys.argv[1:]
link = connect(url, additional_headers={"Authorization": f"Bearer {token}"}, proxy=None, max_size=None)
link.send(encode(Hello(PROTOCOL, name)))
link.recv()

def read():
    while True:
        link.recv()

threading.Thread(target=read, daemon=True).start()
print("floods", flush=True)
payload = encode(CellPayload(source="hold"))
while True:
    run = new_run_id()
    link.send(encode(Submit(RunRequest(run, name, ResourceAsk(gpus=int(gpus)), payload, code="hold"))))
    link.send(encode(Signal(run, "kill", run)))
"""


@pytest.fixture(scope="module")
def strict(ray_bed: RayBed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayBed]:
    bed = GatewayBed(ray_bed, tmp_path_factory.mktemp("messages"), user_requests_per_s=_PER_S)
    assert bed.deploy().ok
    yield bed
    bed.end()


def _token(bed: GatewayBed, user: str) -> str:
    with bed.rest() as root:
        return root.create_token(TokenRequest(user, "user", 3600.0)).secret


@contextmanager
def _flood(bed: GatewayBed, token: str, connections: int) -> Iterator[None]:
    url = bed.url.replace("http", "ws", 1) + "/v1/session"
    floods = [
        subprocess.Popen(
            [sys.executable, "-c", _FLOOD, url, token, f"flood-{number}", "4"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for number in range(connections)
    ]
    try:
        for flood in floods:
            assert flood.stdout is not None
            assert flood.stdout.readline() == b"floods\n"
        yield
    finally:
        for flood in floods:
            flood.kill()
            flood.communicate()


def _cell_s(session: GatewaySession) -> float:
    began_s = time.monotonic()
    Reading(session.submit(request("print 1", session.session_id))).end()
    return time.monotonic() - began_s


@pytest.mark.thorough
def test_who_floods_a_session_does_not_make_others_start_later(strict: GatewayBed) -> None:
    """Eight kernels of ann's submit and kill without a pause; unlimited, bob's cells took ten times as long."""
    bob, ann = GatewaySession(Target(strict.url, _token(strict, "bob")), "bob"), _token(strict, "ann")
    bob.connect(60)
    quiet_s = statistics.median(_cell_s(bob) for _ in range(12))
    began_s = time.monotonic()
    with _flood(strict, ann, 8), GatewayClient(strict.url, ann, timeout_s=60) as client:
        while len(client.runs(_AT_ONCE, mine=True, brief=True).runs) < _AT_ONCE / 2:
            time.sleep(0.2)
        flooded_s = [_cell_s(bob) for _ in range(12)]
        taken = 2 * len(client.runs(10_000, mine=True, brief=True).runs)
    assert taken < _AT_ONCE + _PER_S * (time.monotonic() - began_s) + 2
    assert min(flooded_s) < 5 * quiet_s + 0.05, (quiet_s, flooded_s)  # a busy machine makes the others slower
    bob.close()


@pytest.mark.slow("it waits for the rate")
@pytest.mark.parametrize("protocol", [PROTOCOL - 1, PROTOCOL])
@pytest.mark.parametrize("kind", ["signals", "heartbeats"])
def test_messages_beyond_the_limit_are_answered_later_and_once(strict: GatewayBed, kind: str, protocol: int) -> None:
    """A heartbeat that acknowledges nothing comes meanwhile: clients take silence for a dead gateway."""
    user, over = f"{kind}-{protocol}", 60
    url, token = strict.url.replace("http", "ws", 1) + "/v1/session", _token(strict, user)
    answers: list[GatewayMessage] = []
    began_s = time.monotonic()
    with connect(url, additional_headers={"Authorization": f"Bearer {token}"}, proxy=None, open_timeout=60) as link:
        link.send(encode(Hello(protocol, user)))
        for number in range(_AT_ONCE + over):
            link.send(encode(Signal(f"run-{number}") if kind == "signals" else Heartbeat(-1.0 - number)))
        while len(answers) < _AT_ONCE + over + 1:
            answer = decode(link.recv(60), GatewayMessage)
            if answer != Heartbeat(0.0):
                answers.append(answer)
            else:
                signs_s = time.monotonic()
    if kind == "signals":
        assert [(answer.run, answer.code) for answer in answers[1:]] == [
            (f"run-{number}", "no_such_run") for number in range(_AT_ONCE + over)
        ]
    else:
        assert sorted(-answer.at_s for answer in answers[1:]) == [1.0 + number for number in range(_AT_ONCE + over)]
    assert time.monotonic() - began_s > (over - 1) / _PER_S
    assert signs_s > began_s
    lines = (Path(strict.config.home) / "log" / "audit.jsonl").read_text().splitlines()
    assert [line for line in lines if f'"{user}"' in line and '"too_many_requests"' in line]
