"""Queues files and scenarios of docs/scheduling.md are read, played, and end as they say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from jupyter_gpu_release.scheduling.queues.queues_file import parse_queues
from jupyter_gpu_release.simulation.scenario import differences, parse_scenarios, run_scenario

_TEXT = (Path(__file__).parents[2] / "docs" / "scheduling.md").read_text()


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", _TEXT, re.DOTALL | re.MULTILINE)


def test_there_is_a_queues_file_for_four_teams() -> None:
    assert len(_blocks("yaml")) == 4


@pytest.mark.parametrize("text", _blocks("yaml"))
def test_a_documented_queues_file_gives_its_users_queues(text: str) -> None:
    file = parse_queues(text, "docs/scheduling.md")
    users = {user for group in file.groups.values() for user in group} or {"anybody"}
    assert all(file.queue_for(user) in file.queues_of(user) for user in users)


@pytest.mark.parametrize("text", _blocks("json"))
def test_a_documented_scenario_ends_as_it_says(text: str) -> None:
    for scenario in parse_scenarios(text, "docs/scheduling.md"):
        assert scenario.is_judged
        assert differences(scenario, run_scenario(scenario)) == []


_PICTURES = {
    "consolidate": (
        [("ann", "node0", 1, False), ("bob", "node1", 1, True)], ("cat", 2, "q", 50), [2, 2], {"bob"},
    ),
    "preempt": ([("ann", "node0", 1, True), ("bob", "node0", 1, True)], ("cat", 1, "q", 75), [2], {"bob"}),
}  # fmt: skip


@pytest.mark.parametrize("action", sorted(_PICTURES))
def test_a_drawn_action_does_what_is_drawn(action: str) -> None:
    running, (name, gpus, queue, priority), nodes, moved = _PICTURES[action]
    written = {
        "actions": [action],
        "nodes": [{"name": f"node{index}", "gpus": count} for index, count in enumerate(nodes)],
        "queues": [{"name": "q"}],
        "runs": [
            {"run": run, "queue": "q", "age_s": 90 - at, "gpus_per_rank": count, "restartable": restartable,
             "ranks": [{"state": "running", "node": node}]}
            for at, (run, node, count, restartable) in enumerate(running)
        ] + [{"run": name, "queue": queue, "priority": priority, "gpus_per_rank": gpus, "restartable": True}],
    }  # fmt: skip
    (scenario,) = parse_scenarios(json.dumps(written), "picture")
    runs = run_scenario(scenario)["runs"]
    assert runs[name]["state"] == "promised"
    assert {run for run, *_ in running if runs[run]["state"] != "running"} == moved
