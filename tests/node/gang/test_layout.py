"""What the frameworks find in their environment, read as they read it (without them)."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count

import pytest

from jupyter_gpu_release.node.agent.gang_plan import (
    DISMISSED,
    PREEMPTED,
    explain_stolen_port,
    merge_outcomes,
    merge_saves,
    rank_order,
    rank_specs_of,
    share_gpus,
)
from jupyter_gpu_release.node.gang.layout import EVALUATOR, RANK, GangLayout, RankSpec, gang_environment
from jupyter_gpu_release.node.ipc.frames import SpoolConfig, died_outcome
from jupyter_gpu_release.node.supervisor.limits import STALL_S
from jupyter_gpu_release.protocol.cell import OTHERS_TOGETHER_BYTES, Graph
from jupyter_gpu_release.protocol.lineage import TrackedFile
from jupyter_gpu_release.protocol.node import GangOrder, Member, StartOrder
from jupyter_gpu_release.protocol.runs import ErrorInfo, Outcome, Save


def _gang(ranks: int, *, members: int = 0, ps: int = 0, evaluator: bool = False) -> GangLayout:
    """``ranks`` on each node; each seat with a port of its own, each node with an address of its own."""
    others = [Member(f"node{number}", f"host{number}", ranks) for number in range(1, members + 1)]
    order = StartOrder(
        run="r", payload=b"", folder="", ranks=ranks, gang=GangOrder(members=others, ps=ps, evaluator=evaluator)
    )
    ports = count(5000)
    specs = [replace(spec, address=f"10.0.0.{spec.node}", port=next(ports)) for spec in rank_specs_of(order, "host0")]
    return GangLayout(specs, master_port=4000)


def _as_tensorflow(spec: RankSpec, gang: GangLayout) -> tuple[dict[str, list[str]], str, int]:
    """The cluster and the place in it, as ``TFConfigClusterResolver`` takes them from the environment."""
    config = json.loads(gang_environment(gang, spec)["TF_CONFIG"])
    assert set(config) == {"cluster", "task"}
    return config["cluster"], config["task"]["type"], config["task"]["index"]


@pytest.mark.parametrize("members", [0, 1], ids=["one node", "two nodes"])
@pytest.mark.parametrize(
    ("ranks", "ps", "evaluator", "layout"),
    [
        (2, 0, False, {"worker": 2}),  # MultiWorkerMirroredStrategy: worker 0 is the chief by itself
        (2, 0, True, {"chief": 1, "worker": 1}),
        (1, 2, False, {"chief": 1, "ps": 2}),
        (2, 1, False, {"chief": 1, "worker": 1, "ps": 1}),
        (3, 2, True, {"chief": 1, "worker": 2, "ps": 2}),
    ],
)
def test_tensorflow_finds_one_cluster_and_each_process_its_own_address(
    members: int, ranks: int, ps: int, evaluator: bool, layout: dict[str, int]
) -> None:
    gang = _gang(ranks, members=members, ps=ps, evaluator=evaluator)
    more = {"worker": layout.get("worker", 0) + ranks * members} if members else {}
    found = [_as_tensorflow(spec, gang) for spec in gang.specs]
    cluster = found[0][0]
    assert all(config[0] == cluster for config in found)
    assert {kind: len(addresses) for kind, addresses in cluster.items()} == {**layout, **more}
    tasks = [(kind, index) for _, kind, index in found]
    assert len(set(tasks)) == len(gang.specs)
    for spec, (kind, index) in zip(gang.specs, tasks, strict=True):
        if spec.role == EVALUATOR:  # told of the cluster, and no part of it
            assert (kind, index, kind in cluster) == ("evaluator", 0, False)
        else:
            assert cluster[kind][index] == f"{spec.address}:{spec.port}"
    assert tasks[0] == (("chief" if "chief" in cluster else "worker"), 0)  # rank 0's names come back


@pytest.mark.parametrize(("ps", "evaluator"), [(0, False), (2, True)])
def test_torch_and_jax_count_ranks_only(ps: int, evaluator: bool) -> None:
    gang = _gang(2, members=1, ps=ps, evaluator=evaluator)
    for spec in gang.specs:
        found = gang_environment(gang, spec)
        if spec.role != RANK:
            assert set(found) == {"TF_CONFIG"}
            continue
        assert (found["WORLD_SIZE"], found["JAX_NUM_PROCESSES"], found["LOCAL_WORLD_SIZE"]) == ("4", "4", "2")
        assert found["RANK"] == found["JAX_PROCESS_ID"] == str(spec.index)
        assert (found["LOCAL_RANK"], found["GROUP_RANK"]) == (str(spec.index % 2), str(spec.index // 2))
        assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == ("10.0.0.0", "4000")
        assert found["JAX_COORDINATOR_ADDRESS"] == "10.0.0.0:5000"


@pytest.mark.parametrize("first", ["timeout", "interrupted"])
def test_no_rank_is_to_blame_for_a_timeout_that_ended_all(first: str) -> None:
    stopped = ErrorInfo("KeyboardInterrupt", "", traceback=["in the cell"])
    late = Outcome(status="timeout", error=stopped, ended_s=1.0)
    merged = merge_outcomes({0: Outcome(status=first, error=stopped, ended_s=2.0), 1: late}, _gang(2).specs)
    assert (merged.status, merged.error, merged.notes) == ("timeout", stopped, [])
    alone = merge_outcomes({0: Outcome(status="ok", ended_s=0.5), 1: late}, _gang(2).specs)
    assert (alone.status, alone.notes) == ("timeout", ["rank 1 of 2 still ran"])


def test_a_cell_of_one_process_is_told_nothing() -> None:
    gang = _gang(1)
    assert gang_environment(gang, gang.specs[0]) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[Errno 98] bind to ('10.0.0.1', 5003): address already in use", "the port 5003 of rank 3 (TF_CONFIG)"),
        ("[Errno 98] bind to ('10.0.0.1', 15003): address already in use", ""),
        ("5003 steps were too many", ""),
    ],
)
def test_a_stolen_port_of_another_node_is_known_from_the_error(text: str, words: str) -> None:
    gang = _gang(2, members=1)
    notes = explain_stolen_port(died_outcome("error", "OSError", text), gang.specs, gang.master_port, ()).notes
    assert [(words in note, "something on host1 listens" in note) for note in notes] == [(True, True)] * bool(words)


def _outcome(rank: int, status: str, ended_s: float, **facts: object) -> Outcome:
    """It read a file of its own, and has frames of which two do not fit."""
    frames = {rank: Graph(stream=bytes(OTHERS_TOGETHER_BYTES // 2 + 1))}
    return Outcome(
        status,
        notes=[f"of {rank}"],
        tracked=[TrackedFile(f"{rank}.csv", 1, "d")],
        ended_s=ended_s,
        released_s=9.0 - ended_s,
        frames=frames,
        **facts,  # type: ignore[arg-type]
    )


def test_the_failure_of_a_gang_is_that_of_who_failed_first() -> None:
    """What came from outside is the cause, though others reported its consequence before."""
    specs = _gang(3).specs
    lost_peer, own = ErrorInfo("ConnectionError", "peer"), ErrorInfo("ValueError", "x", ["in the cell"])
    killed = ErrorInfo("RunFailedError", "was killed; its names are gone", code="failed")
    first, last = _outcome(0, "error", 1.0, error=lost_peer), _outcome(2, DISMISSED, 3.0)
    merged = merge_outcomes({2: last, 0: first, 1: _outcome(1, "died", 2.0, error=killed)}, specs)
    assert (merged.status, merged.failed_rank, list(merged.frames)) == ("died", 1, [1])
    assert merged.error is not None
    assert merged.error.evalue == "rank 1 on host0: was killed"
    assert merged.notes == ["of 0", "of 1", "rank 1 of 3 failed"]
    assert (merged.ended_s, merged.released_s, len(merged.tracked)) == (3.0, 8.0, 3)
    merged = merge_outcomes({0: first, 1: _outcome(1, "error", 0.5, error=own), 2: last}, specs)
    assert merged.error is not None
    assert merged.error.traceback == ["in rank 1 on host0:", "in the cell"]
    well = merge_outcomes({0: _outcome(0, "ok", 4.0), 2: last}, specs)
    assert (well.status, well.error, well.notes) == ("ok", None, ["of 0"])
    preempted = _outcome(0, PREEMPTED, 1.0)
    assert merge_outcomes({0: preempted, 1: _outcome(1, "error", 2.0, error=own)}, specs).error is None


def test_each_process_has_its_share_and_only_one_that_is_alone_leaves_by_itself() -> None:
    def told(gang: GangLayout) -> list[tuple[object, ...]]:
        order = StartOrder(run="r", payload=b"", folder="", grace_s=10.0)
        orders = [rank_order(order, SpoolConfig("", ""), spec, gang.specs) for spec in gang.specs]
        return [(each.ranks, each.sharers, each.grace_s, each.tells_leaving) for each in orders]

    assert told(_gang(1, members=1)) == [(2, 1, 20.0, False), (2, 1, 4.0, False)]
    assert told(_gang(1)) == [(1, 1, 10.0, True)]
    assert share_gpus("abcd", 2) == [["a", "b"], ["c", "d"]]


def test_a_gangs_save_has_its_ranks_parts_in_their_order() -> None:
    saves = {rank: Save(number=1, bytes=10, values=Graph(stream=b"%d" % rank)) for rank in (2, 0, 1)}
    merged = merge_saves(saves)
    assert ([part.values for part in merged.parts], merged.bytes) == ([saves[1].values, saves[2].values], 30)


def test_each_process_is_told_all_that_its_run_asked_for() -> None:
    asked = StartOrder(
        run="r",
        payload=b"cell",
        folder="/store/runs/r",
        simulated=True,
        memory_bytes=9,
        cpus=2.0,
        timeout_s=8.0,
        attempt=2,
        restartable=True,
        preempt_grace_s=7.0,
        save=Save(1),
        is_unbegun=True,
        gang=GangOrder(is_elastic=True),
    )
    (spec,) = rank_specs_of(asked, "host0")
    told = rank_order(asked, SpoolConfig("spool", "agent.sock"), spec, [spec], "mark")
    assert (told.run, told.payload, told.folder, told.attempt, told.mark) == ("r", b"cell", "/store/runs/r", 2, "mark")
    assert (told.memory_bytes, told.cpus, told.timeout_s, told.preempt_grace_s) == (9, 2.0, 8.0, 7.0)
    assert (told.simulated, told.restartable, told.is_unbegun, told.is_elastic) == (True, True, True, True)
    assert (told.save, told.keep, told.stall_s) == (Save(1), SpoolConfig("spool", "agent.sock"), STALL_S)
