"""An estimate comes true: compared with a cluster that really goes on, decided anew at each end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from explained import explain
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpu_release.errors import ImpossibleAskError
from jupyter_gpu_release.options.definitions import split_line
from jupyter_gpu_release.options.run_options import build_options
from jupyter_gpu_release.protocol.runs import ResourceAsk
from jupyter_gpu_release.scheduling.decisions import Start
from jupyter_gpu_release.scheduling.plugins.node_filters import impossible
from jupyter_gpu_release.scheduling.queues.tree import Policy, Queue
from jupyter_gpu_release.scheduling.resource_requests import reshaped, to_run
from jupyter_gpu_release.scheduling.run_times import RunTimeHistory, Span
from jupyter_gpu_release.scheduling.schedule import schedule
from jupyter_gpu_release.scheduling.start_estimates.alternatives import other_asks
from jupyter_gpu_release.scheduling.start_estimates.estimate import Alternative, Estimate, estimates, sooner, standing
from jupyter_gpu_release.scheduling.start_estimates.expected_run_times import Case, ExpectedRunTimes, FrozenRunTimes
from jupyter_gpu_release.scheduling.start_estimates.nearest import possible_ask
from jupyter_gpu_release.scheduling.start_estimates.play_ahead import play_ahead
from jupyter_gpu_release.scheduling.state import ClusterSnapshot
from jupyter_gpu_release.scheduling.workload import GPU, Node, Rank, RankState, Run

NOW_S = 10_000.0
POLICY = Policy(actions=("allocate", "backfill"))


def _run(name: str, gpus: int = 1, ranks: int = 1, **facts: Any) -> Run:
    facts = {"queue": "a", "submitted_at": NOW_S - 10, "user": name, "nodes": 1, "expected_s": 100.0} | facts
    return Run(name, ranks=(Rank(),) * ranks, gpus_per_rank=gpus * GPU, min_ranks=ranks, **facts)


def _running(name: str, node: str, left_s: float | None, gpus: int = 1, **facts: Any) -> Run:
    expected_s = None if left_s is None else left_s + 50.0
    run = _run(name, gpus, expected_s=expected_s, started_at=NOW_S - 50, **facts)
    return replace(run, ranks=(Rank(RankState.RUNNING, node),))


def _snapshot(*runs: Run, gpus: tuple[int, ...] = (2,), queues: tuple[Queue, ...] = (Queue("a"),)) -> ClusterSnapshot:
    nodes = tuple(Node(f"n{index}", count * GPU, "h100", cpus=8) for index, count in enumerate(gpus))
    return ClusterSnapshot(nodes, queues, runs, POLICY)


def _really(snapshot: ClusterSnapshot) -> dict[str, float]:
    """Starts of all waiting runs when each pass sees the whole cluster for the first time."""
    now_s, starts = NOW_S, dict[str, float]()
    runs = {run.run: run for run in snapshot.runs}
    while True:
        while decided := [
            each for each in schedule(replace(snapshot, runs=tuple(runs.values())), now_s) if isinstance(each, Start)
        ]:
            for start in decided:
                run = runs[start.run]
                ranks = tuple(Rank(RankState.RUNNING, node) for _, node in sorted(start.ranks))
                runs[start.run] = replace(run, ranks=ranks, started_at=now_s)
                starts[start.run] = now_s
        ends = {
            run.run: run.started_at + run.expected_s
            for run in runs.values()
            if run.started_at is not None and run.expected_s is not None
        }
        if not ends:
            return starts
        now_s = min(ends.values())
        for name in [name for name, end_s in ends.items() if end_s <= now_s]:
            del runs[name]


@st.composite
def _clusters(draw: st.DrawFn) -> ClusterSnapshot:
    sizes = tuple(draw(st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=3)))
    queues = (
        Queue("a", guaranteed=draw(st.integers(0, 3)) * GPU),
        Queue("b", weight=2.0, max=draw(st.none() | st.integers(1, 6).map(lambda n: n * GPU))),
    )
    free, runs = dict(enumerate(sizes)), []
    for number in range(draw(st.integers(0, 5))):
        node = draw(st.sampled_from(sorted(free)))
        if free[node]:
            free[node] -= 1
            left_s = draw(st.none() | st.integers(1, 40).map(float))
            queue = draw(st.sampled_from("ab"))
            runs.append(_running(f"r{number}", f"n{node}", left_s, queue=queue))
    for number in range(draw(st.integers(1, 7))):
        ranks = draw(st.sampled_from([1, 1, 1, 2, 3]))
        runs.append(
            _run(
                f"w{number}",
                draw(st.sampled_from([1, 2])),
                ranks,
                queue=draw(st.sampled_from("ab")),
                user=draw(st.sampled_from(["ann", "bob"])),
                priority=draw(st.sampled_from([25, 50])),
                submitted_at=NOW_S - draw(st.integers(1, 300)),
                nodes=draw(st.sampled_from([1, "any"])),
                expected_s=draw(st.none() | st.integers(1, 200).map(float)),
            )
        )
    return _snapshot(*runs, gpus=sizes, queues=queues)


@settings(max_examples=150, deadline=None)
@given(_clusters())
def test_the_projection_is_what_happens(snapshot: ClusterSnapshot) -> None:
    course = play_ahead(snapshot, ExpectedRunTimes(NOW_S))
    assert {run: start.at_s for run, start in course.items()} == _really(snapshot)


@settings(max_examples=60, deadline=None)
@given(_clusters(), st.sampled_from([(1, 1), (2, 1), (4, 1), (4, 2), (4, 4), (2, 2)]))
def test_what_is_said_to_be_sooner_is_and_nothing_is_left_out(
    snapshot: ClusterSnapshot, shape: tuple[int, int]
) -> None:
    ask = ResourceAsk(gpus=shape[0], ranks=shape[1])
    asked = replace(to_run("asked", ask, queue="a", user="ann", submitted_at=NOW_S), expected_s=50.0)
    as_it_is_s = _really(replace(snapshot, runs=(*snapshot.runs, asked))).get("asked")
    starts = {
        change.words: _really(replace(snapshot, runs=(*snapshot.runs, change.run))).get("asked")
        for family in other_asks(ask, asked, elsewhere=[replace(asked, queue="b")])
        for change in family
    }
    offered = sooner(
        snapshot, ExpectedRunTimes(NOW_S), asked, other_asks(ask, asked, elsewhere=[replace(asked, queue="b")])
    )
    for each in offered:
        assert each.starts_in_s is not None
        assert starts[each.change] == NOW_S + each.starts_in_s
        assert as_it_is_s is None or each.starts_in_s < as_it_is_s - NOW_S
    good = [at_s for at_s in starts.values() if at_s is not None]
    if not offered and good:
        assert as_it_is_s is not None
        assert min(good) > as_it_is_s - 5 - 0.1 * (as_it_is_s - NOW_S)


def test_an_outlook_says_when_and_after_whom() -> None:
    snapshot = _snapshot(
        _running("ann", "n0", 40.0), _running("bob", "n0", 240.0), _run("eve", 2, submitted_at=NOW_S - 99), _run("dan")
    )
    assert estimates(snapshot, ExpectedRunTimes(NOW_S), ("eve",)) == {
        "eve": Estimate("eve", 240.0, 240.0, 240.0, "bob", ("n0",))
    }
    spans = {"ann": Span(10, 40, 400), "bob": Span(100, 240, 300), "dan": Span(30, 60, 90)}
    found = estimates(snapshot, ExpectedRunTimes(NOW_S, remaining=spans, lengths={"dan": spans["dan"]}))
    assert found["eve"] == Estimate("eve", 240.0, 100.0, 400.0, "bob", ("n0",))
    assert found["dan"].starts_in_s == 40.0, "it slips in before eve's gang"


def test_where_nobody_knows_an_end_there_is_no_date() -> None:
    snapshot = _snapshot(_running("ann", "n0", None, 2), _run("eve"))
    assert estimates(snapshot, ExpectedRunTimes(NOW_S)) == {"eve": Estimate("eve")}
    open_ended = ExpectedRunTimes(NOW_S, remaining={"ann": Span(5, 60, None)})
    assert estimates(snapshot, open_ended)["eve"] == Estimate("eve", 60.0, 5.0, None, "ann", ("n0",))
    assert play_ahead(snapshot, open_ended, Case.LATE) == {}
    ann, later = snapshot.runs[0], FrozenRunTimes(open_ended, Case.EXPECTED)
    assert later.remaining_s(ann, NOW_S - 50, NOW_S + 10) == 50.0


def test_what_would_start_sooner() -> None:
    def found(snapshot: ClusterSnapshot, ask: ResourceAsk, queue: str = "a") -> list[Alternative]:
        run = replace(to_run("eve", ask, queue=queue, user="eve", submitted_at=NOW_S), expected_s=60.0)
        families = other_asks(ask, run, gpu_types=("h100", "a100"), elsewhere=[replace(run, queue="b")])
        return sooner(snapshot, ExpectedRunTimes(NOW_S), run, families)

    a100 = Node("old", 1 * GPU, "a100", cpus=8)
    snapshot = _snapshot(_running("ann", "n0", 240.0, 3), gpus=(4,), queues=(Queue("a"), Queue("b")))
    snapshot = replace(snapshot, nodes=(*snapshot.nodes, a100))
    assert found(snapshot, ResourceAsk(gpus=4, gpu_type="h100")) == [Alternative("--gpus 1", 0.0)]
    assert found(snapshot, ResourceAsk(gpus=4, ranks=4, gpu_type="h100")) == [
        Alternative("--gpus 1 --ranks 1", 0.0),
        Alternative("--nodes any --min-gpus 1", 0.0),
    ]
    assert Alternative("--nodes any", 0.0) in found(snapshot, ResourceAsk(gpus=2, ranks=2)), "1 + 1 are free"
    full = replace(snapshot, runs=(_running("ann", "n0", 240.0, 4),))
    assert found(full, ResourceAsk(gpu_type="h100")) == [Alternative("--gpu-type a100", 0.0)]
    narrow = replace(full, queues=(Queue("a", max=0), Queue("b")))
    assert found(narrow, ResourceAsk()) == [Alternative("--queue b", 0.0)]
    assert found(_snapshot(), ResourceAsk()) == []


def test_whoever_asks_anew_is_behind_those_who_wait() -> None:
    ask = ResourceAsk(gpus=2)
    run = replace(to_run("eve", ask, queue="a", user="eve", submitted_at=NOW_S - 99), expected_s=60.0)
    snapshot = _snapshot(_running("ann", "n0", 240.0), run, _run("dan", expected_s=1000.0))
    assert sooner(snapshot, ExpectedRunTimes(NOW_S), run, other_asks(ask, run)) == []


def test_what_would_start_sooner_of_a_gang_that_may_begin_with_fewer() -> None:
    def found(ask: ResourceAsk, free: int) -> list[Alternative]:
        run = replace(to_run("eve", ask, queue="a", user="eve", submitted_at=NOW_S), restartable=True)
        snapshot = _snapshot(_running("ann", "n0", 240.0, 8 - free), gpus=(8,))
        return sooner(snapshot, ExpectedRunTimes(NOW_S), run, other_asks(ask, run))

    assert found(ResourceAsk(gpus=8, ranks=8, may_spread=True), 3) == [
        Alternative("--gpus 2 --ranks 2", 0.0),
        Alternative("--min-gpus 2", 0.0),
    ]
    elastic = ResourceAsk(gpus=8, ranks=4, any_nodes=True, min_gpus=4)
    assert found(elastic, 3) == [Alternative("--min-gpus 2", 0.0)]
    assert found(elastic, 4) == []
    smaller = ResourceAsk(gpus=8, ranks=8, any_nodes=True, min_gpus=2)
    assert [change.words for family in other_asks(smaller, to_run("eve", smaller)) for change in family] == [
        "--gpus 4 --ranks 4",
        "--gpus 2 --ranks 2",
        "--min-gpus 1",
    ]


_LINES = st.builds(
    lambda each, ranks, least, nodes: {
        "gpus": str(each * ranks),
        "ranks": str(ranks),
        **({"min-gpus": str(each * min(least, ranks))} if least and ranks > 1 else {}),
        **({"nodes": nodes} if (ranks > 1 if nodes == "any" else not least and ranks % int(nodes) == 0) else {}),
    },
    st.integers(1, 3),
    st.integers(1, 9),
    st.integers(0, 6),
    st.sampled_from(["any", "1", "2", "3"]),
)


@settings(max_examples=150, deadline=None)
@given(_LINES, st.integers(1, 12))
def test_what_is_offered_can_be_written(line: dict[str, str], size: int) -> None:
    """Behind what the user has written, and it is the ask that was looked at."""

    def read(words: str = "") -> ResourceAsk:
        parts = words.split()
        more = dict(zip([name.removeprefix("--") for name in parts[::2]], parts[1::2], strict=True))
        text = " ".join(f"--{name} {value}" for name, value in {**line, **more}.items())
        return build_options(split_line(text).written).ask

    ask = read()
    run = to_run("asked", ask)
    for change in [change for family in other_asks(ask, run) for change in family]:
        assert reshaped(run, read(change.words)) == change.run
    nodes = (Node("a", size * GPU, cpus=8), Node("b", GPU, cpus=8))
    try:
        possible_ask(ask, run, nodes)
    except ImpossibleAskError as error:
        nearest = error.hint.removeprefix("the nearest that fits: ")
        assert impossible(reshaped(run, read(nearest)), nodes) is None


def test_where_a_run_would_stand() -> None:
    snapshot = _snapshot(_running("ann", "n0", 240.0, 2), _run("dan"), _run("eve"))
    wait = standing(snapshot, ExpectedRunTimes(NOW_S), "eve")
    assert wait is not None
    assert explain(wait) == "2nd in a: needs 1 GPU, 0 of 2 are free"
    assert standing(_snapshot(_run("eve")), ExpectedRunTimes(NOW_S), "eve") is None


def test_how_long_a_run_goes_on_is_told_by_those_that_lasted_as_long() -> None:
    estimates = RunTimeHistory()
    campaign = estimates.submitted("ann", (1, ""), 0.0, "train")
    assert estimates.length(campaign, 0.0, 900.0) == Span(0.0, None, 900.0), "the first run: nobody knows"
    assert estimates.rest(campaign, 0.0, 100.0, 900.0) == Span(0.0, None, 800.0)
    for lasted_s in (100.0, 100.0, 200.0, 300.0, 400.0):
        estimates.started(campaign, 0.0)
        estimates.ended(campaign, 0.0, lasted_s)
    length = estimates.length(campaign, 0.0)
    assert (length.early_s, length.late_s) == (100.0, 400.0)
    assert length.expected_s is not None
    assert 150 < length.expected_s < 300
    estimates.started(campaign, 0.0)
    rest = estimates.rest(campaign, 0.0, 150.0)
    assert (rest.early_s, rest.late_s) == (50.0, 250.0)
    assert estimates.rest(campaign, 0.0, 150.0, limit_s=160.0) == Span(10.0, 10.0, 10.0)
    assert estimates.rest(campaign, 0.0, 500.0).late_s is None, "none lasted so long"
