"""Lineage: what all nodes have in common, walks that end, and a run's own record."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from broker_bed import BrokerBed, until

from jupyter_gpu_release.gateway.cluster.nodes import Node
from jupyter_gpu_release.gateway.db.lineage import facts_of
from jupyter_gpu_release.gateway.results.lineage import _agreed, _walk, in_front_of
from jupyter_gpu_release.protocol.environments import Plan, PlannedPackage
from jupyter_gpu_release.protocol.lineage import MOST_DEPTH, MOST_RUNS, Environment, Link
from jupyter_gpu_release.protocol.wire import encode

_TORCH = Environment("3.11", "Linux 6.1", packages={"torch": "2.5"})


def _of(*found: Environment) -> tuple[str, str]:
    nodes = [Node(f"n{number}", f"gpu{number}", 1, 1, 1) for number in range(len(found))]
    return _agreed(nodes, list(found))


def test_results_are_used_again_only_where_all_nodes_have_the_same() -> None:
    alone, reason = _of(_TORCH)
    assert (alone != "", reason) == (True, "")
    assert _of(_TORCH, Environment("3.11", "Linux 6.2", packages={"torch": "2.5"})) == (alone, "")
    for other in (Environment("3.12", packages={"torch": "2.5"}), Environment("3.11", packages={"torch": "2.6"})):
        assert _of(_TORCH, other) == ("", "the nodes have different packages (gpu0, gpu1)")
    unknown = Environment("3.11", unknown=["own", "apex"])
    assert _of(unknown, _TORCH) == ("", "it is not known which apex, own the nodes have")
    assert _of() == ("", "no node is there to tell its packages")


def test_a_run_in_an_environment_had_its_packages() -> None:
    nodes = Environment("3.11", packages={"einops": "absent", "numpy": "1.26", "torch": "2.5"}, unknown=["own"])
    plan = Plan(
        "3.11.9", "here", [PlannedPackage("numpy", "2.0"), PlannedPackage("mine", "1", digest="sha256:ab")], digest="e1"
    )
    seen = {"mine": "1 sha256:ab", "numpy": "2.0", "torch": "2.5"}
    assert in_front_of(nodes, plan) == Environment("3.11", packages=seen, unknown=["own"], digest="e1")
    assert in_front_of(nodes, None) is nodes
    other = in_front_of(nodes, msgspec.structs.replace(plan, python="3.13.0", interpreter="3.13"))
    own = {"mine": "1 sha256:ab", "numpy": "2.0"}
    assert other == Environment("3.13.0", packages=own, unknown=["own"], digest="e1")


def _walked(links: dict[str, list[str]], *, up: bool) -> tuple[list[str], bool]:
    """``links``: run → those that it leads to."""

    def links_of(runs: list[str]) -> list[Link]:
        pairs = [(run, other) for run in runs for other in links.get(run, ())]
        return [Link(run, "x", other) if up else Link(other, "x", run) for run, other in pairs]

    found, is_cut = _walk(cast(Any, partial(links_of)), "0", up=up)
    return [link.source if up else link.run for link in found], is_cut


@pytest.mark.parametrize("up", [True, False])
def test_a_walk_visits_each_run_once_and_says_where_it_was_cut(up: bool) -> None:
    assert _walked({"0": ["1", "2"], "1": ["3"], "2": ["3"], "3": ["0"]}, up=up) == (["1", "2", "3", "3", "0"], False)
    chain = {str(n): [str(n + 1)] for n in range(MOST_DEPTH - 1)}
    assert _walked(chain, up=up) == ([str(n + 1) for n in range(MOST_DEPTH - 1)], False)
    assert _walked({str(n): [str(n + 1)] for n in range(MOST_DEPTH)}, up=up)[1]
    assert not _walked({"0": [str(n) for n in range(1, MOST_RUNS)]}, up=up)[1]
    assert _walked({"0": [str(n) for n in range(1, MOST_RUNS + 1)]}, up=up)[1]


@pytest.mark.asyncio
async def test_each_runs_record_has_the_versions_of_its_own_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed = BrokerBed(tmp_path, monkeypatch, a=1)

    async def do_environment(_agent: object, packages: list[str]) -> bytes:
        return encode(Environment("3.11", packages=dict.fromkeys(packages, "1.0")))

    monkeypatch.setattr(type(bed.agents["a"]), "do_environment", do_environment)
    async with bed.life() as service:

        def recorded(run: str) -> dict[str, str]:
            with service.engine.connect() as connection:
                return facts_of(connection, run).environment.packages

        for package in ("torch", "jax"):
            record = await bed.running(service, packages=[package])
            bed.end(service, record)
            await until(lambda run=record.run: recorded(run))
            assert recorded(record.run) == {package: "1.0"}
