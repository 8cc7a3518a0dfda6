"""Queues files, scenarios and commands of the pages about scheduling are read, played, and end as they say."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from doc_blocks import block, blocks_in

from jupyter_gpu_release.cli.main import main
from jupyter_gpu_release.scheduling.queues.queues_file import parse_queues
from jupyter_gpu_release.simulation.scenario import differences, parse_scenarios, run_scenario

_DOCS = Path(__file__).parents[2] / "docs"
_TEXT = (_DOCS / "scheduling.md").read_text()


_QUEUES = [one.text for one in blocks_in("scheduling/queues-file.md", "yaml")]
_SCENARIOS = [one.text for one in blocks_in("scheduling/scenarios.md", "json")]


def test_there_is_a_queues_file_for_four_teams() -> None:
    assert len(_QUEUES) == 4


@pytest.mark.parametrize("text", _QUEUES)
def test_a_documented_queues_file_gives_its_users_queues(text: str) -> None:
    file = parse_queues(text, "queues-file.md")
    users = {user for group in file.groups.values() for user in group} or {"anybody"}
    assert all(file.queue_for(user) in file.queues_of(user) for user in users)


@pytest.mark.parametrize("text", _SCENARIOS)
def test_a_documented_scenario_ends_as_it_says(text: str) -> None:
    for scenario in parse_scenarios(text, "scenarios.md"):
        assert scenario.is_judged
        assert differences(scenario, run_scenario(scenario)) == []


def test_the_commands_play_a_scenario(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (scenario,) = _SCENARIOS
    Path("case.json").write_text(scenario)
    as_text, as_json = (shlex.split(line)[2:] for line in block("scheduling.md", "# Scheduling").commands())
    assert main(as_text) == 0
    assert "two teams" in capsys.readouterr().out
    assert main(as_json) == 0
    assert json.loads(capsys.readouterr().out)
    Path("case.json").write_text(scenario.replace('{"b": {"state": "running"}}', '{"b": {"state": "queued"}}'))
    assert main(as_text) == 1, "it says another end"


def _run(run: str, gpus: int, *where: str, queue: str = "q", **facts: Any) -> dict[str, Any]:
    """A run that holds GPUs of a node, or waits for so many on one."""
    ranks = [{"state": "running", "node": where[0]}] if where else [{"state": "queued"}]
    return {"run": run, "queue": queue, "gpus_per_rank": gpus, "ranks": ranks, "restartable": True, **facts}


def _drawing(*nodes: int, queues: Sequence[dict[str, Any]] = ({"name": "q"},), runs: Sequence[dict[str, Any]]) -> Any:
    named = [{"name": f"node{index}", "gpus": gpus} for index, gpus in enumerate(nodes)]
    return {"nodes": named, "queues": list(queues), "runs": list(runs)}


_TWO = ({"name": "a", "guaranteed": 2}, {"name": "b", "guaranteed": 2})
_PICTURES = {
    "allocate": (
        _drawing(
            4,
            queues=_TWO,
            runs=[_run("ann", 2, "node0", queue="a"), _run("bob", 2, queue="b"), _run("cat", 1, queue="a")],
        ),
        {"ann": "running", "bob": "granted", "cat": "queued"},
    ),
    "backfill": (
        _drawing(
            8,
            runs=[
                _run("ann", 4, "node0", expected_s=100, running_s=0),
                _run("bob", 6, age_s=60, expected_s=600),
                _run("cat", 1, age_s=50, expected_s=90),
                _run("dan", 2, age_s=40, expected_s=7200),
                _run("eve", 2, age_s=30, expected_s=7200),
            ],
        ),
        {"ann": "running", "bob": "queued", "cat": "granted", "dan": "granted", "eve": "queued"},
    ),
    "consolidate": (
        _drawing(
            2,
            2,
            runs=[
                _run("ann", 1, "node0", restartable=False, age_s=90),
                _run("bob", 1, "node1", age_s=89),
                _run("cat", 2),
            ],
        ),
        {"ann": "running", "bob": "promised", "cat": "promised"},
    ),
    "reclaim": (
        _drawing(
            4,
            queues=_TWO,
            runs=[
                _run("ann1", 2, "node0", queue="a", age_s=90),
                _run("ann2", 1, "node0", queue="a", age_s=60),
                _run("bob1", 1, "node0", queue="b", age_s=90),
                _run("bob2", 1, queue="b"),
            ],
        ),
        {"ann1": "running", "ann2": "yielding", "bob1": "running", "bob2": "promised"},
    ),
    "preempt": (
        _drawing(
            2, runs=[_run("ann", 1, "node0", age_s=90), _run("bob", 1, "node0", age_s=89), _run("cat", 1, priority=75)]
        ),
        {"ann": "running", "bob": "yielding", "cat": "promised"},
    ),
}


@pytest.mark.parametrize("action", sorted(_PICTURES))
def test_a_drawn_action_does_what_is_drawn(action: str) -> None:
    drawn, states = _PICTURES[action]
    actions = ["allocate", "backfill"] if action == "backfill" else [action]
    (scenario,) = parse_scenarios(json.dumps({"actions": actions, **drawn}), "picture")
    runs = run_scenario(scenario)["runs"]
    assert {name: run["state"] for name, run in runs.items()} == states
    picture = (_DOCS / "images" / f"action-{action}.svg").read_text()
    assert all(f">{name.rstrip('12')}<" in picture for name in states if name != "eve")
    assert f"(images/action-{action}.svg)" in _TEXT
