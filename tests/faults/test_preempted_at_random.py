"""Restartable cells that are preempted at any moment, under load, while gateway and agent are killed."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from fault_bed import Cluster
from feeds import Reading
from resuming_bed import names_of
from soak import sized

from jupyter_gpu_release.client.discovery import target_of
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.errors import ConflictError, GatewayUnavailableError
from jupyter_gpu_release.protocol.cell import CellPayload
from jupyter_gpu_release.protocol.runs import ResourceAsk, RunRequest
from jupyter_gpu_release.protocol.states import new_run_id
from jupyter_gpu_release.protocol.wire import encode

pytestmark = [pytest.mark.soak, pytest.mark.timeout(sized(480, 7200)), pytest.mark.thorough]

#: each round writes its number; all end once the file is there
_CELL = """
import os, time
import jupyter_gpu_release as gpu_release
seen = []
for number in gpu_release.resumable(range(10**9), every={every}):
    if os.path.exists({stop!r}):
        break
    with open(gpu_release.run_dir / "rounds", "a") as rounds:
        print(number, file=rounds)
    print(number)
    seen.append(number)
    time.sleep({round_s})
"""


class Load:
    """More cells than there are GPUs, which go on until :meth:`end`."""

    def __init__(self, session: GatewaySession, folder: Path, runs: int, every: str) -> None:
        assert session.welcome is not None
        self._runs = Path(session.welcome.store) / "runs"
        self._stop = folder / "stop"
        self._random = random.Random(7)
        self.readings: dict[str, Reading] = {}
        for number in range(runs):
            source = _CELL.format(stop=str(self._stop), every=every, round_s=0.01 + 0.02 * number)
            request = RunRequest(
                new_run_id(),
                "soak",
                ResourceAsk(gpus=1 + number % 2),
                encode(CellPayload(source=source)),
                code=source,
                restartable=True,
                detach=number % 3 == 0,
            )
            self.readings[request.run] = Reading(session.submit(request))

    def preempt_one(self, client: GatewayClient) -> bool:
        """Ask one that runs, whichever; False: it could not be asked just now."""
        try:
            rows = [row.run for row in client.status().runs if row.run in self.readings and row.state == "running"]
            return bool(rows) and client.preempt(self._random.choice(rows)).state == "yielding"
        except (ConflictError, GatewayUnavailableError):
            return False

    def end(self) -> int:
        """All end, each once, with each round done once in its files and its names; returns how often they went on."""
        self._stop.touch()
        went_on = 0
        for run, reading in self.readings.items():
            view = reading.end()
            assert (view.state, view.outcome is not None) == ("succeeded", True), view
            assert view.outcome is not None
            folder = self._runs / run
            file = folder / "files" / "rounds"  # one that came last may have had no time for any
            rounds = [int(line) for line in file.read_text().split()] if file.exists() else []
            assert rounds == list(range(len(rounds))), f"{run}: each round once, in order"
            assert names_of(view.outcome, folder)["seen"] == rounds
            ends = [item for item in reading.views() if item.finished_at is not None]
            assert {item.state for item in ends} == {"succeeded"}, "it ended once"
            assert reading.numbers() == list(range(1, len(reading.numbers()) + 1)), "all output, in order"
            went_on += len(view.attempts)
        return went_on


@pytest.mark.parametrize("kills", [False, True])
def test_every_run_ends_once_and_no_round_is_done_twice(
    shared_cluster: Cluster, tmp_path: Path, until: Callable[..., None], kills: bool
) -> None:
    target, asked, wanted = target_of(shared_cluster.connection), 0, sized(6, 200)
    session = GatewaySession(target, "soak")
    session.connect(60.0)
    try:
        load = Load(session, tmp_path, runs=6, every="'200ms'" if kills else "0")
        victims = ["ray::Gateway", "ray::NodeAgent"]
        while asked < wanted:
            with GatewayClient.for_target(target) as client:
                until(lambda client=client: load.preempt_one(client), "a run that may be asked")
            asked += 1
            if kills and asked % max(1, wanted // 10 if wanted > 20 else wanted // 2) == 0:
                shared_cluster.kill(victims[asked % 2])
        went_on = load.end()
        assert went_on >= wanted // 2
        shared_cluster.assert_nothing_is_held()
    finally:
        session.close()
