"""``stop --drain`` on a cluster of its own, with a cell that runs and one that waits."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from embedded_bed import quiet
from feeds import Reading
from ray_bed import request

from jupyter_gpu_release.client.autostart import Ready
from jupyter_gpu_release.client.discovery import target_of
from jupyter_gpu_release.client.home import HomePaths
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.client.session import GatewaySession
from jupyter_gpu_release.local_cluster.maintenance import wait_until_drained
from jupyter_gpu_release.local_cluster.start import StartOptions, start_embedded
from jupyter_gpu_release.protocol.admin import NodeDrain
from jupyter_gpu_release.protocol.rest import StatusDocument
from jupyter_gpu_release.protocol.session import Update

Until = Callable[[Callable[[], object], str], None]
_CELL = "import os, time\nwhile not os.path.exists({gate!r}):\n    time.sleep(0.02)"


def _stop(*options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "jupyter_gpu_release.cli", "stop", *options]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.slow("a cluster of its own")
def test_stop_waits_for_what_runs_and_lets_nothing_begin(own_home: HomePaths, until: Until, tmp_path: Path) -> None:
    target = target_of(start_embedded(home=own_home, asked=StartOptions(simulated=1), progress=quiet).connection)
    session = GatewaySession(target, "drained")
    session.connect(60.0)
    runs, waits = (request(_CELL.format(gate=str(tmp_path / "gate")), "drained") for _ in range(2))
    running, waiting = Reading(session.submit(runs)), Reading(session.submit(waits))
    running.state("running")
    with GatewayClient.for_target(target) as gateway:

        def is_drained() -> bool:
            return "about to be stopped" in gateway.status().nodes[0].drained

        refused = _stop()
        said = refused.communicate(timeout=60)[1]
        assert refused.returncode == 1, "nobody can be asked"
        assert f"run {runs.run} of" in said
        assert f"run {waits.run} of" in said
        assert "stop --yes" in said

        given_up = _stop("--drain")
        assert given_up.stderr is not None
        assert any("waiting for 1 run to end" in line for line in given_up.stderr)  # reads on to this one
        assert is_drained()
        given_up.send_signal(signal.SIGINT)
        given_up.communicate(timeout=60)
        assert given_up.returncode == 130
        assert not gateway.status().nodes[0].drained, "it goes on as before"

        stopping = _stop("--drain")
        until(is_drained, "the drain")
        (tmp_path / "gate").touch()
        assert running.end().state == "succeeded"
    said, complaint = stopping.communicate(timeout=120)
    assert stopping.returncode == 0, complaint
    assert "Stopped the cluster" in said
    while (item := waiting.feed.next_item(0.0)) is not None:
        assert not isinstance(item, Update) or item.view.state == "queued", "it never began"
    assert own_home.read_connection() is None
    session.close()


class _InterruptedAtOnce(GatewayClient):
    """Its user presses Ctrl-C while the gateway's answer is on its way."""

    def drain_node(self, drain: NodeDrain) -> StatusDocument:
        super().drain_node(drain)
        raise KeyboardInterrupt


def test_runs_begin_as_before_when_the_wait_is_given_up_however_soon(cluster: Ready) -> None:
    with _InterruptedAtOnce.for_target(target_of(cluster.connection)) as gateway:
        with pytest.raises(KeyboardInterrupt):
            wait_until_drained(gateway, quiet)
        assert not any(node.drained for node in gateway.status().nodes)
