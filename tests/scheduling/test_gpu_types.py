"""Guarantees and maxima by type of GPU: maxima are kept, guarantees given back, on GPUs of just that type."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from explained import explain
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpu_release.protocol.runs import ResourceAsk
from jupyter_gpu_release.scheduling.decisions import Grant, OverGuarantee, OverMax, Preempt, Slot, Start
from jupyter_gpu_release.scheduling.queues.gpu_types import named_types, type_among
from jupyter_gpu_release.scheduling.queues.queues_file import parse_queues
from jupyter_gpu_release.scheduling.queues.tree import Policy, Queue
from jupyter_gpu_release.scheduling.resource_requests import to_run
from jupyter_gpu_release.scheduling.schedule import schedule
from jupyter_gpu_release.scheduling.scheduler import Scheduler
from jupyter_gpu_release.scheduling.state import ClusterSnapshot
from jupyter_gpu_release.scheduling.warm_leases import Asker, HeldLease, KeepTerms
from jupyter_gpu_release.scheduling.workload import GPU, Needs, Node, Rank, RankState, Run

TYPES = {"h100": "NVIDIA H100 80GB HBM3", "a100": "NVIDIA A100-SXM4", "v100": "Tesla V100"}
NODES = tuple(Node(f"{kind}-{at}", 4 * GPU, name) for kind, name in TYPES.items() for at in range(2))


def queue(
    name: str, guaranteed: dict[str, int] | None = None, most: dict[str, int] | None = None, **more: str
) -> Queue:
    of = tuple((kind, count * GPU) for kind, count in (guaranteed or {}).items())
    top = tuple((kind, count * GPU) for kind, count in (most or {}).items())
    return Queue(name, guaranteed=sum(count for _, count in of), guaranteed_of=of, max_of=top, **more)


def run(name: str, queue: str, kind: str = "", gpus: int = 1, *, on: str = "", ranks: int = 1, age: float = 0.0) -> Run:
    rank = Rank(RankState.RUNNING, on) if on else Rank()
    return Run(
        name,
        queue,
        (rank,) * ranks,
        gpus * GPU,
        ranks,
        restartable=True,
        submitted_at=-age,
        started_at=-age if on else None,
        needs=Needs(kind),
    )


def settled(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """One pass carried out: what starts runs, what is preempted waits."""
    ranks = {each.run: list(each.ranks) for each in snapshot.runs}
    for decision in schedule(snapshot, 0.0):
        if isinstance(decision, Start):
            for index, node in decision.ranks:
                ranks[decision.run][index] = Rank(RankState.QUEUED if decision.promised else RankState.RUNNING, node)
        elif isinstance(decision, Preempt):
            for index in decision.ranks:
                ranks[decision.run][index] = Rank()
            for index, node in decision.moves:
                ranks[decision.run][index] = Rank(RankState.QUEUED, node)
    return replace(snapshot, runs=tuple(replace(each, ranks=tuple(ranks[each.run])) for each in snapshot.runs))


def held(snapshot: ClusterSnapshot) -> Counter[tuple[str, str]]:
    """GPUs by queue (those above it, too) and type."""
    parents, found = {each.name: each.parent for each in snapshot.queues}, Counter[tuple[str, str]]()
    for each in snapshot.runs:
        for rank in each.ranks:
            if rank.state is RankState.RUNNING:
                name = each.queue
                while name:
                    found[name, rank.node.partition("-")[0]] += each.gpus_per_rank // GPU
                    name = parents[name]
    return found


kinds = st.sampled_from(["", *TYPES])
counts = st.dictionaries(st.sampled_from(["h100", "a100"]), st.integers(0, 5), max_size=2)


@settings(max_examples=80, deadline=None)
@given(
    st.tuples(counts, counts, counts),
    st.lists(st.tuples(st.sampled_from(["b", "c", "d"]), kinds, st.integers(1, 3), st.integers(1, 3)), max_size=20),
)
def test_no_queue_has_more_of_a_type_than_its_maximum(
    most: tuple[dict[str, int], ...], asked: list[tuple[str, str, int, int]]
) -> None:
    queues = (
        queue("a", most=most[0]),
        queue("b", most=most[1], parent="a"),
        queue("c", most=most[2], parent="a"),
        queue("d", {"h100": 3}),
    )
    runs = tuple(
        run(f"r{at}", name, kind, gpus, ranks=ranks, age=float(at))
        for at, (name, kind, gpus, ranks) in enumerate(asked)
    )
    snapshot = ClusterSnapshot(NODES, queues, runs)
    for _ in range(6):
        snapshot = settled(snapshot)
        found = held(snapshot)
        for each in queues:
            assert all(found[each.name, kind] <= count // GPU for kind, count in each.max_of)


@settings(max_examples=80, deadline=None)
@given(
    guaranteed=st.dictionaries(st.sampled_from(["h100", "a100"]), st.integers(1, 8), min_size=1),
    others=st.dictionaries(st.sampled_from(["h100", "a100"]), st.integers(1, 8)),
    data=st.data(),
)
def test_a_guarantee_of_a_type_is_given_back_and_no_other_is_touched(
    guaranteed: dict[str, int], others: dict[str, int], data: st.DataObject
) -> None:
    """One queue has all GPUs; the other asks for what it is guaranteed, type by type, or less."""
    others = {kind: min(count, 8 - guaranteed.get(kind, 0)) for kind, count in others.items()}
    queues = (queue("mine", guaranteed), queue("theirs", others))
    taken = tuple(run(f"t-{node.name}-{at}", "theirs", on=node.name, age=9.0 + at) for node in NODES for at in range(4))
    wanted = {kind: data.draw(st.integers(1, count)) for kind, count in guaranteed.items()}
    asking = tuple(run(f"m-{kind}-{at}", "mine", kind) for kind, count in wanted.items() for at in range(count))
    snapshot = ClusterSnapshot(NODES, queues, (*taken, *asking))
    for _ in range(4):
        snapshot = settled(snapshot)
    found = held(snapshot)
    assert {kind: found["mine", kind] for kind in wanted} == wanted
    assert all(found["theirs", kind] >= count for kind, count in others.items())
    assert found["theirs", "v100"] == 8, "nobody asked for these"


def test_a_run_of_any_type_goes_where_its_queue_may_have_more() -> None:
    found = Scheduler(ClusterSnapshot(NODES, (queue("q", most={"h100": 1, "a100": 0, "v100": 2}),)))
    for at in range(4):
        found.submit(to_run(f"r{at}", ResourceAsk(), queue="q", submitted_at=float(at)), Asker())
    decided = found.decide(10.0)
    nodes = Counter(grant.placement[0].node.partition("-")[0] for grant in decided.grants)
    assert nodes == {"h100": 1, "v100": 2}
    (wait,) = decided.waits
    assert isinstance(wait.cause, OverMax)
    assert explain(wait).endswith("has its maximum of 1 × h100")


def test_whoever_is_below_the_guarantee_of_a_type_is_next_there() -> None:
    """By all GPUs together the other queue would be."""
    queues = (queue("mine", {"h100": 4, "a100": 0}), queue("theirs", {"h100": 0, "a100": 8}))
    mine = tuple(run(f"m{at}", "mine", on="a100-0") for at in range(3))
    full = tuple(run(f"full{at}", "theirs", gpus=4, on=node) for at, node in enumerate(["h100-1", "v100-0", "v100-1"]))
    taken = run("taken", "theirs", gpus=3, on="h100-0")
    asking = (run("theirs h100", "theirs", "h100", age=9.0), run("mine h100", "mine", "h100"))
    policy = Policy(actions=("allocate", "backfill"))
    decided = schedule(ClusterSnapshot(NODES, queues, (*mine, *full, taken, *asking), policy), 0.0)
    assert [each.run for each in decided if isinstance(each, Start)] == ["mine h100"]


def test_runs_that_cannot_be_taken_back_stay_within_the_guarantee_of_the_type() -> None:
    policy = Policy(non_restartable_over_guarantee=False)
    found = Scheduler(ClusterSnapshot(NODES, (queue("q", {"h100": 1, "a100": 1}),), (), policy))
    for at in range(2):
        found.submit(to_run(f"r{at}", ResourceAsk(gpu_type="h100"), queue="q", submitted_at=float(at)), Asker())
    decided = found.decide(10.0)
    assert len(decided.grants) == 1
    assert isinstance(decided.waits[0].cause, OverGuarantee)
    found.submit(replace(run("r2", "q", "h100"), submitted_at=3.0), Asker())
    assert [grant.run for grant in found.decide(10.0).grants] == ["r0", "r2"], "it can be taken back"


def test_kept_gpus_of_a_type_are_not_handed_beyond_its_maximum() -> None:
    queues = (queue("q", most={"h100": 0}), queue("other"))
    found = Scheduler(ClusterSnapshot((NODES[0],), queues))
    kept = to_run("kept", ResourceAsk(gpus=4), queue="other", user="ann")
    terms = KeepTerms("kernel", 1e9)
    found.hold(HeldLease("lease", kept, (Slot(NODES[0].name, 4),), 1.0, terms=terms))
    found.submit(to_run("r", ResourceAsk(gpus=4), queue="q", user="ann"), Asker("kernel"))
    assert not found.decide(10.0).grants
    found.submit(to_run("s", ResourceAsk(gpus=4), queue="other", user="ann"), Asker("kernel"))
    assert found.decide(10.0).grants == [Grant("s", (Slot(NODES[0].name, 4),), "lease")]


def test_a_node_where_a_run_was_lost_is_avoided_while_there_is_another() -> None:
    def granted(*nodes: Node) -> list[str]:
        found = Scheduler(ClusterSnapshot(nodes, (Queue("q"),)))
        found.submit(replace(to_run("r", ResourceAsk(), queue="q"), avoid=("h100-0",)), Asker())
        return [grant.placement[0].node for grant in found.decide(10.0).grants]

    assert granted(NODES[0], NODES[2]) == ["a100-0"]
    assert granted(NODES[0]) == ["h100-0"]
    assert granted(NODES[0], replace(NODES[2], gpus=0)) == ["h100-0"]


def test_counts_by_type_are_read() -> None:
    file = parse_queues("schema_version: 1\nqueues: [{name: q, guaranteed: {h100: 4}, max: {h100: 6, a100: 2}}]", "f")
    found = file.tree.queues["q"]
    assert (found.guaranteed, found.guaranteed_of) == (4 * GPU, (("h100", 4 * GPU),))
    assert (found.max, found.max_of) == (None, (("h100", 6 * GPU), ("a100", 2 * GPU)))


def test_of_two_names_that_a_gpu_has_the_longer_one_is_its_type() -> None:
    names = named_types([queue("q", {"h100": 1}, {"H100 NVL": 2})])
    found = [type_among(gpu, names) for gpu in ("NVIDIA H100 NVL", "NVIDIA H100 PCIe", "Tesla T4")]
    assert found == ["h100nvl", "h100", ""]
