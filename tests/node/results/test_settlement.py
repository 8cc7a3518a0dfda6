"""How the wait for results ends, and what is spilled. Pure."""

from __future__ import annotations

import pytest

from jupyter_gpu_release.node.results.pending_results import Settlement, choose_runs_to_spill, settled_outcome
from jupyter_gpu_release.protocol.cell import Graph
from jupyter_gpu_release.protocol.node import AttemptId
from jupyter_gpu_release.protocol.runs import ErrorInfo, Outcome, ValueInfo

IN_FILE = Outcome("ok", values=Graph(file="values.graph"), results=[ValueInfo("model", "Net", 3 << 20)])


@pytest.mark.parametrize(
    ("budget", "chosen"), [(10, []), (9, ["large"]), (4, ["large"]), (3, ["large", "small"]), (0, ["large", "small"])]
)
def test_the_fewest_runs_are_spilled(budget: int, chosen: list[str]) -> None:
    assert choose_runs_to_spill({AttemptId("small", 0): 4, AttemptId("large", 0): 6}, budget) == [
        AttemptId(run, 0) for run in chosen
    ]


def test_durable_results_have_their_digest() -> None:
    outcome = settled_outcome(AttemptId("r", 0), IN_FILE, Settlement("durable", "abc"))
    assert (outcome.status, outcome.values) == ("ok", Graph(file="values.graph", digest="abc"))


def test_lost_results_are_named() -> None:
    outcome = settled_outcome(AttemptId("r", 0), IN_FILE, Settlement("lost", reason="killed"))
    assert (outcome.status, outcome.values, outcome.results) == ("lost", None, [])
    assert outcome.error is not None
    assert outcome.error.evalue == "results of run r (model; 3 MiB) are lost: killed"


def test_the_users_own_error_stays_when_results_are_lost() -> None:
    failed = Outcome("error", error=ErrorInfo("ValueError", "bad"), values=IN_FILE.values, results=IN_FILE.results)
    outcome = settled_outcome(AttemptId("r", 0), failed, Settlement("lost", reason="killed"))
    assert (outcome.status, outcome.error) == ("error", failed.error)
    assert outcome.notes == ["results of run r (model; 3 MiB) are lost: killed"]


def test_small_results_stay_usable_when_they_are_given_up() -> None:
    inline = Outcome("ok", values=Graph(stream=b"x"), results=[ValueInfo("x", "int", 1)])
    outcome = settled_outcome(AttemptId("r", 0), inline, Settlement("given up", reason="cancelled by ada"))
    assert (outcome.status, outcome.values, outcome.results) == ("interrupted", inline.values, inline.results)
