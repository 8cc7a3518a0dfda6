"""Scenarios: a cluster, its queues and runs written down in JSON, and what the policy makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from ..errors import OptionError
from ..presentation.wording import reason_words
from ..scheduling.decisions import Preempt, Start
from ..scheduling.queues.queues_file import (
    PolicySpec,
    QueueSpec,
    priority_value,
    seconds,
    thousandths,
    to_policy,
    to_queue,
)
from ..scheduling.queues.tree import DEFAULT_QUEUE, Queue, QueueTree
from ..scheduling.reasons import explain
from ..scheduling.schedule import schedule
from ..scheduling.state import ClusterSnapshot
from ..scheduling.workload import GPU, Needs, Node, Rank, RankState, Run
from ..units import parse_bytes

_MOST_ROUNDS = 1000
_HOLDS = (RankState.RUNNING, RankState.YIELDING)


class _Spec(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    pass


class NodeSpec(_Spec, frozen=True):
    """A node as written."""

    name: str
    gpus: float
    gpu_type: str = ""
    gpu_memory: str = ""
    cpus: int = 0
    memory: str = ""
    labels: dict[str, str] = {}
    #: takes runs
    up: bool = True


class RankSpec(_Spec, frozen=True):
    """A rank as written."""

    state: Literal["queued", "running", "yielding"] = "queued"
    node: str | None = None


class RunSpec(_Spec, frozen=True):
    """A run as written."""

    run: str
    queue: str | None = None
    user: str = ""
    priority: int | str = 50
    restartable: bool = False
    gpus_per_rank: float = 1
    min_ranks: int | None = None
    age_s: float = 0
    running_s: float | None = None
    expected_s: float | None = None
    timeout: float | str | None = None
    nodes: int | Literal["any"] = "any"
    gpu_type: str = ""
    min_gpu_memory: str = ""
    cpus: int = 0
    memory: str = ""
    labels: dict[str, str] = {}
    ranks: tuple[RankSpec, ...] = (RankSpec(),)


class Scenario(_Spec, frozen=True):
    """A whole scenario. ``expected`` and ``expected_ranks`` say how it should end, where that is known."""

    nodes: list[NodeSpec]
    runs: list[RunSpec]
    id: str = ""
    queues: list[QueueSpec] = []
    actions: tuple[str, ...] | None = None
    rounds: int | None = None
    policy: PolicySpec = PolicySpec()
    expected: dict[str, dict[str, str]] = {}
    expected_ranks: dict[str, dict[str, str]] = {}

    @property
    def is_judged(self) -> bool:
        """It says how it should end."""
        return bool(self.expected or self.expected_ranks)


def read_scenarios(path: Path) -> list[Scenario]:
    """Read a file with one scenario or a list of them; raises :class:`OptionError` that names the place."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise OptionError(f"--scenario {path}: {error.strerror}", hint="give a JSON file that can be read") from error
    return parse_scenarios(text, str(path))


def parse_scenarios(text: bytes | str, name: str) -> list[Scenario]:
    """Read one scenario or a list of them; ``name`` is that of the file, for errors."""
    try:
        written = msgspec.json.decode(text)
        return msgspec.convert(written if isinstance(written, list) else [written], list[Scenario])
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise OptionError(f"{name}: {error}", hint="`jupyter gpu docs scheduling/scenarios` shows one") from error


def run_scenario(scenario: Scenario) -> dict[str, Any]:
    """Play a scenario; the answer is what ``simulate --scenario --json`` prints for it."""
    try:
        snapshot = to_snapshot(scenario)
    except OptionError as error:
        raise OptionError(f"scenario {scenario.id or '(no id)'}: {error.message}", hint=error.hint) from error
    runs = _Runs(snapshot)
    for _ in range(scenario.rounds or 1):
        runs.play()
        if scenario.rounds:
            runs.settle()
    return {"id": scenario.id, "runs": runs.answer()}


class _Runs:
    """The runs of a scenario over its rounds."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot = snapshot
        self._reasons: dict[str, str] = {}

    def play(self) -> None:
        """Carry out one pass: what it decides becomes the ranks' states."""
        ranks = {run.run: list(run.ranks) for run in self._snapshot.runs}
        self._reasons = {}
        for decision in schedule(self._snapshot, 0.0):
            self._reasons.setdefault(decision.run, reason_words(explain(decision)))
            if isinstance(decision, Start):
                state = RankState.PROMISED if decision.promised else RankState.GRANTED
                for index, node in decision.ranks:
                    ranks[decision.run][index] = Rank(state, node)
            elif isinstance(decision, Preempt):
                for index in decision.ranks:
                    ranks[decision.run][index] = replace(ranks[decision.run][index], state=RankState.YIELDING)
                for index, node in decision.moves:
                    ranks[decision.run][index] = Rank(RankState.PROMISED, node)
        self._set(ranks)

    def settle(self) -> None:
        """Let what is granted run, and queue what is preempted and what is promised."""
        self._set({run.run: [_settled(rank) for rank in run.ranks] for run in self._snapshot.runs})

    def _set(self, ranks: Mapping[str, Sequence[Rank]]) -> None:
        runs = tuple(replace(run, ranks=tuple(ranks[run.run])) for run in self._snapshot.runs)
        self._snapshot = replace(self._snapshot, runs=runs)

    def answer(self) -> dict[str, Any]:
        """Give each run's state, reason and ranks."""
        return {run.run: self._of(run) for run in self._snapshot.runs}

    def _of(self, run: Run) -> dict[str, Any]:
        states = {rank.state for rank in run.ranks}
        ranks = [replace(rank, node="") if rank.state is RankState.QUEUED else rank for rank in run.ranks]
        nodes = {rank.node for rank in ranks if rank.node}
        state = next(state for state in _MOST_TELLING if state in states)
        found: dict[str, Any] = {"state": str(state), "reason": self._reasons.get(run.run) or _STANDS[state]}
        if len(nodes) == 1:
            found["node"] = next(iter(nodes))
        written = [{"state": str(rank.state)} | ({"node": rank.node} if rank.node else {}) for rank in ranks]
        return found | {"ranks": written}


def _settled(rank: Rank) -> Rank:
    if rank.state in (RankState.GRANTED, RankState.RUNNING):
        return Rank(RankState.RUNNING, rank.node)
    return Rank(RankState.QUEUED, rank.node if rank.state is RankState.PROMISED else "")


_MOST_TELLING = (RankState.RUNNING, RankState.GRANTED, RankState.PROMISED, RankState.YIELDING, RankState.QUEUED)
_STANDS = {
    RankState.RUNNING: "goes on running",
    RankState.YIELDING: "is being preempted",
    RankState.QUEUED: "waits",
    RankState.GRANTED: "starts",
    RankState.PROMISED: "starts soon",
}


def to_snapshot(scenario: Scenario) -> ClusterSnapshot:
    """Turn what is written into what the policy takes; raises :class:`OptionError` for what cannot be."""
    queues = tuple(to_queue(spec) for spec in scenario.queues) or (Queue(DEFAULT_QUEUE),)
    tree = QueueTree(queues)
    if scenario.rounds is not None and not 1 <= scenario.rounds <= _MOST_ROUNDS:
        raise OptionError(f"rounds: {scenario.rounds}", hint=f"write 1 to {_MOST_ROUNDS}, or leave it out for one pass")
    nodes = tuple(_node(spec) for spec in scenario.nodes)
    _refuse_twins("node", [node.name for node in nodes])
    _refuse_twins("run", [spec.run for spec in scenario.runs])
    runs = tuple(_run(spec, tree, nodes) for spec in scenario.runs)
    _check_room(nodes, runs)
    _check_expected(scenario)
    spec = scenario.policy
    policy = to_policy(spec if scenario.actions is None else msgspec.structs.replace(spec, actions=scenario.actions))
    return ClusterSnapshot(nodes, queues, runs, policy)


def _refuse_twins(what: str, names: Sequence[str]) -> None:
    twin = next((name for name in names if names.count(name) > 1), None)
    if twin is not None:
        raise OptionError(f"{what} {twin}: there are two of this name", hint="rename one of them")


def _node(spec: NodeSpec) -> Node:
    place = f"node {spec.name}"
    return Node(
        name=spec.name,
        gpus=thousandths(spec.gpus, f"{place}: gpus"),
        gpu_type=spec.gpu_type,
        gpu_memory_bytes=_bytes(spec.gpu_memory, f"{place}: gpu_memory"),
        cpus=spec.cpus,
        memory_bytes=_bytes(spec.memory, f"{place}: memory"),
        labels=tuple(spec.labels.items()),
        schedulable=spec.up,
    )


def _bytes(written: str, place: str) -> int:
    return parse_bytes(written, option=f"{place}:") if written else 0


def _run(spec: RunSpec, tree: QueueTree, nodes: Sequence[Node]) -> Run:
    place = f"run {spec.run}"
    min_ranks = len(spec.ranks) if spec.min_ranks is None else spec.min_ranks
    if not 1 <= min_ranks <= len(spec.ranks):
        raise OptionError(f"{place}: min_ranks {min_ranks} of {len(spec.ranks)} ranks", hint="write 1 up to all ranks")
    if spec.nodes != "any" and (spec.nodes < 1 or len(spec.ranks) % spec.nodes):
        raise OptionError(
            f"{place}: {len(spec.ranks)} ranks cannot be spread evenly over {spec.nodes} nodes", hint='or nodes: "any"'
        )
    return Run(
        run=spec.run,
        queue=_queue_of(spec, tree),
        ranks=tuple(_rank(rank, index, spec, nodes) for index, rank in enumerate(spec.ranks)),
        gpus_per_rank=thousandths(spec.gpus_per_rank, f"{place}: gpus_per_rank"),
        min_ranks=min_ranks,
        priority=priority_value(spec.priority, f"{place}: priority"),
        restartable=spec.restartable,
        user=spec.user,
        submitted_at=-spec.age_s,
        started_at=None if spec.running_s is None else -spec.running_s,
        expected_s=spec.expected_s,
        limit_s=None if spec.timeout is None else seconds(spec.timeout, f"{place}: timeout"),
        nodes=spec.nodes,
        needs=_needs(spec),
    )


def _needs(spec: RunSpec) -> Needs:
    return Needs(
        gpu_type=spec.gpu_type,
        min_gpu_memory_bytes=_bytes(spec.min_gpu_memory, f"run {spec.run}: min_gpu_memory"),
        cpus=spec.cpus,
        memory_bytes=_bytes(spec.memory, f"run {spec.run}: memory"),
        labels=tuple(spec.labels.items()),
    )


def _queue_of(spec: RunSpec, tree: QueueTree) -> str:
    leaves = tree.leaves()
    name = spec.queue or (leaves[0] if len(leaves) == 1 else DEFAULT_QUEUE)
    if name not in tree.queues:
        raise OptionError(
            f"run {spec.run}: there is no queue {name}", hint=f"queues that take runs: {', '.join(leaves)}"
        )
    if not tree.is_leaf(name):
        raise OptionError(f"run {spec.run}: queue {name} has queues below it", hint=f"take one of {', '.join(leaves)}")
    return name


def _rank(spec: RankSpec, index: int, run: RunSpec, nodes: Sequence[Node]) -> Rank:
    place = f"run {run.run}: rank {index}"
    state = RankState(spec.state)
    if (spec.node is not None) != (state in _HOLDS):
        what = "has no node" if spec.node is None else f"is on {spec.node}"
        raise OptionError(
            f"{place} is {state} and {what}", hint="a rank that runs or is preempted has a node, a queued one none"
        )
    names = [node.name for node in nodes]
    if spec.node is not None and spec.node not in names:
        raise OptionError(f"{place} is on {spec.node}, and there is no such node", hint=f"nodes: {', '.join(names)}")
    return Rank(state, spec.node or "")


def _check_room(nodes: Sequence[Node], runs: Sequence[Run]) -> None:
    for node in nodes:
        held = sum(run.gpus_per_rank for run in runs for rank in run.ranks if rank.node == node.name)
        if held > node.gpus:
            raise OptionError(
                f"node {node.name}: its runs hold {held / GPU:g} GPUs, and it has {node.gpus / GPU:g}",
                hint="let some of them wait, or give the node more",
            )


def _check_expected(scenario: Scenario) -> None:
    ranks = {f"{spec.run}-{index}" for spec in scenario.runs for index in range(len(spec.ranks))}
    unknown = [
        *(scenario.expected.keys() - {spec.run for spec in scenario.runs}),
        *(scenario.expected_ranks.keys() - ranks),
    ]
    if unknown:
        raise OptionError(f"expected: there is no {unknown[0]}", hint="name runs, and ranks as RUN-INDEX")


def differences(scenario: Scenario, answer: Mapping[str, Any]) -> list[str]:
    """List what ends otherwise than the scenario expects."""
    wanted = {(run, index): ends for run, ends in scenario.expected.items() for index in _indexes(answer, run)}
    for name, ends in scenario.expected_ranks.items():
        run, _, index = name.rpartition("-")
        wanted[run, int(index)] = ends
    return [
        f"rank {index} of {run}: {key} is {found}, expected {value}"
        for (run, index), ends in wanted.items()
        for key, value in ends.items()
        if (found := answer["runs"][run]["ranks"][index].get(key)) != value
    ]


def _indexes(answer: Mapping[str, Any], run: str) -> range:
    return range(len(answer["runs"][run]["ranks"]))
