"""GPU-seconds of ``jupyter gpu report``: what of a run lies in the time, by user and type of GPU."""

from __future__ import annotations

from pathlib import Path

import msgspec

from jupyter_gpu_release.gateway.db.database import insert_run, open_ledger
from jupyter_gpu_release.gateway.db.held_gpus import HeldGpus, held_between, read_held
from jupyter_gpu_release.protocol.runs import Attempt, ResourceAsk, RunRequest, RunView

H100 = "NVIDIA H100 80GB HBM3"


def _run(
    run: str, user: str = "ann", since: float | None = 100.0, until: float | None = 200.0, **facts: object
) -> RunView:
    view = RunView(run, user, "succeeded", gpu_name=H100, granted_at=since, gone_at=until, finished_at=until)
    return msgspec.structs.replace(view, **facts)


def test_only_what_lies_in_the_time_counts() -> None:
    runs = [_run("a"), _run("b", gpus=0.5), _run("c", until=None), _run("d", since=None), _run("e", since=10, until=40)]
    assert held_between(runs, 50.0, 150.0) == {("ann", H100): HeldGpus(3, 50.0 + 25.0 + 50.0)}
    assert held_between(runs, 150.0, 400.0) == {("ann", H100): HeldGpus(3, 50.0 + 25.0 + 250.0)}


def test_each_attempt_counts_for_the_gpus_that_it_had() -> None:
    before = [Attempt(0.0, 10.0, gpu_name="A100"), Attempt(20.0, 50.0, gpu_name=H100)]
    again = [_run("a", gpus=2, attempts=before), _run("b", user="bob", gpu_name="", since=0.0)]
    assert held_between(again, 5.0, 1000.0) == {
        ("ann", "A100"): HeldGpus(1, 10.0),
        ("ann", H100): HeldGpus(1, 260.0),
        ("bob", ""): HeldGpus(1, 195.0),
    }


def test_the_ledger_gives_what_is_not_over_and_no_run_of_another_cluster(tmp_path: Path) -> None:
    engine = open_ledger(tmp_path / "ledger.sqlite")
    runs = [
        _run("old", since=1.0, until=2.0),
        _run("a"),
        _run("b", user="bob", until=None),
        _run("waits", since=None, until=None, attempts=[Attempt(110.0, 120.0, gpu_name="A100")]),
        _run("cpus", gpus=0),
        _run("theirs", imported_from="the other lab"),
    ]
    with engine.begin() as connection:
        for number, view in enumerate(runs):
            insert_run(connection, view, number, RunRequest(view.run, "s", ResourceAsk(), b""))
    of_all = {("ann", H100): HeldGpus(1, 100.0), ("ann", "A100"): HeldGpus(1, 10.0), ("bob", H100): HeldGpus(1, 200.0)}
    assert read_held(engine, 50.0, 300.0, None) == of_all
    assert read_held(engine, 50.0, 300.0, "bob") == {("bob", H100): HeldGpus(1, 200.0)}
