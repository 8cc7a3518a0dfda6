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


def test_all_who_share_a_gpu_have_its_use_and_not_its_memory_which_is_not_theirs() -> None:
    history = UseHistory()
    parts = [{"run": run, "user": user, "gpus": 0.5} for run, user in (("first", "ann"), ("second", "bob"))]
    shared = gpu(0, "running", run="first", utilization=0.5, parts=parts)
    history.record(0.0, msgspec.convert(status([node("a", shared)], [], [])["cluster"], StatusDocument))
    for run in ("first", "second"):
        use = history.of(run)
        assert use is not None
        assert (use.utilization, use.memory) == ([50], [])


def test_only_use_that_is_told_of_runs_that_run_is_remembered() -> None:
    history = UseHistory()
    told, kept = gpu(0, "running", run="told", utilization=0.5), gpu(1, "warm", run="kept", utilization=0.5)
    mute = gpu(2, "running", run="mute", utilization=None)
    cluster = status([node("a", told, kept, mute)], [], [])["cluster"]
    history.record(1.0, msgspec.convert(cluster, StatusDocument))
    use = history.of("told")
    assert use is not None
    assert use.utilization == [50]
    assert (history.of("kept"), history.of("mute")) == (None, None)
