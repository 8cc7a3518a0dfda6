"""``jupyter gpu simulate``: what the scheduler would do with what is written down; no cluster is needed."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..errors import OptionError
from ..local_cluster.preflight import read_queues
from ..local_cluster.slurm_pool import read_pool
from ..scheduling.pool import pool_of
from ..simulation.baselines import BASELINES
from ..simulation.borrowed import Borrowed, Site, cluster_of_pool
from ..simulation.charts import write_report
from ..simulation.cluster import ClusterSpec, read_cluster
from ..simulation.configured import Configured
from ..simulation.ledger import cluster_of, held_over_used, measured, trace_of
from ..simulation.report import Column, Comparison, PolicyMaker, compare, print_report, with_measured
from ..simulation.scenario import Scenario, differences, read_scenarios, run_scenario
from ..simulation.trace import Trace, read_trace
from ..units import format_count
from .connect import open_gateway
from .tables import output_console, write_columns


def run(arguments: argparse.Namespace) -> int:
    """Play what is given."""
    if arguments.scenario:
        return _play(read_scenarios(Path(arguments.scenario)), as_json=arguments.json)
    if arguments.from_ledger and arguments.trace:
        raise OptionError("simulate: a trace and --from-ledger", hint="give one of them")
    if arguments.from_ledger:
        return _replay_ledger(arguments)
    if arguments.trace:
        return _replay(arguments)
    raise OptionError(
        "simulate: nothing to play",
        hint="give a trace: `jupyter gpu simulate TRACE.csv --cluster FILE`, or `--scenario FILE`",
    )


def _play(scenarios: Sequence[Scenario], *, as_json: bool) -> int:
    """Play scenarios; exit status 1 when one ends otherwise than it expects."""
    answers = [run_scenario(scenario) for scenario in scenarios]
    if as_json:
        _print_json({"scenarios": answers})
        return 0
    console = output_console()
    rows = [
        (answer["id"], name, run["state"], _nodes(run), run["reason"])
        for answer in answers
        for name, run in answer["runs"].items()
    ]
    write_columns(console, ("SCENARIO", "RUN", "STATE", "NODES", "WHY"), rows, {})
    known = [(scenario, answer) for scenario, answer in zip(scenarios, answers, strict=True) if scenario.is_judged]
    wrong = {scenario.id: found for scenario, answer in known if (found := differences(scenario, answer))}
    if known:
        count, ends = format_count(len(known), "scenario"), "ends" if len(known) == 1 else "end"
        console.file.write(f"\n{len(known) - len(wrong)} of {count} {ends} as expected\n")
    for name, found in wrong.items():
        console.file.write(f"{name}: {'; '.join(found)}\n")
    return 1 if wrong else 0


def _nodes(run: dict[str, Any]) -> str:
    return ", ".join(dict.fromkeys(rank["node"] for rank in run["ranks"] if "node" in rank))


def _replay(arguments: argparse.Namespace) -> int:
    """Replay a trace."""
    columns = _columns(arguments, _no_cluster)
    return _show(arguments, _compare(read_trace(Path(arguments.trace)), columns))


def _no_cluster() -> ClusterSpec:
    hint = "describe it: `nodes: [{count: 50, gpus: 8}]` in a YAML file"
    raise OptionError("simulate: a trace needs --cluster FILE, or --slurm FILE", hint=hint)


def _replay_ledger(arguments: argparse.Namespace) -> int:
    """Replay this cluster's own runs, beside what they went through."""
    with open_gateway(timeout_s=_PATIENCE_S) as gateway:
        columns = _columns(arguments, lambda: cluster_of(gateway.status()))
        rows = gateway.runs(_MOST_RUNS).runs
    comparison = _compare(trace_of(rows), columns)
    happened = measured(comparison.trace, rows, comparison.gpus)
    return _show(arguments, with_measured(comparison, happened, held_over_used(comparison.trace, rows)))


def _show(arguments: argparse.Namespace, comparison: Comparison) -> int:
    written = write_report(Path(arguments.out), comparison) if arguments.out else []
    if arguments.json:
        _print_json(comparison.document())
        return 0
    console = output_console()
    print_report(console, comparison)
    for path in written:
        console.print(f"  {path}", markup=False)
    return 0


#: runs that a gateway lists at most; reading them takes its time
_MOST_RUNS, _PATIENCE_S = 10_000, 120.0
_POLICIES: dict[str, PolicyMaker] = {**BASELINES, "configured": Configured}


def _columns(arguments: argparse.Namespace, unnamed: Callable[[], ClusterSpec]) -> dict[str, Column]:
    """Policies on the cluster that is named, or on the ``unnamed`` one; where pools are given, those."""
    if arguments.slurm:
        return _pools(arguments)
    policies = _policies(arguments)
    cluster = read_cluster(Path(arguments.cluster)) if arguments.cluster else unnamed()
    return {name: Column(cluster, make) for name, make in policies.items()}


def _pools(arguments: argparse.Namespace) -> dict[str, Column]:
    """Pools by their files; in each the scheduler has the queues of the one file that is given."""
    if arguments.policy or len(arguments.queues) > 1:
        raise OptionError(
            "simulate: --slurm with --policy, or with several --queues",
            hint="nodes are borrowed for our own order: leave out --policy, and give one queues file at most",
        )
    file = read_queues(Path(arguments.queues[0])) if arguments.queues else None
    site, part = Site(arguments.node_wait), arguments.restartable
    pools = {path: pool_of(read_pool(path)) for path in arguments.slurm}
    return {
        path: Column(cluster_of_pool(pool), partial(Borrowed, pool=pool, site=site, file=file, restartable=part))
        for path, pool in pools.items()
    }


def _policies(arguments: argparse.Namespace) -> dict[str, PolicyMaker]:
    """Policies by the names of their columns; one queues file is ``configured``, several are called as they are."""
    named: list[str] = arguments.policy
    unknown = next((name for name in named if name not in _POLICIES), None)
    if unknown is not None:
        raise OptionError(f"--policy {unknown}: no such policy", hint=f"policies: {', '.join(_POLICIES)}")
    part = arguments.restartable
    files = {
        str(path): partial(Configured, file=read_queues(Path(path)), restartable=part) for path in arguments.queues
    }
    found = {name: _POLICIES[name] for name in named or _POLICIES}
    if "configured" in found:
        found["configured"] = partial(Configured, restartable=part)
    if not files or "configured" not in found:
        return found
    del found["configured"]
    return {**found, **(files if len(files) > 1 else {"configured": next(iter(files.values()))})}


def _compare(trace: Trace, columns: dict[str, Column]) -> Comparison:
    with _progress() as progress:
        tasks = {name: progress.add_task(name, total=len(trace.jobs)) for name in columns}
        return compare(trace, columns, lambda name, started: progress.update(tasks[name], completed=started))


@contextmanager
def _progress() -> Iterator[Progress]:
    """Bars on the terminal, and nothing where a program reads."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield progress


def _print_json(document: dict[str, Any]) -> None:
    output_console().file.write(json.dumps(document) + "\n")
