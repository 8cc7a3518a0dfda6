"""A team on one gateway: notebooks on other hosts, cells as their owners, idle kernels, many at once, a long queue.

The network is a relay that passes bytes on later. Where the gateway itself is measured (idle kernels, a long queue) its
nodes are simulated; starts and rates are those of real cells.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from itertools import count as numbers
from pathlib import Path

import psutil
from websockets.asyncio.client import ClientConnection, connect

from jupyter_gpu_release.client.discovery import Target, target_of
from jupyter_gpu_release.client.home import HomePaths
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.client.websocket import HEARTBEAT_S, session_url
from jupyter_gpu_release.protocol.admin import TokenRequest
from jupyter_gpu_release.protocol.cell import CellPayload
from jupyter_gpu_release.protocol.runs import ResourceAsk, RunRequest, RunView
from jupyter_gpu_release.protocol.session import (
    PROTOCOL,
    Accepted,
    GatewayMessage,
    Heartbeat,
    Hello,
    Refused,
    Submit,
    Update,
)
from jupyter_gpu_release.protocol.states import RunState, new_run_id
from jupyter_gpu_release.protocol.wire import decode, encode

from .bed import Bed, bed, kernel
from .broker.run import SimulatedCluster, simulated_cluster
from .report import CannotMeasureError, Report
from .start import _ours as start_ms

_BEDS = Path(__file__).parents[1] / "tests" / "harness"
KERNELS, QUEUED, GPUS = 200, 10_000, 8
_MIB = 1 << 20


def run(*, quick: bool) -> Report:
    """Measure; ``quick``: few repetitions, kernels and runs, all of one Unix user."""
    sys.path.insert(0, str(_BEDS))
    report = Report("team")
    with bed("--simulated-gpus", str(GPUS)) as cluster:
        _add_starts(report, cluster, 3 if quick else 40)
        _add_rate(report, cluster, 1.0 if quick else 60.0)
        if not quick:
            _add_owner_mode(report, cluster, 100)
    _add_idle_kernels(report, 20 if quick else KERNELS, 3.0 if quick else 60.0)
    _add_long_queue(report, 200 if quick else QUEUED, 20 if quick else 300)
    report.notes.append(
        "targets: start ≤ 20 ms + 3 round trips; 200 idle kernels ≤ 2 % of a core, ≤ 1 MiB each; ≥ 20 cells a second, "
        "none lost, start ≤ 100 ms (p95) at 60 % of that; "
        "cells as their owners ≤ 5 ms more; 10,000 queued: status ≤ 50 ms (p95), gateway ≤ 300 MiB"
    )
    return report


# --------------------------------------------------------------------------------- notebooks on other hosts
def _add_starts(report: Report, cluster: Bed, count: int) -> None:
    """From the magic's call to the first statement, over a network with a round trip of 0, 1 and 20 ms."""
    medians = {}
    for round_trip_ms in (0, 1, 20):
        with _far_away(cluster, round_trip_ms), kernel(cluster.work) as notebook:
            start_ms(notebook, "--gpus 1", 2)  # the first one fills caches
            medians[round_trip_ms] = report.add(f"start_{round_trip_ms}ms", start_ms(notebook, "--gpus 1", count))
    report.add("round_trips", [(medians[20] - medians[0]) / 20], "round trips")


@contextmanager
def _far_away(cluster: Bed, round_trip_ms: float) -> Iterator[None]:
    """The environment of kernels on a host from which the gateway is so far away."""
    from relay import RelayProcess

    relay = RelayProcess(str(cluster.connection()["url"]))
    relay.order("delay_s", round_trip_ms / 2000)
    settings = {"JUPYTER_GPU_URL": f"http://{relay.place}", "JUPYTER_GPU_TOKEN_FILE": str(cluster.home / "token")}
    before = dict(os.environ)
    os.environ.update(settings)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        relay.close()


# ----------------------------------------------------------------------------------- cells as their owners
def _add_owner_mode(report: Report, cluster: Bed, count: int) -> None:
    """Start of a trivial cell on two clusters in turn: cells of one user, and cells of their owners."""
    try:
        with _owners_cluster(cluster) as (url, token):
            single, owner = _Crowd(target_of(HomePaths(cluster.home).read_connection())), _Crowd(Target(url, token))
            for crowd in (single, owner) * (count + 2):
                crowd.cell()
            for crowd in (single, owner):
                crowd.close()
    except CannotMeasureError as error:
        report.notes.append(f"owner_mode_extra was not measured: {error}")
        return
    report.notes += (single.failed + owner.failed)[:5]
    before, as_owner = (crowd.starts_ms[2:] for crowd in (single, owner))  # the first ones fill caches
    report.add("start_in_single_mode", before)
    report.add("start_in_owner_mode", as_owner)
    report.add("owner_mode_extra", [statistics.median(as_owner) - statistics.median(before)])


@contextmanager
def _owners_cluster(other: Bed) -> Iterator[tuple[str, str]]:
    """A gateway whose cells run as their owners, and the token of a user there."""
    if os.geteuid():
        raise CannotMeasureError("only root may run cells as other users")
    import pytest
    from unix_users import ANN, public_folder, python_for_all

    before, python = dict(os.environ), sys.executable
    with public_folder() as folder:
        (folder / "users.yaml").write_text(f"ann: {{uid: {ANN}, gid: {ANN}}}")
        os.environ.update(
            JUPYTER_GPU_STORE_MODE="owner",
            JUPYTER_GPU_UNIX_USERS=str(folder / "users.yaml"),
            JUPYTER_GPU_SPOOL=str(folder / "spool"),
        )
        try:
            sys.executable = python_for_all(folder)
            with bed("--simulated-gpus", str(GPUS), "--store", str(folder / "store"), own=True) as cluster:
                target = target_of(HomePaths(cluster.home).read_connection())
                with GatewayClient(target.url, target.token, timeout_s=60.0) as client:
                    token = client.create_token(TokenRequest("ann")).secret
                yield target.url, token
        except pytest.skip.Exception as error:
            raise CannotMeasureError(str(error)) from error
        finally:
            sys.executable = python
            os.environ.clear()
            os.environ.update(before)
            os.environ["JUPYTER_GPU_HOME"] = str(other.home)


# ------------------------------------------------------------------------------------------ cells at once
class _Crowd:
    """Sends trivial cells over one session, and collects how each ended."""

    def __init__(self, target: Target) -> None:
        self._session = GatewaySession(target, "crowd")
        self._session.connect(60.0)
        self._lock = threading.Lock()
        self.sent = 0
        self.starts_ms: list[float] = []
        self.failed: list[str] = []

    def cell(self) -> None:
        """Run one trivial cell to its end."""
        payload = encode(CellPayload(source="x = 1"))
        asked = RunRequest(new_run_id(), "crowd", ResourceAsk(gpus=1), payload, code="x = 1")
        with self._lock:
            self.sent += 1
        sent_s = time.time()
        view = self._end_of(asked)
        outcome = view.outcome if view is not None else None
        with self._lock:
            if view is None or view.state != "succeeded" or outcome is None or outcome.started_s is None:
                self.failed.append(f"{asked.run}: {view.state if view else 'refused, or no end'}")
            else:
                self.starts_ms.append((outcome.started_s - sent_s) * 1000)

    def _end_of(self, asked: RunRequest) -> RunView | None:
        feed = self._session.submit(asked)
        while (item := feed.next_item(60.0)) is not None and not isinstance(item, Refused):
            if isinstance(item, Accepted | Update) and RunState.of(item.view.state).is_terminal:
                return item.view
        return None

    def close(self) -> None:
        self._session.close()


def _add_rate(report: Report, cluster: Bed, seconds: float) -> None:
    target = target_of(HomePaths(cluster.home).read_connection())
    for _ in range(2):  # the first pass warms up
        crowd = _Crowd(target)
        rate = _most(crowd, seconds)
        crowd.close()
    report.add("cells_per_s", [rate], "1/s")
    lost = list(crowd.failed)
    crowd = _Crowd(target)
    _steady(crowd, 0.6 * rate, seconds)
    crowd.close()
    report.add("start_at_60_percent", crowd.starts_ms)
    report.add("lost_cells", [len(lost) + len(crowd.failed)], "cells")
    report.notes += (lost + crowd.failed)[:5]


def _most(crowd: _Crowd, seconds: float) -> float:
    """Cells a second while twice as many are under way as there are GPUs."""
    until_s = time.monotonic() + seconds

    def work() -> None:
        while time.monotonic() < until_s:
            crowd.cell()

    began_s = time.monotonic()
    _together([threading.Thread(target=work) for _ in range(2 * GPUS)])
    return len(crowd.starts_ms) / (time.monotonic() - began_s)


def _steady(crowd: _Crowd, rate: float, seconds: float) -> None:
    """Send a cell each ``1 / rate`` seconds, whether or not those before have ended."""
    turn, begin_s = numbers(), time.monotonic()

    def work() -> None:
        while (due_s := next(turn) / rate) < seconds:
            time.sleep(max(0.0, begin_s + due_s - time.monotonic()))
            crowd.cell()

    _together([threading.Thread(target=work) for _ in range(4 * GPUS)])


def _together(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# ------------------------------------------------------------------------------------- idle kernels, long queue
def _add_idle_kernels(report: Report, kernels: int, seconds: float) -> None:
    with simulated_cluster(1, GPUS) as cluster:
        cpu, before, after = asyncio.run(_idle(cluster, kernels, seconds))
    report.add("idle_kernels_cpu", cpu, "% of a core")
    report.add("idle_kernel_memory", [(after - before) / kernels / _MIB], "MiB")


async def _idle(cluster: SimulatedCluster, kernels: int, seconds: float) -> tuple[list[float], int, int]:
    """Percentages of a core in five parts of the time, and the gateway's memory without and with the kernels."""
    gateway = _process(cluster)
    before = gateway.memory_full_info().uss
    async with AsyncExitStack() as stack:
        links = [await stack.enter_async_context(_Link(cluster, f"idle-{n}")) for n in range(kernels)]
        beats = [asyncio.create_task(_beat(link, n * HEARTBEAT_S / kernels)) for n, link in enumerate(links)]
        await asyncio.sleep(HEARTBEAT_S)
        cpu = [await _cpu_percent(gateway, seconds / 5) for _ in range(5)]
        after = gateway.memory_full_info().uss
        for beat in beats:
            beat.cancel()
    return cpu, before, after


class _Link:
    """A session's connection as an asynchronous context, greeted."""

    def __init__(self, cluster: SimulatedCluster, session: str) -> None:
        self._session = session
        self._opening = connect(
            session_url(cluster.url),
            additional_headers={"Authorization": f"Bearer {cluster.token}"},
            compression=None,
            proxy=None,
            ping_interval=None,
            max_size=None,
            max_queue=None,
            open_timeout=60,
        )

    async def __aenter__(self) -> ClientConnection:
        link = await self._opening.__aenter__()
        await link.send(encode(Hello(PROTOCOL, self._session)))
        await link.recv()
        return link

    async def __aexit__(self, *error: object) -> None:
        await self._opening.__aexit__(*error)  # type: ignore[arg-type]


async def _beat(link: ClientConnection, wait_s: float) -> None:
    await asyncio.sleep(wait_s)
    while True:
        await link.send(encode(Heartbeat(time.monotonic())))
        await link.recv()
        await asyncio.sleep(HEARTBEAT_S)


async def _cpu_percent(process: psutil.Process, seconds: float) -> float:
    before, began_s = sum(process.cpu_times()[:2]), time.monotonic()
    await asyncio.sleep(seconds)
    return float(sum(process.cpu_times()[:2]) - before) / (time.monotonic() - began_s) * 100


def _add_long_queue(report: Report, queued: int, asked: int) -> None:
    with simulated_cluster(1, GPUS) as cluster:
        asyncio.run(_queue(cluster, queued))
        with GatewayClient(cluster.url, cluster.token, timeout_s=60.0) as client:
            report.add("status_10k", [_status_ms(client) for _ in range(asked)])
            waiting = client.status().waiting
        report.add("gateway_memory_10k", [_process(cluster).memory_full_info().uss / _MIB], "MiB")
    report.notes.append(f"status: {waiting or queued} runs waited")


async def _queue(cluster: SimulatedCluster, queued: int) -> None:
    async with _Link(cluster, "queue") as link:
        for _ in range(GPUS + queued):
            asked = RunRequest(new_run_id(), "queue", ResourceAsk(gpus=1), b"600", detach=True)
            await link.send(encode(Submit(asked)))
        accepted = 0
        while accepted < GPUS + queued:
            accepted += isinstance(decode(await link.recv(), GatewayMessage), Accepted)


def _status_ms(client: GatewayClient) -> float:
    began_s = time.perf_counter()
    client.status()
    took_ms = (time.perf_counter() - began_s) * 1000
    time.sleep(0.02)
    return took_ms


def _process(cluster: SimulatedCluster) -> psutil.Process:
    with GatewayClient(cluster.url, cluster.token, timeout_s=60.0) as client:
        return psutil.Process(client.health().pid)
