"""How the GPUs of runs are used, as the server remembers it."""

from __future__ import annotations

import msgspec
from gpu_api import gpu, node, status

from jupyter_gpu_release.protocol.rest import StatusDocument
from jupyter_gpu_release.server_extension.monitoring import use_history
from jupyter_gpu_release.server_extension.monitoring.use_history import UseHistory


def _with(*runs: str) -> StatusDocument:
    held = [gpu(n, "running", run=run, utilization=50) for n, run in enumerate(runs)]
    return msgspec.convert(status([node("a", *held)], [], [])["cluster"], StatusDocument)


def test_a_long_run_keeps_its_plot_on_a_busy_cluster() -> None:
    history = UseHistory()
    for n in range(2 * use_history._MOST_RUNS):
        history.record(float(n), _with("long", f"short-{n}"))
    use = history.of("long")
    assert use is not None
    assert use.since == 0.0
    assert history.of("short-0") is None
