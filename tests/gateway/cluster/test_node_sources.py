"""The contract of whatever lends nodes: Ray's autoscaler, Slurm, nobody, and a fake; ``Scaling`` builds on it."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from jupyter_gpu_release.errors import ClusterError
from jupyter_gpu_release.gateway.cluster import node_demand
from jupyter_gpu_release.gateway.cluster.autoscaler import AutoscalerReport, Request
from jupyter_gpu_release.gateway.cluster.lease import Lease, LeaseTable
from jupyter_gpu_release.gateway.cluster.node_demand import NodeDemand
from jupyter_gpu_release.gateway.cluster.node_source import FixedNodes, NodeSource
from jupyter_gpu_release.gateway.cluster.nodes import Node, NodeTable, left_s
from jupyter_gpu_release.gateway.cluster.slurm_nodes import SlurmNodes
from jupyter_gpu_release.host.slurm import Slurm
from jupyter_gpu_release.host.slurm_answers import SlurmJob
from jupyter_gpu_release.protocol.config import GatewayConfig, SlurmPool
from jupyter_gpu_release.protocol.node import AttemptId, NodeInfo
from jupyter_gpu_release.protocol.runs import ResourceAsk
from jupyter_gpu_release.scheduling.decisions import NodeWanted, NoRoom, OverMax, Slot, Wait
from jupyter_gpu_release.scheduling.resource_requests import to_run
from jupyter_gpu_release.scheduling.workload import Run

IDLE_S = 60.0


class _Nobody:
    def on_nodes_changed(self) -> None:
        """Nobody minds."""

    on_leases_changed = on_gpus_free = on_nodes_changed


def node(name: str, job: str = "") -> dict[str, Any]:
    labels = {"slurm-job": job} if job else {}
    resources = {"GPU": 2.0, "CPU": 4.0}
    return {"NodeID": name, "Alive": True, "NodeManagerHostname": name, "Resources": resources, "Labels": labels}


def make_nodes(*names: str, jobs: Sequence[str] = ()) -> NodeTable:
    nodes = NodeTable("/tmp/none", _Nobody())
    nodes.refresh([node(name, job) for name, job in zip(names, jobs or [""] * len(names), strict=True)])
    return nodes


class FakeNodes(NodeSource):
    """Lends what is asked for at once."""

    scales = True

    def __init__(self) -> None:
        self.asked: set[str] = set()

    async def look(self, lacking: Sequence[Run], waiting: Collection[str], idle_s: Mapping[str, float]) -> bool:
        before, self.asked = self.asked, {run.run for run in lacking if run.run in waiting}
        self.spare = tuple(name for name, idle in idle_s.items() if idle >= IDLE_S and not self.asked)
        return before != self.asked

    def with_answer(self, wait: Wait) -> Wait:
        if wait.run in self.asked and isinstance(wait.cause, NoRoom):
            return Wait(wait.run, wait.queue, wait.position, NodeWanted(wait.cause, "asked"))
        return wait

    async def give_back(self, node: Node) -> None:
        self.leaving |= {node.node}


@dataclass
class StandInForRay:
    """Answers as Ray's autoscaler does; tests/gateway/cluster/test_autoscaling.py asks the real one."""

    requests: dict[str, Request] = field(default_factory=dict)

    async def ask(self, question: Callable[[], Any]) -> Any:
        if question is node_demand.read_autoscaler:
            return AutoscalerReport(scales=True)
        if question is node_demand.list_requests:
            return list(self.requests.values())
        assert isinstance(question, partial)
        if question.func is node_demand.raise_request:
            run = question.args[0].run
            self.requests[run] = Request(run, f"group of {run}")
        else:
            del self.requests[question.args[0].run]
        return None


class StandInForSlurm(Slurm):
    """Answers as Slurm does; tests/local_cluster/test_slurm.py asks the real one. ``trouble``: what ``fails`` says."""

    def __init__(self) -> None:
        self.queue: dict[str, SlurmJob] = {}
        self.submitted = 0
        self.trouble = ""
        self.fails = {"sbatch", "scancel", "squeue"}
        self.asked: list[str] = []

    def submit(self, pool: SlurmPool, name: str, script: str, log: Path) -> str:
        self._answer("sbatch")
        self.submitted += 1
        self.queue[str(self.submitted)] = SlurmJob(str(self.submitted), "PENDING", reason="Priority")
        return str(self.submitted)

    def cancel(self, jobs: Sequence[str]) -> None:
        if jobs:
            self._answer("scancel")
        for job in jobs:
            self.queue.pop(job, None)

    def jobs(self, name: str) -> list[SlurmJob]:
        self._answer("squeue")
        return list(self.queue.values())

    def with_drained(self, jobs: Sequence[SlurmJob]) -> list[SlurmJob]:
        return list(jobs)

    def _answer(self, command: str) -> None:
        self.asked.append(command)
        if self.trouble and command in self.fails:
            raise ClusterError(self.trouble, hint="none")

    def begin(self, job: str, left_s: float = 3600.0) -> None:
        """It gets a node."""
        self.queue[job] = SlurmJob(job, "RUNNING", left_s)


POOL = SlurmPool(max_nodes=2, gpus_per_node=2, cpus_per_node=4, idle_return="60s")


def slurm_nodes(
    slurm: Slurm,
    nodes: NodeTable,
    home: str = "/nowhere",
    clock: Any = time.monotonic,
    pool: SlurmPool = POOL,
    held: LeaseTable | None = None,
) -> SlurmNodes:
    leases = held or LeaseTable(_Nobody())
    config = GatewayConfig(home=home, store="", token_file="", runtime="", ray_address="", cluster="cafe", slurm=pool)
    return SlurmNodes(config, pool, nodes, leases, slurm, clock)


@pytest.fixture(params=["fixed", "ray", "slurm", "fake"])
def source(request: pytest.FixtureRequest) -> NodeSource:
    nodes = make_nodes("n1", "n2", jobs=("1", "2"))
    ray: Any = StandInForRay()
    kinds: dict[str, Callable[[], NodeSource]] = {
        "fixed": FixedNodes,
        "ray": lambda: NodeDemand(ray, nodes, IDLE_S),
        "slurm": lambda: slurm_nodes(StandInForSlurm(), make_nodes()),
        "fake": FakeNodes,
    }
    if "idle" in request.node.name:
        kinds["slurm"] = lambda: slurm_nodes(StandInForSlurm(), nodes)
    return kinds[request.param]()


def play(*calls: Awaitable[bool]) -> None:
    async def all_of() -> None:
        for call in calls:
            await call
        while tasks := asyncio.all_tasks() - {asyncio.current_task()}:  # what Slurm is asked meanwhile
            await asyncio.wait(tasks)

    asyncio.run(all_of())


RUN, GANG = to_run("r", ResourceAsk(gpus=2)), to_run("r", ResourceAsk(gpus=4, ranks=2, nodes=2))
WAIT = Wait("r", "research", 1, NoRoom(1, 2000, 0, 4000))
LOOK: tuple[list[Run], set[str], dict[str, float]] = ([], set(), {})


def test_without_need_nothing_is_asked_and_nothing_goes(source: NodeSource) -> None:
    play(source.look(*LOOK), source.look(*LOOK))
    assert source.with_answer(WAIT) == WAIT
    assert not source.leaving
    assert not source.spare


def test_who_waits_is_told_what_is_done_and_no_more_once_it_waits_no_longer(source: NodeSource) -> None:
    play(source.look(*LOOK), source.look([RUN], {"r"}, {}))
    answer = source.with_answer(WAIT)
    assert isinstance(answer.cause, NodeWanted) == source.scales
    over_max = Wait("r", "research", 1, OverMax("research", 1))
    assert source.with_answer(over_max) == over_max  # no node would help it
    play(source.look(*LOOK))
    assert source.with_answer(WAIT) == WAIT


def test_only_what_was_idle_for_long_may_go_and_not_while_it_is_waited_for(source: NodeSource) -> None:
    idle_s = {"n1": IDLE_S + 1, "n2": IDLE_S - 1}
    play(source.look(*LOOK), source.look([], set(), idle_s))
    assert source.spare == (("n1",) if source.scales else ())
    play(source.look([GANG], {"r"}, idle_s))
    assert not source.spare


def test_a_node_is_given_back_twice_without_harm(source: NodeSource) -> None:
    found = make_nodes("n1").find("n1")
    assert found is not None
    play(source.look(*LOOK))
    asyncio.run(source.give_back(found))
    asyncio.run(source.give_back(found))


def test_whoever_ends_with_a_node_is_told_so(source: NodeSource) -> None:
    found = make_nodes("n1").find("n1")
    assert found is not None
    assert source.why_leaving(found)
    assert source.why_gone(found).startswith("the node n1 is gone")


# ------------------------------------------------------------------------------------------------- Slurm
class PoolGame:
    """Looks of a pool, each with a clock that goes on by ten minutes."""

    def __init__(self, tmp_path: Path, pool: SlurmPool = POOL) -> None:
        self.slurm, self.nodes, self.now_s = StandInForSlurm(), make_nodes(), time.monotonic()
        (tmp_path / "log").mkdir(parents=True)
        self.home = tmp_path
        self.leases = LeaseTable(_Nobody())
        self.source = slurm_nodes(self.slurm, self.nodes, str(tmp_path), lambda: self.now_s, pool, self.leases)

    def look(self, *runs: Run, idle_s: Mapping[str, float] | None = None, after_s: float = 700.0) -> str:
        """Two looks, since the first hears what Slurm said before; what ``r`` is told."""
        for _ in range(2):
            self.now_s += after_s
            play(self.source.look(runs, {run.run for run in runs}, idle_s or {}))
        cause = self.source.with_answer(WAIT).cause
        return cause.says if isinstance(cause, NodeWanted) else ""


@pytest.fixture
def game(tmp_path: Path) -> PoolGame:
    return PoolGame(tmp_path)


def test_the_gpus_that_may_come_count_before_they_do(game: PoolGame) -> None:
    assert (game.source.gpus_most, FixedNodes().gpus_most) == (4, 0)


def test_a_job_is_submitted_once_named_and_withdrawn(game: PoolGame) -> None:
    assert game.look(RUN) == "waiting for a node: Slurm job 1, pending (Priority)"
    assert game.look(RUN) == "waiting for a node: Slurm job 1, pending (Priority)"
    game.slurm.begin("1")
    assert game.look(RUN) == "waiting for a node: Slurm job 1, its node starts"
    assert game.slurm.submitted == 1
    game.nodes.refresh([node("n1", "1")])
    game.look(GANG)
    assert game.slurm.submitted == 2
    game.look()
    assert list(game.slurm.queue) == ["1"]


def test_what_slurm_refuses_is_said_and_asked_again_after_a_while(game: PoolGame) -> None:
    game.slurm.trouble = "sbatch: Job violates accounting/QOS policy"
    assert game.look(RUN) == "waiting for a node: sbatch: Job violates accounting/QOS policy"
    game.slurm.trouble = ""
    game.look(RUN, after_s=0.1)
    assert game.slurm.submitted == 0
    game.look(RUN)
    assert game.slurm.submitted == 1


def test_without_an_answer_of_squeue_no_further_job_is_submitted(game: PoolGame) -> None:
    game.look()
    game.slurm.fails, game.slurm.trouble = {"squeue"}, "squeue: rate limit exceeded"
    for _ in range(6):
        game.look(RUN)
    assert game.slurm.submitted == 1
    game.slurm.trouble = ""
    assert game.look(RUN).startswith("waiting for a node: Slurm job 1, pending")


def test_what_cannot_be_cancelled_holds_up_no_new_job(game: PoolGame) -> None:
    game.look(RUN)
    game.slurm.fails, game.slurm.trouble = {"scancel"}, "scancel: Access/permission denied on job 1"
    game.look()
    game.look(GANG)
    assert game.slurm.submitted == 3


def test_as_soon_as_a_silent_controller_answers_its_silence_is_no_trouble_any_more(game: PoolGame) -> None:
    game.slurm.fails, game.slurm.trouble = {"squeue"}, "squeue: Socket timed out"
    for _ in range(5):
        told = game.look(RUN)
    assert told == "waiting for a node: squeue: Socket timed out"
    game.slurm.trouble = ""
    assert game.look(RUN, after_s=31.0) == "waiting for a node: Slurm job 1, pending (Priority)"
    assert game.slurm.submitted == 1


def test_a_controller_in_trouble_is_asked_seldom(game: PoolGame) -> None:
    game.look(RUN)
    game.slurm.trouble = "squeue: Unable to contact slurm controller"
    game.look(RUN, after_s=31.0)
    game.slurm.asked.clear()
    for _ in range(4):
        game.look(RUN, after_s=3.1)
    assert game.slurm.asked == []


def test_a_job_that_ends_without_its_node_shows_its_log(game: PoolGame) -> None:
    game.look(RUN)
    game.slurm.begin("1")
    game.look(RUN)
    (game.home / "log" / "slurm-1.log").write_text("this node (n1) cannot reach the head at 10.0.0.1:6379\n")
    game.slurm.cancel(["1"])
    told = game.look(RUN, after_s=3.1)
    assert (
        told == "waiting for a node: Slurm job 1 ended at once: this node (n1) cannot reach the head at 10.0.0.1:6379"
    )
    assert game.slurm.submitted == 1


def test_a_job_without_a_log_asks_for_the_shared_folder(game: PoolGame) -> None:
    game.look(RUN)
    game.slurm.cancel(["1"])
    told = game.look(RUN, after_s=3.1)
    assert "left no " in told
    assert told.endswith("do the compute nodes have that folder?")


def test_a_node_that_goes_back_gets_no_runs_until_its_job_is_over(game: PoolGame) -> None:
    game.look(RUN)
    game.slurm.begin("1")
    game.nodes.refresh([node("n1", "1")])
    game.look(idle_s={"n1": 61.0})
    assert game.source.spare == ("n1",)
    found = game.nodes.find("n1")
    assert found is not None
    game.slurm.trouble = "slurm_load_jobs error: Unable to contact slurm controller"
    asyncio.run(game.source.give_back(found))
    game.look()
    assert game.source.leaving == {"n1"}
    game.slurm.trouble = ""
    game.look()
    assert game.slurm.queue == {}


@pytest.mark.parametrize(("left_s", "is_leaving"), [(10.0, True), (3600.0, False), (float("inf"), False)])
def test_a_node_leaves_before_its_walltime_is_over(game: PoolGame, left_s: float, *, is_leaving: bool) -> None:
    game.look(RUN, after_s=31.0)
    game.slurm.begin("1", left_s)
    game.nodes.refresh([node("n1", "1")])
    game.look(after_s=31.0)
    assert (game.source.leaving == {"n1"}) == is_leaving
    (seen,) = game.nodes.scheduled()
    assert seen.left_s <= left_s


#: no time left, however far the game's clock is ahead
OVER = -5000.0


def test_another_limit_of_a_job_that_runs_is_heard(game: PoolGame) -> None:
    game.look(RUN, after_s=31.0)
    game.slurm.begin("1", 3600.0)
    game.nodes.refresh([node("n1", "1")])
    game.look(after_s=31.0)
    for left, is_leaving in ((OVER, True), (7200.0, False), (float("inf"), False), (OVER, True)):
        game.slurm.begin("1", left)
        game.look(after_s=31.0)
        assert (game.source.leaving == {"n1"}) == is_leaving


def test_when_a_node_ends_is_asked_as_it_comes(game: PoolGame) -> None:
    game.look(RUN)
    game.slurm.begin("1", OVER)  # after Slurm was asked last
    game.nodes.refresh([node("n1", "1")])
    game.look(RUN, after_s=0.01)
    assert game.source.leaving == {"n1"}


@pytest.mark.parametrize(("limit_s", "submitted"), [(7000.0, 0), (6900.0, 1)])
def test_a_run_that_no_new_node_stays_for_is_refused(tmp_path: Path, limit_s: float, submitted: int) -> None:
    game = PoolGame(tmp_path, msgspec.structs.replace(POOL, walltime="2h"))
    run = to_run("r", ResourceAsk(gpus=2), limit_s=limit_s)
    told = game.look(run)
    assert (game.slurm.submitted, "the pool's walltime leaves" in told) == (submitted, not submitted)
    game.nodes.refresh([node("n1", "1")])
    come = game.nodes.alive()[0]
    come.ends_s = time.monotonic() + 7200.0 - 45.0  # after 45 s its agent is there
    assert (left_s(come) >= limit_s) == bool(submitted)


def test_for_a_drained_node_another_one_is_asked(game: PoolGame) -> None:
    game.nodes.refresh([node("n1", "9")])
    game.slurm.begin("9")
    game.look(RUN)
    assert game.slurm.submitted == 0
    game.nodes.note_drained({"n1": "drained by ann"})
    assert not game.nodes.scheduled()[0].schedulable  # so the run lacks a node, and does not wait for this one
    game.look(RUN)
    assert game.slurm.submitted == 1


def test_a_node_that_slurm_drains_takes_no_runs_and_goes_back_as_soon_as_it_is_idle(game: PoolGame) -> None:
    game.nodes.refresh([node("n1", "9")])
    game.slurm.begin("9")
    game.look()
    (found,) = game.nodes.alive()
    game.slurm.queue["9"] = replace(game.slurm.queue["9"], drained="new disk")
    game.look(RUN)
    assert (game.source.leaving, game.source.spare, game.slurm.submitted) == ({"n1"}, (), 1)
    assert "drained in Slurm (new disk)" in game.source.why_leaving(found)
    game.look(idle_s={"n1": 0.1})
    assert game.source.spare == ("n1",)
    game.slurm.begin("9")  # resumed
    game.look(idle_s={"n1": 0.1})
    assert (game.source.leaving, game.source.spare) == (set(), ())


def test_a_node_about_to_end_goes_back_as_soon_as_nothing_runs_there(game: PoolGame) -> None:
    """Its GPUs may be those that the job waits for which takes its place."""
    game.nodes.refresh([node("n1", "9")])
    game.slurm.begin("9", OVER)
    game.look(RUN)
    assert (game.source.leaving, game.source.spare) == ({"n1"}, ())
    game.look(RUN, idle_s={"n1": 0.1})
    assert (game.source.leaving, game.source.spare) == ({"n1"}, ("n1",))


def test_before_a_walltimes_end_who_runs_there_is_told_when(game: PoolGame) -> None:
    game.nodes.refresh([node("n1", "9")])
    game.slurm.begin("9")
    game.look()
    (found,) = game.nodes.alive()
    assert re.match(r"its node's Slurm job ends at \d\d:\d\d, and the run with it", game.source.why_leaving(found))
    game.slurm.queue["9"] = SlurmJob("9", "COMPLETING")
    game.look()
    assert game.source.why_leaving(found) == "its node is about to end, and the run with it"


def test_who_is_lost_with_a_node_is_told_of_its_job_and_of_a_walltime_that_is_over(game: PoolGame) -> None:
    game.nodes.refresh([node("n1", "9")])
    game.slurm.begin("9")
    game.look()
    (found,) = game.nodes.alive()
    assert game.source.why_gone(found).endswith("is gone with its Slurm job 9 (why: see log/slurm-9.log)")
    found.ends_s = time.monotonic()
    assert game.source.why_gone(found).endswith("is gone with its Slurm job 9, whose walltime is over")


def test_a_node_whose_job_ends_is_no_node_though_ray_has_not_seen_it_yet(game: PoolGame) -> None:
    game.slurm.begin("9")
    game.nodes.refresh([node("n1", "9")])
    game.look(RUN)
    game.slurm.queue["9"] = SlurmJob("9", "COMPLETING")
    game.look(RUN)
    assert (game.source.leaving, game.slurm.submitted) == ({"n1"}, 1)
    del game.slurm.queue["9"]
    game.look(RUN)
    assert game.source.leaving == {"n1"}
    game.nodes.refresh([{**node("n1", "9"), "Alive": False}])
    game.look(RUN)
    assert not game.source.leaving


def test_halves_of_two_gpus_are_no_room_for_a_whole_one(game: PoolGame) -> None:
    game.slurm.begin("9")
    game.nodes.refresh([node("n1", "9")])
    for gpu in "01":
        game.leases.add(Lease(gpu, AttemptId(f"half {gpu}", 1), (Slot("n1", 0.5),))).gpu_ids = ((gpu,),)
    game.look(to_run("r", ResourceAsk(gpus=1)))
    assert game.slurm.submitted == 1


def test_a_job_whose_node_has_failed_is_ended(game: PoolGame) -> None:
    game.look(RUN)
    game.slurm.begin("1")
    game.nodes.refresh([node("n1", "1")])
    game.look()
    game.nodes.refresh([{**node("n1", "1"), "Alive": False}])
    game.look()
    assert game.slurm.queue == {}


def test_what_an_earlier_life_has_submitted_is_not_submitted_again(game: PoolGame) -> None:
    game.slurm.queue["7"] = SlurmJob("7", "PENDING", reason="Resources")
    assert game.look(RUN) == "waiting for a node: Slurm job 7, pending (Resources)"
    assert game.slurm.submitted == 0


def test_the_least_nodes_are_there_without_a_run(tmp_path: Path) -> None:
    game = PoolGame(tmp_path, msgspec.structs.replace(POOL, min_nodes=1))
    game.look()
    game.look()
    assert game.slurm.submitted == 1


def test_a_gang_keeps_its_first_node_while_the_agent_of_the_second_starts(game: PoolGame) -> None:
    game.look(GANG)
    game.slurm.begin("1")
    game.slurm.begin("2")
    game.nodes.refresh([node("n1", "1"), node("n2", "2")])
    play(game.source.look([], {"r"}, {"n1": 100.0}))  # it lacks no node any more
    assert game.source.spare == ()
    for found in game.nodes.alive():
        found.info = NodeInfo(node=found.node, host=found.host, incarnation="1", python="", version="")
    play(game.source.look([], {"r"}, {"n1": 100.0}))  # both are there, and the queue has not looked since
    assert game.source.spare == ()
    play(game.source.look([], set(), {"n1": 100.0}))
    assert game.source.spare == ("n1",)
