"""A Ray driver beside the tests: what a Ray cluster says of itself, without a new driver for each question."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_PROGRAM = """
import json, os, sys, time
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # Ray prints its warnings there
import ray
from ray._private.state import available_resources_per_node
from ray.util.placement_group import PlacementGroup, placement_group_table, remove_placement_group
ray.init(address=sys.argv[1], namespace="inspector", log_to_driver=False, logging_level="ERROR")
print(json.dumps("ready"), file=answers, flush=True)
for line in sys.stdin:
    word, *rest = json.loads(line)
    if word == "groups":
        table = placement_group_table()
        answer = [g["name"] for g in table.values() if g["state"] != "REMOVED"]
    elif word == "end":
        answer = []
        end_s = time.monotonic() + 60
        while found := [a for a in ray.util.list_named_actors(all_namespaces=True) if a["namespace"] == rest[0]]:
            for actor in found:
                try:
                    ray.kill(ray.get_actor(**actor), no_restart=True)
                except ValueError:  # between two lives, or gone meanwhile
                    assert time.monotonic() < end_s, actor
                else:
                    answer.append(actor["name"])
            time.sleep(0.05)
        for group in placement_group_table().values():
            if group["state"] != "REMOVED" and group["name"].startswith(f"jgr-{rest[0]}-"):
                remove_placement_group(PlacementGroup(ray.PlacementGroupID(bytes.fromhex(group["placement_group_id"]))))
    elif word == "group":
        ray.util.placement_group([{"GPU": 1}], name=rest[0], lifetime="detached")
        answer = None
    elif word == "ungroup":
        table = placement_group_table().values()
        (group,) = [g for g in table if g["name"] == rest[0] and g["state"] != "REMOVED"]
        identity = ray.PlacementGroupID(bytes.fromhex(group["placement_group_id"]))
        answer = remove_placement_group(PlacementGroup(identity))
    elif word == "memory":
        answer = [int(node["Resources"].get("memory", 0)) for node in ray.nodes() if node["Alive"]]
    elif word == "free":
        answer = sum(r.get("GPU", 0) for r in available_resources_per_node().values())
    print(json.dumps(answer), file=answers, flush=True)
"""


class Inspector:
    """One driver; ``close`` ends it."""

    def __init__(self, address: str, environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM, address],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self._answer() == "ready"

    def ask(self, *words: str) -> Any:
        """``groups``, ``free``, ``memory``; ``end NAMESPACE``, ``group NAME``, ``ungroup NAME`` change the cluster."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        assert answer, self._log.read_text()
        return json.loads(answer)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
