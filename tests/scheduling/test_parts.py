"""Parts of GPUs: shared or whole, packed as Ray packs them, given back, and made room of."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyter_gpu_release.scheduling.decisions import Preempt, Slot, Start
from jupyter_gpu_release.scheduling.queues.tree import Policy, Queue
from jupyter_gpu_release.scheduling.reasons import explain
from jupyter_gpu_release.scheduling.schedule import decide_on, schedule
from jupyter_gpu_release.scheduling.state import ClusterSnapshot, State
from jupyter_gpu_release.scheduling.workload import GPU, Node, Rank, RankState, Run

_QUEUES = (Queue("a", weight=2), Queue("b", weight=1))
_common = settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


@dataclass
class Gpus:
    """GPUs of nodes as Ray gives them out: a part on the fullest that has room, whole ones where nobody is."""

    free: dict[str, list[int]]
    held: dict[str, list[tuple[str, int, int]]] = field(default_factory=dict)

    def grant(self, run: Run, node: str) -> str:
        free = self.free[node]
        if run.is_part:
            fits = [(left, at) for at, left in enumerate(free) if left >= run.gpus_per_rank]
            assert fits, f"Ray has no {run.gpus_per_rank} on one of {free}"
            chosen = [min(fits)[1]]
        else:
            chosen = [at for at, left in enumerate(free) if left == GPU][: run.gpus_per_rank // GPU]
            assert len(chosen) * GPU == run.gpus_per_rank, f"Ray has no {run.gpus_per_rank} whole of {free}"
        for at in chosen:
            took = min(run.gpus_per_rank, GPU)
            free[at] -= took
            self.held.setdefault(run.run, []).append((node, at, took))
        return str(chosen[0]) if run.is_part else ""

    def give_back(self, run: str) -> None:
        for node, at, took in self.held.pop(run, []):
            self.free[node][at] += took


def _part(name: str, part: int, *, node: str = "", gpu: str = "", restartable: bool = True, queue: str = "a") -> Run:
    rank = Rank(RankState.RUNNING, node, gpu) if node else Rank()
    return Run(name, queue, (rank,), part, 1, restartable=restartable)


def _cluster(nodes: tuple[Node, ...], *runs: Run, actions: tuple[str, ...] = ("allocate",)) -> ClusterSnapshot:
    return ClusterSnapshot(nodes, _QUEUES, runs, Policy(actions=actions))


def _starts(snapshot: ClusterSnapshot) -> dict[str, str]:
    return {found.run: found.ranks[0][1] for found in schedule(snapshot, 0.0) if isinstance(found, Start)}


@_common
@given(st.data())
def test_never_more_than_a_card_and_never_a_part_beside_a_whole(data: st.DataObject) -> None:
    """All that is decided Ray grants, whatever ended before; an index made anew decides the same."""
    actions = data.draw(st.sampled_from([("allocate",), ("allocate", "backfill", "consolidate", "reclaim", "preempt")]))
    nodes = tuple(Node(f"n{at}", data.draw(st.integers(1, 3)) * GPU) for at in range(data.draw(st.integers(1, 2))))
    empty = _cluster(nodes, actions=actions)
    kept, shared = State(empty), Gpus({node.name: [GPU] * (node.gpus // GPU) for node in nodes})
    runs: dict[str, Run] = {}
    for now_s in range(1, data.draw(st.integers(2, 12))):
        name = f"r{now_s}"
        runs[name] = Run(
            name,
            data.draw(st.sampled_from("ab")),
            (Rank(),),
            data.draw(st.sampled_from([50, 250, 300, 500, 700, 950, GPU, 2 * GPU])),
            1,
            data.draw(st.sampled_from([25, 50])),
            data.draw(st.booleans()),
            submitted_at=float(now_s),
            expected_s=data.draw(st.sampled_from([None, 3.0])),
        )
        kept.submit(runs[name])
        decided = decide_on(kept, float(now_s))
        assert decided == decide_on(State(replace(empty, runs=tuple(runs.values()))), float(now_s))
        assert all(explain(each) for each in decided)
        taken = {found.run for found in decided if isinstance(found, Preempt)}
        over = [run for run in sorted(runs) if run in taken or (runs[run].ranks[0].node and data.draw(st.booleans()))]
        for found in decided:
            if isinstance(found, Start) and not found.promised:
                node = found.ranks[0][1]
                gpu = shared.grant(runs[found.run], node)
                rank = Rank(RankState.RUNNING, node, gpu)
                kept.end(found.run)
                runs[found.run] = replace(runs[found.run], ranks=(rank,), started_at=float(now_s))
                kept.submit(runs[found.run])
        for run in over:
            kept.end(run)
            shared.give_back(run)
            del runs[run]
    for run in list(runs):
        kept.end(run)
    assert not kept.nodes.shared
    assert kept.nodes.free == {node.name: node.gpus for node in nodes}
    assert not any(kept.nodes.coming.values())


def test_a_shared_card_is_filled_before_another_one_is_opened() -> None:
    nodes = (Node("full", GPU), Node("large", 4 * GPU))
    held = _part("first", 300, node="large", gpu="2")
    assert _starts(_cluster(nodes, held, _part("second", 700))) == {"second": "large"}
    state = State(_cluster(nodes, held, _part("second", 700, node="large")))
    assert state.nodes.gpu_of("second") == "2"
    assert state.nodes.free == {"full": GPU, "large": 3 * GPU}


def test_parts_that_fit_on_no_one_card_wait_though_there_is_enough_in_all() -> None:
    held = (_part("a", 600, node="n", gpu="0"), _part("b", 600, node="n", gpu="1"))
    decided = schedule(_cluster((Node("n", 2 * GPU),), *held, _part("c", 500)), 0.0)
    assert explain(decided[0]) == "next in a: needs 0.5 GPUs, 0.8 of 2 are free (not together)"


def test_a_whole_card_waits_for_the_last_part_of_one() -> None:
    nodes, one = (Node("n", GPU),), _part("one", 500, node="n", gpu="0")
    whole = Run("whole", "a", (Rank(),), GPU, 1)
    assert _starts(_cluster(nodes, one, whole)) == {}
    assert _starts(_cluster(nodes, whole)) == {"whole": "n"}


def test_a_guarantee_takes_all_parts_of_one_card_and_no_others() -> None:
    nodes = (Node("n", 2 * GPU),)
    parts = [_part(f"p{at}", 500, node="n", gpu=str(at // 2), queue="b") for at in range(4)]
    queues = (Queue("a", guaranteed=GPU), Queue("b", weight=0))
    snapshot = ClusterSnapshot(
        nodes, queues, (*parts, Run("whole", "a", (Rank(),), GPU, 1)), Policy(actions=("allocate", "reclaim"))
    )
    taken = {found.run for found in schedule(snapshot, 0.0) if isinstance(found, Preempt)}
    assert taken in ({"p0", "p1"}, {"p2", "p3"})


def test_who_may_share_a_card_and_how_many_is_the_nodes() -> None:
    alone = _part("first", 100, node="n", gpu="0")
    assert _starts(_cluster((Node("n", GPU, parts_per_gpu=1),), alone, _part("second", 100))) == {}
    assert _starts(_cluster((Node("n", GPU, parts_per_gpu=2),), alone, _part("second", 100))) == {"second": "n"}
    (waits,) = schedule(_cluster((Node("n", GPU, parts_per_gpu=0),), _part("first", 100)), 0.0)
    assert "no node of the cluster offers that" in explain(waits)
    assert "GPUs that may be shared" in explain(waits)


def test_a_node_that_is_away_gets_no_further_parts() -> None:
    half, second = _part("half", 500, node="n", gpu="0"), _part("second", 500)
    state = State(_cluster((Node("n", 2 * GPU),), half, second))
    state.nodes.set_outside("n", 0, "drained")
    assert [state.nodes.ranks(second, "n", soon=soon) for soon in (False, True)] == [0, 0]


def test_a_shared_gpu_that_is_aside_gets_no_part_whatever_ray_would_choose() -> None:
    """What fits into the rest of it waits; what does not, and whole GPUs, are given as before."""
    nodes = (Node("n", 3 * GPU),)
    held = _part("held", 600, node="n", gpu="1")
    asked = (_part("small", 300), _part("large", 500), Run("whole", "a", (Rank(),), GPU, 1))
    aside = {"n": {"1": "GPU 1 of n is drained"}}
    decided = schedule(replace(_cluster(nodes, held, *asked), aside=aside), 0.0)
    assert {found.run for found in decided if isinstance(found, Start)} == {"large", "whole"}
    (why,) = [explain(found) for found in decided if not isinstance(found, Start)]
    assert "GPU 1 of n is drained; new parts wait until the runs that share it have ended" in why
    elsewhere = replace(_cluster((*nodes, Node("m", GPU)), held, asked[0]), aside=aside)
    assert _starts(elsewhere) == {"small": "m"}
    state = State(replace(_cluster(nodes, held), aside=aside))
    state.end("held")
    assert state.nodes.ranks(asked[0], "n", soon=False) > 0, "when it is empty it is set aside as any other"


def test_of_two_stuck_attempts_the_gpu_of_the_one_that_is_gone_is_free() -> None:
    """Whichever was stuck first."""
    nodes = State(_cluster((Node("n", 2 * GPU),))).nodes
    run, slot = _part("run", 500), Slot("n", 0.5, 0)
    for gpu in "01":
        nodes.lose(run, slot, 1, gpu)
    nodes.lose(run, slot, -1, "0")
    assert list(nodes.shared["n"]) == ["1"]
    assert nodes.room("n", soon=False) == GPU
