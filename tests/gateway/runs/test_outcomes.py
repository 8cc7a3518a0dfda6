"""What lists and commands say of how a run ended."""

from __future__ import annotations

import pytest

from jupyter_gpu_release.errors import ClusterError, RunCancelledError, RunFailedError, RunLostError
from jupyter_gpu_release.gateway.runs.outcomes import (
    final_reason,
    final_state,
    gone_facts,
    lost,
    lost_results,
    merged,
    unstarted,
)
from jupyter_gpu_release.protocol.cell import Graph
from jupyter_gpu_release.protocol.runs import ErrorInfo, Outcome, Save, ValueInfo
from jupyter_gpu_release.protocol.states import RunState


@pytest.mark.parametrize(
    ("status", "error", "cancelled", "words"),
    [
        ("ok", None, "", ""),
        ("died", None, "", "died"),
        ("error", ErrorInfo("ValueError", "no\nmore"), "", "ValueError: no"),
        ("error", ErrorInfo("ValueError", " "), "", "ValueError"),
        ("memory", ErrorInfo("RunFailedError", "took 3 GiB", code="run_failed"), "", "took 3 GiB"),
        ("interrupted", ErrorInfo("KeyboardInterrupt", ""), "the kernel ended", "the kernel ended"),
        ("interrupted", ErrorInfo("KeyboardInterrupt", ""), "", "KeyboardInterrupt"),
        ("timeout", ErrorInfo("KeyboardInterrupt", ""), "", "stopped at its --timeout"),
        ("timeout", ErrorInfo("OSError", "full"), "", "stopped at its --timeout (OSError: full)"),
        ("timeout", ErrorInfo("RunFailedError", "no GPU within 3 s", code="run_failed"), "", "no GPU within 3 s"),
    ],
)
def test_the_reason_of_the_end(status: str, error: ErrorInfo | None, cancelled: str, words: str) -> None:
    assert final_reason(Outcome(status, error), cancelled) == words


def test_the_state_and_the_times_of_the_end() -> None:
    states = [final_state(Outcome(status), "") for status in ("died", "memory", "lost")]
    assert states == [RunState.FAILED, RunState.FAILED, RunState.LOST]
    assert final_state(Outcome("died"), "cancelled by ann") is RunState.CANCELLED
    assert gone_facts(Outcome("ok", ended_s=9.0), 8.5)["release_ms"] == 0.0, "clocks of two machines"


def test_what_is_left_of_results_that_were_not_durable() -> None:
    """Small ones are here already."""
    small, large = Graph(stream=b"small"), Graph(file="values.graph")
    assert merged(Outcome("ok", values=small), Outcome("ok")).values == small
    assert merged(Outcome("ok", values=large), Outcome("ok")).values is None
    failed = Outcome("error", ErrorInfo("ValueError", "no"), values=small, notes=["as it was"])
    left = lost_results("r", failed, "the node is gone")
    assert (left.status, left.values, left.notes[0], len(left.notes)) == ("error", small, "as it was", 2)
    assert lost_results("r", Outcome("ok", values=large), "the node is gone").values is None


def test_a_lost_run_names_its_results_and_keeps_none_of_them() -> None:
    values = [ValueInfo("x", "array", 3 << 20), ValueInfo("y", "int", 1 << 20)]
    large = Outcome("error", ErrorInfo("ValueError", "no"), Graph(file="values.graph"), values, save=Save(1))
    left = lost_results("r", large, "the node is gone")
    assert (left.values, left.results, left.save) == (None, [], None)
    assert left.notes == ["results of run r (x, y; 4 MiB) are lost: the node is gone"]
    assert "no names" in lost_results("r", Outcome("error", ErrorInfo("E", "")), "gone").notes[0]


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (RunCancelledError("cancelled by ann"), RunState.CANCELLED),
        (RunFailedError("no GPU within 3 s"), RunState.FAILED),
        (RunLostError("gone"), RunState.LOST),
        (ClusterError("ours"), RunState.FAILED),
    ],
)
def test_a_run_that_never_began_ends_by_its_error(error: Exception, state: RunState) -> None:
    assert final_state(unstarted(error), "") is state


def test_whoever_reads_an_error_of_ours_is_told_what_to_do_and_a_long_one_is_cut() -> None:
    error = lost("the node is gone").error
    assert error is not None
    assert error.hint == "run the cell again"
    assert len(str(final_reason(Outcome("error", ErrorInfo("ValueError", "x" * 9000)), ""))) == 300
