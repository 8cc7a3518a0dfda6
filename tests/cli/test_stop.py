"""``stop`` where something runs: it names it, asks, refuses where nobody can be asked, waits where it is told to."""

from __future__ import annotations

import io
import os
import signal
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace as changed

from jupyter_gpu_release.cli import cluster
from jupyter_gpu_release.cli.main import main
from jupyter_gpu_release.client.home import Connection, HomePaths, write_secret
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.errors import AuthenticationError, GatewayUnavailableError
from jupyter_gpu_release.local_cluster import maintenance
from jupyter_gpu_release.local_cluster.start import StopReport
from jupyter_gpu_release.protocol.admin import NodeDrain
from jupyter_gpu_release.protocol.rest import GatewayFacts, GpuCounts, NodeRow, RunRow, StatusDocument, WarmRow

_RUNS = RunRow("20261127-020000-00000001", "ann", "running", gpus=2, held_s=7500.0, name="overnight", detached=True)
_WAITS = RunRow("20261127-020000-00000002", "bob", notebook="/n/eval.ipynb", queued_s=60.0, reason="no GPU is free")
_WARM = WarmRow("lease", "20261127-010000-00000003", "eve", 1, 0.0, 60.0)
_NODE = NodeRow("n1", "host1", [])
_QUIET = StatusDocument(1, True, GatewayFacts("u", "v"), GpuCounts(4, 0, 4, 0), [_NODE], [], [])
_BUSY = changed(_QUIET, queue=[_WAITS], runs=[_WAITS, _RUNS], warm=[_WARM], queue_total=1)


class _Gateway:
    """A cluster's gateway: its answers one after the other, the last of them for good."""

    def __init__(self) -> None:
        self.answers: list[StatusDocument | BaseException] = [_QUIET]
        self.drained: list[str] = []
        self.resumed: list[str] = []
        self.ended = 0

    def status(self, _client: GatewayClient) -> StatusDocument:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def drain(self, client: GatewayClient, drain: NodeDrain) -> StatusDocument:
        self.drained.append(drain.node)
        return self.status(client)

    def resume(self, _client: GatewayClient, drain: NodeDrain) -> StatusDocument:
        self.resumed.append(drain.node)
        return _QUIET


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Gateway:
    """The gateway of a cluster that lives, on a machine where nobody types."""
    home = HomePaths(tmp_path / "home")
    home.create()
    write_secret(home.token, "secret")
    home.write_connection(Connection("http://127.0.0.1:9", str(home.token), "", cluster="none"))
    found = _Gateway()

    def end(_home: HomePaths) -> StopReport:
        found.ended += 1
        return StopReport(1, 9)

    monkeypatch.setenv("JUPYTER_GPU_HOME", str(home.root))
    monkeypatch.delenv("JPY_PARENT_PID", raising=False)
    monkeypatch.setattr(cluster, "stop_embedded", end)
    monkeypatch.setattr(cluster, "running_connection", lambda home: home.read_connection())
    monkeypatch.setattr(GatewayClient, "status", lambda client: found.status(client))
    monkeypatch.setattr(GatewayClient, "drain_node", lambda client, drain: found.drain(client, drain))
    monkeypatch.setattr(GatewayClient, "resume_node", lambda client, drain: found.resume(client, drain))
    monkeypatch.setattr(maintenance, "_LOOK_S", 0.0)
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    return found


class _Typed(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_runs_and_waits_is_named_and_not_ended_where_nobody_can_be_asked(
    gateway: _Gateway, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway.answers = [_BUSY]
    assert main(["stop"]) == 1
    assert gateway.ended == 0
    said = capsys.readouterr().err
    assert f"run {_RUNS.run} of ann, running for 2 h 5 min, 2 GPUs, detached: overnight" in said
    assert f"run {_WAITS.run} of bob, queued for 1 min, 1 GPU: eval.ipynb" in said
    assert f"1 GPU kept warm after run {_WARM.run} of eve" in said
    assert said.index(_RUNS.run) < said.index(_WAITS.run)
    assert "--yes" in said
    assert "--drain" in said


def test_scripts_say_yes(gateway: _Gateway) -> None:
    gateway.answers = [_BUSY]
    assert main(["stop", "--yes"]) == 0
    assert gateway.ended == 1


@pytest.mark.parametrize(("typed", "ended"), [("y\n", 1), ("yes\n", 1), ("\n", 0), ("no\n", 0), ("", 0)])
def test_on_a_terminal_it_is_asked(
    typed: str, ended: int, gateway: _Gateway, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway.answers = [_BUSY]
    monkeypatch.setattr(sys, "stdin", _Typed(typed))
    assert main(["stop"]) == 1 - ended
    assert gateway.ended == ended
    said = capsys.readouterr()
    assert _RUNS.run in said.err
    assert ("Nothing was stopped." in said.out) == (not ended)


def test_in_a_notebook_nobody_can_type(gateway: _Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython gives commands of ``!`` a terminal, and no way to type into it."""
    gateway.answers = [_BUSY]
    monkeypatch.setattr(sys, "stdin", _Typed("y\n"))
    monkeypatch.setenv("JPY_PARENT_PID", "1")
    assert main(["stop"]) == 1
    assert gateway.ended == 0


def test_warm_leases_are_said_and_not_asked_about(gateway: _Gateway, capsys: pytest.CaptureFixture[str]) -> None:
    gateway.answers = [changed(_QUIET, warm=[_WARM])]
    assert main(["stop"]) == 0
    assert gateway.ended == 1
    assert f"1 GPU kept warm after run {_WARM.run} of eve: given back." in capsys.readouterr().out


def test_results_that_are_being_written_hold_up_nothing(gateway: _Gateway) -> None:
    """They are kept, on the store or the spool, before the cluster is gone."""
    gateway.answers = [changed(_QUIET, runs=[changed(_RUNS, state="persisting")])]
    assert main(["stop"]) == 0
    assert gateway.ended == 1


def test_runs_that_a_status_leaves_out_are_counted() -> None:
    many = changed(_QUIET, runs=[changed(_WAITS, run=f"r{n}") for n in range(25)], queue_total=40)
    lines = maintenance.unended_runs(many)
    assert len(lines) == 21
    assert lines[-1] == "and 20 more"


@pytest.mark.parametrize("words", [["stop"], ["stop", "--drain"]])
def test_a_cluster_that_does_not_answer_is_stopped_at_once(words: list[str], gateway: _Gateway) -> None:
    gateway.answers = [GatewayUnavailableError("nobody there")]
    assert main(words) == 0
    assert gateway.ended == 1


def test_a_gateway_that_refuses_to_say_what_runs_is_no_quiet_one(
    gateway: _Gateway, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway.answers = [AuthenticationError("the token is unknown")]
    assert main(["stop"]) == 1
    assert "the token is unknown" in capsys.readouterr().err
    assert gateway.ended == 0
    monkeypatch.setattr(cluster, "running_connection", lambda _home: None)
    assert main(["stop"]) == 0, "a cluster that has died"


def test_a_drain_waits_says_what_for_and_what_ends_all_the_same(
    gateway: _Gateway, capsys: pytest.CaptureFixture[str]
) -> None:
    drained = changed(_BUSY, nodes=[changed(_NODE, drained="the cluster is about to be stopped")], warm=[])
    gateway.answers = [_BUSY, drained, drained, changed(drained, runs=[_WAITS])]
    assert main(["stop", "--drain"]) == 0
    assert gateway.ended == 1
    assert gateway.drained == ["host1"]
    assert gateway.resumed == []
    said = capsys.readouterr()
    assert "nothing new begins; waiting for 1 run to end" in said.err
    assert f"run {_WAITS.run} of bob" in said.out


def test_a_drain_outlasts_a_restart_of_the_gateway(gateway: _Gateway) -> None:
    away = GatewayUnavailableError("connection refused")
    gateway.answers = [_BUSY, _BUSY, away, away, _BUSY, _BUSY, changed(_QUIET, runs=[])]
    assert main(["stop", "--drain"]) == 0
    assert gateway.answers == [changed(_QUIET, runs=[])], "it was not ended before what runs had ended"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_drain_is_taken_back(
    number: signal.Signals, gateway: _Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.answers = [_BUSY]
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for each in (signal.SIGTERM, signal.SIGHUP):  # not as `nohup` has left it
        signal.signal(each, signal.SIG_DFL)
    monkeypatch.setattr(maintenance.time, "sleep", lambda _s: os.kill(os.getpid(), number))
    try:
        assert main(["stop", "--drain"]) == 130
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert gateway.resumed == ["host1"]
    assert gateway.ended == 0


def test_yes_and_drain_exclude_each_other(gateway: _Gateway, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stop", "--yes", "--drain"]) == 2
    assert gateway.ended == 0
