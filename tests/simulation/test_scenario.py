"""Scenarios: known ends of another scheduler's tests, and clear errors for what cannot be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu_release.cli.main import main
from jupyter_gpu_release.errors import OptionError
from jupyter_gpu_release.simulation.scenario import differences, parse_scenarios, read_scenarios, run_scenario

KAI = read_scenarios(Path(__file__).with_name("data") / "kai.json")
SWEEPS = read_scenarios(Path(__file__).with_name("sweeps.json"))


@pytest.mark.parametrize("scenario", KAI, ids=lambda scenario: scenario.id)
def test_it_ends_as_in_kai(scenario: Any) -> None:
    assert differences(scenario, run_scenario(scenario)) == []


@pytest.mark.parametrize("scenario", SWEEPS, ids=lambda scenario: scenario.id)
def test_a_sweep_beside_everybodys_cells(scenario: Any) -> None:
    """Its trials are restartable and of low priority; each scenario says how every run ends."""
    assert scenario.expected.keys() == {run.run for run in scenario.runs}
    assert differences(scenario, run_scenario(scenario)) == []


def play(**written: Any) -> dict[str, Any]:
    (scenario,) = parse_scenarios(json.dumps(written), "test.json")
    return run_scenario(scenario)["runs"]


def test_nobody_waits_for_what_they_do_not_need() -> None:
    """The head wants two nodes, and one of them died; whoever does not need it goes on."""
    runs = play(
        nodes=[{"name": "a", "gpus": 4, "cpus": 8}, {"name": "b", "gpus": 4, "cpus": 8, "up": False}],
        runs=[
            {"run": "gang", "age_s": 90, "gpus_per_rank": 4, "nodes": 2, "ranks": [{}, {}]},
            {"run": "small", "age_s": 60},
            {"run": "stage", "age_s": 30, "gpus_per_rank": 0},
        ],
    )
    assert [runs[name]["state"] for name in ("gang", "small", "stage")] == ["queued", "granted", "granted"]
    assert "waits for a node that fits, others may go first" in runs["gang"]["reason"]


def test_a_gang_is_placed_whole_over_uneven_nodes() -> None:
    runs = play(
        nodes=[{"name": "a", "gpus": 3}, {"name": "b", "gpus": 5}, {"name": "c", "gpus": 1}],
        runs=[{"run": "gang", "ranks": [{}] * 8}],
    )
    assert [rank["node"] for rank in runs["gang"]["ranks"]] == ["b"] * 5 + ["a"] * 3


def test_a_gang_stays_within_one_topology_where_it_can() -> None:
    labels = [{"topology": "left"}, {"topology": "right"}, {"topology": "right"}]
    nodes = [{"name": name, "gpus": 2, "labels": label} for name, label in zip("abc", labels, strict=True)]
    runs = play(nodes=nodes, runs=[{"run": "gang", "ranks": [{}] * 3}])
    assert {rank["node"] for rank in runs["gang"]["ranks"]} == {"b", "c"}


def test_old_cards_take_the_work_of_low_priority() -> None:
    runs = play(
        nodes=[
            {"name": "new", "gpus": 2, "gpu_type": "NVIDIA H100"},
            {"name": "old", "gpus": 4, "gpu_type": "Tesla V100"},
        ],
        policy={"card_tiers": {"high": ["h100"], "low": ["v100"]}},
        runs=[{"run": "low", "priority": "low"}, {"run": "high", "priority": "high"}],
    )
    assert (runs["low"]["node"], runs["high"]["node"]) == ("old", "new")


def broken(**changes: Any) -> str:
    good: dict[str, Any] = {
        "id": "case",
        "nodes": [{"name": "node0", "gpus": 2}],
        "queues": [{"name": "q"}],
        "runs": [{"run": "a", "queue": "q", "ranks": [{"state": "running", "node": "node0"}]}],
    }
    return json.dumps(good | changes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "case.json: "),
        (broken(nodes=3), "case.json: Expected `array`, got `int` - at `$[0].nodes`"),
        (broken(gpus=3), "unknown field `gpus`"),
        (
            broken(runs=[{"run": "a", "ranks": [{"state": "running", "node": "node9"}]}]),
            "scenario case: run a: rank 0 is on node9, and there is no such node",
        ),
        (broken(runs=[{"run": "a", "ranks": [{"state": "running"}]}]), "rank 0 is running and has no node"),
        (broken(runs=[{"run": "a", "queue": "p"}]), "run a: there is no queue p"),
        (broken(runs=[{"run": "a"}, {"run": "a"}]), "run a: there are two of this name"),
        (
            broken(runs=[{"run": "a", "gpus_per_rank": 3, "ranks": [{"state": "running", "node": "node0"}]}]),
            "node node0: its runs hold 3 GPUs, and it has 2",
        ),
        (broken(runs=[{"run": "a", "min_ranks": 2}]), "run a: min_ranks 2 of 1 ranks"),
        (broken(runs=[{"run": "a", "priority": "urgent"}]), "run a: priority urgent: not a priority"),
        (broken(queues=[{"name": "q", "parent": "p"}]), "queue q: its parent p is not a queue"),
        (broken(queues=[{"name": "q", "parent": "p"}, {"name": "p", "parent": "q"}]), "its own ancestor (q → p → q)"),
        (
            broken(queues=[{"name": "p"}, {"name": "q", "parent": "p"}], runs=[{"run": "a", "queue": "p"}]),
            "run a: queue p has queues below it",
        ),
        (broken(rounds=0), "scenario case: rounds: 0"),
        (broken(actions=["alocate"]), "actions: there is no alocate"),
        (broken(expected={"b": {"state": "queued"}}), "expected: there is no b"),
    ],
)
def test_what_cannot_be_played_is_said_with_its_place(text: str, message: str) -> None:
    with pytest.raises(OptionError) as caught:
        run_scenario(parse_scenarios(text, "case.json")[0])
    assert message in caught.value.message
    assert caught.value.hint


def test_the_command_prints_one_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "case.json"
    path.write_text(broken(id="one"))
    assert main(["simulate", "--scenario", str(path), "--json"]) == 0
    ranks = [{"state": "running", "node": "node0"}]
    run = {"state": "running", "reason": "goes on running", "node": "node0", "ranks": ranks}
    assert json.loads(capsys.readouterr().out) == {"scenarios": [{"id": "one", "runs": {"a": run}}]}


@pytest.mark.parametrize(("ends", "status"), [("running", 0), ("queued", 1)])
def test_the_command_says_what_ends_otherwise_than_expected(
    ends: str, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "case.json"
    path.write_text(broken(expected={"a": {"state": ends}}))
    assert main(["simulate", "--scenario", str(path)]) == status
    assert f"{1 - status} of 1 scenario ends as expected" in capsys.readouterr().out


def test_a_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--scenario", "nowhere.json"]) == 2
    assert "--scenario nowhere.json: No such file" in capsys.readouterr().err
