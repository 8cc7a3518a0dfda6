"""How long ``jupyter gpu runs --limit 10000`` and ``GET /v1/runs?limit=10000`` take: a real ledger, real HTTP."""

from __future__ import annotations

import asyncio
import io
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import msgspec

from jupyter_gpu_release.cli import runs
from jupyter_gpu_release.cli.parser import parse
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.gateway.api.app import build_app, serve
from jupyter_gpu_release.gateway.api.route_table import ROUTES
from jupyter_gpu_release.gateway.auth.tokens import TokenBook, embedded_token
from jupyter_gpu_release.gateway.db import database
from jupyter_gpu_release.gateway.service import GatewayService
from jupyter_gpu_release.host.accounts import own_name
from jupyter_gpu_release.protocol.cell import Graph
from jupyter_gpu_release.protocol.config import GatewayConfig
from jupyter_gpu_release.protocol.runs import ErrorInfo, Outcome, ResourceAsk, RunRequest, RunView, ValueInfo

from ..report import Report

RUNS = 10_000
_TOKEN = "a token of the benchmark's own"


def add_listing(report: Report, *, quick: bool) -> None:
    """Add ``list_10000_runs`` (the whole command in this process), ``list_10000_runs_request`` (its request), and
    ``list_10000_runs_request_whole`` (with all that came out of them, as ``--json`` and programs ask) (ms).
    """
    count = 1000 if quick else RUNS
    with tempfile.TemporaryDirectory(prefix="jgr-bench-") as folder, _gateway(Path(folder), count) as client:
        request, whole, command = [], [], []
        for _ in range(3 if quick else 10):
            began = time.perf_counter()
            assert len(client.runs(count, brief=True).runs) == count
            request.append((time.perf_counter() - began) * 1000)
            began = time.perf_counter()
            assert len(client.runs(count).runs) == count
            whole.append((time.perf_counter() - began) * 1000)
            command.append(_command_ms(client, count))
        report.add("list_10000_runs_request", request)
        report.add("list_10000_runs_request_whole", whole)
        report.add("list_10000_runs", command)


def _command_ms(client: GatewayClient, count: int) -> float:
    """``jupyter gpu runs --limit 10000``, drawn as a table; without the interpreter's start."""
    runs._gateway = lambda: GatewayClient(client.url, _TOKEN)
    began = time.perf_counter()
    with redirect_stdout(io.StringIO()) as drawn:
        runs.runs(parse(["runs", "--limit", str(count)]))
    took = (time.perf_counter() - began) * 1000
    assert drawn.getvalue().count("\n") >= count
    return took


@contextmanager
def _gateway(folder: Path, count: int) -> Iterator[GatewayClient]:
    """A gateway's service with its HTTP side (no Ray) on a ledger with so many runs that are over."""
    token_file = folder / "token"
    token_file.write_text(_TOKEN)
    config = GatewayConfig(str(folder), str(folder / "store"), str(token_file), str(folder), "")
    _fill(folder / "ledger.sqlite", own_name(), count)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setblocking(False)
    loop = asyncio.new_event_loop()
    ready = threading.Event()

    async def main() -> None:
        service = GatewayService(config)
        service.tokens = TokenBook([embedded_token(_TOKEN, own_name(), 0.0)])
        serving = serve(build_app(service, ROUTES), listener)
        ready.set()
        stopped.append(asyncio.Event())
        await stopped[0].wait()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        service.ledger.close()

    stopped: list[asyncio.Event] = []
    thread = threading.Thread(target=loop.run_until_complete, args=(main(),))
    thread.start()
    ready.wait(30)
    try:
        with GatewayClient(f"http://127.0.0.1:{listener.getsockname()[1]}", _TOKEN, timeout_s=60) as client:
            yield client
    finally:
        loop.call_soon_threadsafe(lambda: stopped[0].set())
        thread.join(30)
        loop.close()


def _fill(path: Path, user: str, count: int) -> None:
    """Record runs as a gateway does: results, errors, every tenth with 100 KiB of inline values."""
    engine = database.open_ledger(path)
    with engine.begin() as connection:
        for number in range(count):
            run = f"20260101-000000-{number:08x}"
            at_s = 1.7e9 + number
            view = RunView(
                run,
                user,
                "queued",
                1,
                session="s",
                name=f"fit {number}",
                notebook="work/train.ipynb",
                cell="c",
                submitted_at=at_s,
                granted_at=at_s,
                running_at=at_s,
                gone_at=at_s + 9,
                hosts=["gpu-node-1"],
                gpu_ids=["0"],
                gpu_name="NVIDIA H100 80GB HBM3",
                release_ms=12.0,
            )
            database.insert_run(connection, view, number, RunRequest(run, "s", ResourceAsk(), b""))
            over = msgspec.structs.replace(view, state="succeeded" if number % 7 else "failed", finished_at=at_s + 9)
            database.update_run(connection, over, _outcome(number))
    engine.dispose()


def _outcome(number: int) -> Outcome:
    values = Graph(stream=bytes(100 << 10)) if number % 10 == 0 else Graph(file="values.graph", digest="0" * 32)
    results = [ValueInfo(name, "Tensor", 1 << 20) for name in ("model", "history", "loss", "optimizer")]
    error = None if number % 7 else ErrorInfo("ValueError", "shapes do not match", ["a line of traceback\n"] * 20)
    return Outcome("error" if error else "ok", error, values, results, ["loss came back detached"])


if __name__ == "__main__":
    alone = Report("listing")
    add_listing(alone, quick="--quick" in sys.argv)
    print(alone.document()["results"])
