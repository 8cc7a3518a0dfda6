"""Rights of users in queues, and the picture that everybody sees of the queues."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from doc_blocks import block

from jupyter_gpu_release.errors import ConflictError, GpuReleaseError, ImpossibleAskError, OptionError
from jupyter_gpu_release.protocol.runs import ResourceAsk, RunRequest
from jupyter_gpu_release.scheduling.queues.admission import Admission, admit, check_count, check_moved
from jupyter_gpu_release.scheduling.queues.overview import Claimed, overview, remarks
from jupyter_gpu_release.scheduling.queues.queues_file import QueuesFile, parse_queues
from jupyter_gpu_release.scheduling.workload import GPU

FILE = parse_queues(
    """\
schema_version: 1
queues:
  - {name: research, guaranteed: 6, max: 12, max_timeout: 2h}
  - {name: vision, parent: research, guaranteed: 4, max: 8, users: [ann, "@team"], max_timeout: 90m, max_keep: 2m}
  - {name: text, parent: research, guaranteed: 2, priority_ceiling: normal, max_gpus_per_user: 2}
  - {name: rest, guaranteed: 2, max: 2}
groups: {team: [bob]}
default_queue: {ann: vision, "*": text}
""",
    "queues.yaml",
)


def _asked(gpus: int = 1, **facts: Any) -> RunRequest:
    return RunRequest("run", "session", ResourceAsk(gpus=gpus), b"", **facts)


def test_a_run_gets_its_users_queue_and_that_queues_limits() -> None:
    assert admit(FILE, "ann", _asked(priority="high")) == Admission("vision", 75, 5400.0, 0.0)
    assert admit(FILE, "eve", _asked(priority="7", timeout_s=9.0)) == Admission("text", 7, 9.0, 0.0)
    assert admit(FILE, "bob", _asked(queue="vision", keep_s=300.0, keep_auto=True)).keep_s == 120.0
    assert admit(QueuesFile(), "ann", _asked(timeout_s=5.0, keep_s=9.0)) == Admission("default", 50, 5.0, 9.0)


@pytest.mark.parametrize(
    ("user", "request_", "message", "hint"),
    [
        ("eve", _asked(queue="vision"), "--queue vision: you may not use it", "you may use: text, rest"),
        ("ann", _asked(queue="visoin"), "--queue visoin: there is no such queue", "you may use: vision, text, rest"),
        (
            "ann",
            _asked(queue="research"),
            "runs go to the queues below it (vision, text)",
            "you may use: vision, text, rest",
        ),
        ("eve", _asked(priority="high"), "queue text allows at most 50", "low, normal, or a number up to 50"),
        ("eve", _asked(priority="hihg"), "--priority hihg: not a priority", "low, normal, high"),
        ("ann", _asked(timeout_s=5401.0), "queue vision allows at most 1 h 30 min", "write --timeout 1h30m"),
        ("ann", _asked(timeout_s=0.0), "--timeout 0: a run needs time", "leave --timeout out"),
        ("ann", _asked(rank_timeout_s=0.0), "--rank-timeout 0: ", "leave --rank-timeout out"),
        ("ann", _asked(keep_s=121.0), "--keep 2 min 1 s: queue vision allows at most 2 min", "write --keep 2m"),
    ],
)
def test_what_is_refused_says_what_this_user_may_have(user: str, request_: RunRequest, message: str, hint: str) -> None:
    with pytest.raises(OptionError) as refused:
        admit(FILE, user, request_)
    assert message in refused.value.message
    assert hint in refused.value.hint


@pytest.mark.parametrize(
    ("user", "gpus", "message", "hint"),
    [
        ("ann", 9, "asks for 9 GPUs, and queue vision has at most 8 GPUs", "ask for --gpus 8"),
        ("eve", 3, "one user has at most 2 GPUs in queue text", "ask for --gpus 2"),
        ("bob", 4, "one user has at most 2 GPUs in queue text", "ask for --gpus 2, or --queue vision"),
    ],
)
def test_a_run_that_its_queue_could_never_take_is_refused_with_the_nearest_that_fits(
    user: str, gpus: int, message: str, hint: str
) -> None:
    with pytest.raises(ImpossibleAskError) as refused:
        admit(FILE, user, _asked(gpus))
    assert (message in refused.value.message, refused.value.hint) == (True, hint)


def test_more_than_a_user_may_have_in_a_queue_above_is_refused() -> None:
    file = parse_queues(
        "schema_version: 1\nqueues: [{name: all, max_gpus_per_user: 2}, {name: a, parent: all}]", "queues.yaml"
    )
    with pytest.raises(ImpossibleAskError, match="one user has at most 2 GPUs in queue all"):
        admit(file, "ann", _asked(3))


def test_as_many_runs_as_a_user_may_have_are_the_last_in_queues_below_too() -> None:
    file = parse_queues(
        "schema_version: 1\nqueues: [{name: all, max_runs_per_user: 2}, {name: a, parent: all}, {name: b}]", "q"
    )
    check_count(file, "a", ["a", "b", "b"])
    check_count(file, "b", ["a", "a", "b", "gone"])
    with pytest.raises(ConflictError, match="you have 2 runs in queue all") as refused:
        check_count(file, "a", ["a", "a"])
    assert refused.value.hint == "wait until one is over, or cancel one"


def test_runs_of_assistants_go_to_their_queue_alone() -> None:
    text = block("operate/assistants.md", "# How to let assistants in", "schema_version").text
    file = parse_queues(text, "queues.yaml")
    assert [file.queue_of_assistants(asked) for asked in ("", "assistants")] == ["assistants"] * 2
    with pytest.raises(OptionError, match="runs of assistants go to queue assistants"):
        file.queue_of_assistants("team")
    admitted = admit(file, "ann", _asked(1, queue="assistants", priority="low"))
    assert (admitted.queue, admitted.timeout_s) == ("assistants", 1800.0)
    assert QueuesFile().queue_of_assistants("vision") == "vision"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("assistant_queue: helpers", "line 4: assistant_queue: there is no queue helpers that takes runs"),
        ("assistant_queue: all", "line 4: assistant_queue: there is no queue all that takes runs"),
    ],
)
def test_a_queue_of_assistants_takes_runs(line: str, message: str) -> None:
    text = f"schema_version: 1\nqueues:\n  [{{name: all}}, {{name: a, parent: all}}]\n{line}\n"
    with pytest.raises(OptionError, match=message):
        parse_queues(text, "q")


def test_where_runs_cannot_be_taken_back_the_guarantee_is_the_most() -> None:
    strict = parse_queues(
        "schema_version: 1\nqueues: [{name: a, guaranteed: 2}, {name: b}]\ndefault_queue: {'*': a}\n"
        "policy: {non_restartable_over_guarantee: false}",
        "f",
    )
    with pytest.raises(GpuReleaseError, match="queue a is guaranteed 2 GPUs, more than which no run gets"):
        admit(strict, "ann", _asked(3))
    admit(strict, "ann", msgspec.structs.replace(_asked(3), restartable=True))
    few = ResourceAsk(gpus=4, ranks=4, any_nodes=True, min_gpus=2)
    admit(strict, "ann", msgspec.structs.replace(_asked(4), ask=few))
    with pytest.raises(ImpossibleAskError, match="asks for 3 GPUs") as refused:
        admit(strict, "ann", msgspec.structs.replace(_asked(4), ask=msgspec.structs.replace(few, min_gpus=3)))
    assert refused.value.hint == "ask for --gpus 2, or give the cell --restartable"


def test_the_overview_counts_whoever_is_in_a_queue_in_those_above_it_too() -> None:
    claims = [
        Claimed("vision", "ann", 3 * GPU),
        Claimed("vision", "bob", 2 * GPU, waiting_runs=1),
        Claimed("text", "eve", GPU),
        Claimed("gone", "eve", GPU),
    ]
    found = {one.queue.name: one for one in overview(FILE, claims, 8 * GPU)}
    assert list(found) == ["research", "vision", "text", "rest"]
    assert [(one.depth, one.all.used // GPU, one.all.waiting // GPU, one.all.runs) for one in found.values()] == [
        (0, 5, 2, 1),
        (1, 3, 2, 1),
        (1, 2, 0, 0),
        (0, 0, 0, 0),
    ]
    assert {user: tally.used // GPU for user, tally in found["vision"].users.items()} == {"ann": 3, "bob": 0}
    assert {name: one.fair_share // GPU for name, one in found.items()} == {
        "research": 6,
        "vision": 4,
        "text": 2,
        "rest": 2,
    }


def test_guarantees_and_maxima_by_type_of_gpu() -> None:
    text = "schema_version: 1\nqueues: [{name: a, guaranteed: {h100: 4}, max: {h100: 6}}]"
    file = parse_queues(text, "f")
    assert remarks(file, 9 * GPU, {"NVIDIA H100": 3 * GPU, "T4": 6 * GPU})[0] == (
        "the guarantees are 4 × h100 in all, and the cluster has 3"
    )
    many = msgspec.structs.replace(_asked(7), ask=ResourceAsk(gpus=7, gpu_type="H100"))
    with pytest.raises(GpuReleaseError, match="asks for 7 GPUs, and queue a has at most 6 × h100"):
        admit(file, "ann", many)
    admit(file, "ann", _asked(7))
    strict = parse_queues(f"{text}\npolicy: {{non_restartable_over_guarantee: false}}", "f")
    with pytest.raises(GpuReleaseError, match="queue a is guaranteed 4 × h100"):
        admit(strict, "ann", msgspec.structs.replace(many, ask=ResourceAsk(gpus=5, gpu_type="H100")))


def test_it_says_what_is_odd_about_the_file() -> None:
    said = remarks(FILE, 7 * GPU)
    assert said == ["the guarantees are 8 GPUs in all, and the cluster has 7 GPUs"]
    assert remarks(QueuesFile(), 0) == []
    small = parse_queues(
        "schema_version: 1\nqueues: [{name: c}, {name: a, guaranteed: 2}, {name: b, parent: a, guaranteed: 3}]\n"
        "policy: {actions: [allocate]}",
        "f",
    )
    assert remarks(small, 8 * GPU) == ["queue a is guaranteed 2 GPUs, and the queues in it 3 GPUs"]


@pytest.mark.parametrize("asked", [None, True, False])
@pytest.mark.parametrize("given", ["asked", "default"])
def test_a_queue_may_make_all_cells_restartable_that_can_be(given: str, asked: bool | None) -> None:
    file = parse_queues(f"schema_version: 1\nqueues: [{{name: a, restartable: {given}}}]", "f")
    assert admit(file, "ann", _asked(restartable=asked)).restartable is (given == "default" if asked is None else asked)
    serving = msgspec.structs.replace(_asked(2, restartable=asked), ask=ResourceAsk(gpus=2, ranks=2, ps=1))
    assert admit(file, "ann", serving).restartable is bool(asked)


def test_another_word_than_asked_or_default_is_refused_with_its_line() -> None:
    with pytest.raises(OptionError, match=r"line 2: queues\[0\].restartable"):
        parse_queues("schema_version: 1\nqueues: [{name: a, restartable: always}]", "f")


def test_a_run_that_is_moved_keeps_its_limits_of_time_and_must_fit_otherwise() -> None:
    long = _asked(2, timeout_s=9e6, keep_s=9e6, priority="high")
    check_moved(FILE, "ann", long, "vision")
    check_moved(FILE, "eve", long, "text")
    with pytest.raises(OptionError, match="you may not use it"):
        check_moved(FILE, "eve", long, "vision")
    with pytest.raises(ImpossibleAskError, match="at most 2 GPUs"):
        check_moved(FILE, "eve", _asked(3), "text")


def test_limits_of_queues_above_hold_below() -> None:
    assert admit(FILE, "eve", _asked()).timeout_s == 7200.0
    with pytest.raises(OptionError, match="queue text allows at most 2 h"):
        admit(FILE, "eve", _asked(timeout_s=7201.0))
    assert admit(FILE, "ann", _asked(keep_s=120.0)).keep_s == 120.0
