"""Long tables: lined up, folded in the last column only, and nobody's label moves the cursor."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from jupyter_gpu_release.checks.finding import broken, note, ok
from jupyter_gpu_release.cli.admin.gc import print_collection
from jupyter_gpu_release.cli.tables import (
    print_findings,
    print_nodes,
    print_queues,
    print_run,
    print_runs,
    print_status,
    print_tokens,
    write_columns,
)
from jupyter_gpu_release.protocol.admin import GcDocument, RemovalRow, TokenRow
from jupyter_gpu_release.protocol.node import PreparedInfo
from jupyter_gpu_release.protocol.rest import (
    GatewayFacts,
    GpuCounts,
    GpuPart,
    GpuRow,
    NodeRow,
    QueuesDocument,
    QueueShare,
    QueueUser,
    RunError,
    RunRow,
    StatusDocument,
    Usage,
    UsageFacts,
)
from jupyter_gpu_release.protocol.runs import FileInfo, ValueInfo

_HOST = "gpu-node-0017.rack-12.cluster.example.org"
_RUN = "20261121-034512-9f3a12bc"
_USER = "katherine.johnson@mathematics.example.org"


def drawn(rows: list[list[str]], width: int = 60, color: str | None = None, last: str = "notebook") -> list[str]:
    text = io.StringIO()
    console = Console(file=text, width=width, force_terminal=color is not None, color_system=color)
    write_columns(console, ["run", "state", last], rows, {"failed": "red"})
    return text.getvalue().splitlines()


def test_columns_stand_below_their_heads() -> None:
    lines = drawn([["a", "succeeded", "x"], ["bcd", "failed", "y"]])
    assert [line.index(word) for line, word in zip(lines[0::2], ("notebook", "x"), strict=False)] == [16, 16]
    assert lines[3] == "bcd  failed     y"


def test_only_a_sentence_in_the_last_column_is_folded() -> None:
    words = ["id", "failed", "one two three four five six seven eight nine ten"]
    lines = drawn([words], width=55, last="why")
    assert lines[2].startswith("id   failed  one two")
    assert lines[3:] == [" " * 13 + "nine ten"]
    assert drawn([words], width=40, last="why")[2:] == [
        "id   failed",
        "    one two three four five six seven",
        "    eight nine ten",
    ]


def test_wide_letters_and_control_characters() -> None:
    lines = drawn([["日本", "failed", "a\x1b[2Jb\nc"], ["x", "failed", "y"]])
    assert lines[2] == "日本  failed  a [2Jb c"
    assert lines[3] == "x     failed  y"


def test_states_are_coloured_on_a_terminal_only() -> None:
    assert "\x1b[31mfailed\x1b[0m" in drawn([["a", "failed", "b"]], color="standard")[2]
    assert "\x1b" not in "".join(drawn([["a", "failed", "b"]]))


def _nodes(console: Console) -> None:
    aside = "ECC errors that cannot be corrected: reset it, then `jupyter gpu nodes undrain`"
    gpus = [GpuRow(str(n), f"GPU-{n}", "NVIDIA H100", 80 << 30, 0, 0.0, "drained", drained=aside) for n in range(16)]
    note = "its driver has another version than the one that its libraries were built for"
    print_nodes(console, [NodeRow("0123456789abcdef", _HOST, gpus, notes=[note])])


def _removals(console: Console) -> None:
    why = "the results of this user take more than the quota, and nobody has used these for longer than others"
    rows = [RemovalRow(_RUN, _USER, why, 1234 << 30)]
    print_collection(console, GcDocument(1, False, True, rows, 1 << 40, 12_345, ["folder"], {"pinned": 3}, [why]))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (_nodes, ("01234567", "ECC errors", "driver has another version")),
        (_removals, (_RUN, "more than the quota", "unused blobs")),
    ],
)
def test_the_longest_names_fit_80_columns(table: Callable[[Console], None], words: tuple[str, ...]) -> None:
    text = io.StringIO()
    table(Console(file=text, width=80))
    lines = text.getvalue().splitlines()
    assert [line for line in lines if len(line) > 80] == []
    said = " ".join(" ".join(lines).split())
    assert [word for word in words if word not in said] == []


def _said(show: Callable[..., None], *arguments: Any, width: int = 200) -> list[str]:
    text = io.StringIO()
    show(Console(file=text, width=width), *arguments)
    return [line.rstrip() for line in text.getvalue().splitlines()]


_GATEWAY = GatewayFacts("https://gpu-01:9472", "0")


def test_status_says_what_else_is_worth_knowing_below_its_tables() -> None:
    prepared, built = [PreparedInfo(["torch", "numpy"], 2 << 30)], [300 << 20, 212 << 20]
    node = NodeRow("n", "gpu-01", [], notes=["its driver is old"], prepared=prepared, environment_bytes=built)
    waits = RunRow("r2", "bob", "queued", gpus=1)
    persists = RunRow("r1", "ann", "persisting", gpus=1, waits_for="10 GiB to be written")
    runs = RunRow("r3", "ann", "running", gpus=1, since_s=180.0)
    usage = UsageFacts(Usage(3600.0, 1800.0), Usage(7200.0, 3600.0), Usage(), Usage(), stored_bytes=3 << 30)
    status = StatusDocument(
        1,
        False,
        _GATEWAY,
        GpuCounts(8, 3, 2, 2, 1),
        [node],
        [waits],
        [persists, runs],
        "ann",
        usage=usage,
        queue_total=5,
        queue_notes=["queues.yaml, line 3: no name"],
    )
    first, *lines = _said(print_status, status)
    assert first == "https://gpu-01:9472 · 8 GPUs: 3 held (1 of them kept warm), 2 free, 2 used by others"
    assert [line for line in lines if line.startswith("  · ")] == [
        "  · r1: 10 GiB to be written",
        "  · you hold 1 GPU for 3 min",
        "  · 4 more wait behind: their owners see them here",
        "  · gpu-01: its driver is old",
        "  · gpu-01: prepared for cells: torch, numpy (2 GiB of memory)",
        "  · gpu-01: fork servers of 2 environments (512 MiB of memory)",
        "  · queues: queues.yaml, line 3: no name",
        "  · your GPU-hours today: 1 h held, 0.5 h used, 0 h saved",
        "  · your GPU-hours in 7 days: 2 h held, 1 h used, 0 h saved",
        "  · your runs take 3 GiB of the store",
    ]


def test_status_shows_of_which_gpu_a_mig_instance_is_and_who_has_parts_of_one() -> None:
    parts = [GpuPart("r1", "ann", 0.5), GpuPart("r2", "bob", 0.25)]
    whole = GpuRow("0", "GPU-0", "H100", 80 << 30, 0, 0.0, "running", run="r1", user="ann", parts=parts)
    instance = GpuRow("MIG-5a1b", "MIG-5a1b", "H100 MIG 1g.10gb", 10 << 30, 0, None, "free", slice_of="5")
    nodes = [NodeRow("n", "gpu-01", [whole, instance])]
    lines = _said(print_status, StatusDocument(1, False, _GATEWAY, GpuCounts(2, 0.75, 1.25, 0), nodes, [], [], "ann"))
    assert lines[0].endswith("2 GPUs: 0.75 held, 1.25 free")
    (shared,) = [line for line in lines if "r1" in line]
    assert "you 0.5, bob 0.25" in shared
    assert "r1, r2" in shared
    (part,) = [line for line in lines if "MIG-5a1b" in line]
    assert "H100 MIG 1g.10gb of GPU 5" in part


def test_status_of_a_cluster_where_nothing_goes_on_is_one_line() -> None:
    usage = UsageFacts(Usage(), Usage(), Usage(), Usage())
    status = StatusDocument(1, True, _GATEWAY, GpuCounts(2, 0, 2, 0), [NodeRow("n", "h", [])], [], [], usage=usage)
    assert _said(print_status, status) == ["https://gpu-01:9472 · 2 simulated GPUs: 0 held, 2 free"]


def test_a_list_of_runs_has_its_year_where_there_is_room_and_what_they_wait_for_below() -> None:
    run = RunRow("r1", "ann", "persisting", submitted_at=1.8e9, queued_s=2.0, held_s=90.0, waits_for="1 GiB to write")
    past = RunRow("r0", "ann", "succeeded", submitted_at=1.8e9, release_ms=31.0, pinned=True, imported_from="eve")
    head, _rule, row, old, *below = _said(print_runs, [run, past], 2 << 30)
    assert head.split() == ["run", "submitted", "user", "state", "kept", "GPUs", "queued", "held", "released"]
    assert row.split()[:2] == ["r1", "2027-01-15"]
    assert row.endswith("1     2 s     1 min 30 s")
    assert "pinned, imported" in old
    assert "31 ms" in old
    assert below == ["  · r1: 1 GiB to write", "  · your runs take 2 GiB of the store"]
    narrow = _said(print_runs, [run], width=100)
    assert narrow[2].split()[:2] == ["r1", "01-15"]
    assert len(narrow) == 4, "nothing is said of the store where nothing is known"
    assert _said(print_runs, []) == ["There are no runs yet."]


def test_one_run_shows_where_it_ran_and_what_it_made() -> None:
    run = RunRow(
        "r1",
        "ann",
        "failed",
        gpus=2,
        gpu_name="NVIDIA L4",
        gpu_ids=["0", "3"],
        hosts=["gpu-01", "gpu-02"],
        reason="no",
        collected_at=1.8e9,
        collected_because="older than 30 days",
        imported_from="eve",
        price="1.20 EUR",
        earlier=["preempted", "its node died"],
        release_ms=1500.0,
        queued_s=2.0,
        held_s=3.0,
        results=[ValueInfo("w", "Tensor", 2048), ValueInfo("n", "int", 8)],
        files=[FileInfo("a.csv", 1024)],
        error=RunError("ValueError", "too hot"),
        notes=["see `advise`"],
    )
    said = "\n".join(_said(print_run, run))
    for name, fact in {
        "GPUs": "2 NVIDIA L4 (0, 3) on gpu-01, gpu-02",
        "kept": "collected, imported",
        "imported": "exported by eve",
        "queued, held": "2 s, 3 s",
        "price": "1.20 EUR",
        "free after": "1.5 s",
        "before": "preempted",
        "results": r"w (Tensor, 2 KiB), n (int, 8 B)",
        "files": "a.csv (1 KiB)",
        "error": "ValueError: too hot",
        "notes": "see advise",
    }.items():
        assert re.search(rf"^{name} +{re.escape(fact)}$", said, re.MULTILINE), (name, said)
    assert re.search(r"^collected +2027-01-1\d \d\d:\d\d:\d\d: older than 30 days$", said, re.MULTILINE), said
    assert "its node died" in said
    bare = "\n".join(_said(print_run, RunRow("r1", "ann", "queued", simulated=True)))
    assert [name for name in ("kept", "collected", "imported", "free after", "error", "results") if name in bare] == []
    assert re.search(r"^GPUs +1 simulated$", bare, re.MULTILINE)


def test_tokens_show_when_they_end_and_whose_they_are() -> None:
    own = TokenRow("t1", "ann", "admin", "start", "active", 1.8e9, None, 1.8e9 + 86_400, own=True)
    other = TokenRow("t2", "bob", "user", "laptop", "expired", 1.8e9, 1.8e9 + 10 * 86_400)
    head, _rule, first, second = _said(print_tokens, [own, other])
    assert head.split() == ["id", "user", "role", "state", "created", "expires", "last", "used", "label"]
    assert first.split()[:5] == ["t1", "ann", "admin", "active", "2027-01-15"]
    assert re.search(r" never +2027-01-16 \d\d:\d\d  the cluster's own$", first), first
    assert re.search(r" 2027-01-25 \d\d:\d\d +laptop$", second), second
    assert _said(print_tokens, []) == []


def test_nodes_count_what_is_held_and_say_why_they_take_nothing() -> None:
    def gpu(state: str, drained: str = "") -> GpuRow:
        return GpuRow("0", "GPU-0", "NVIDIA L4", 1, 0, 0.0, state, drained=drained)

    busy = NodeRow("a" * 12, "one", [gpu("running"), gpu("warm"), gpu("free"), gpu("unattributed")], notes=["slow"])
    aside = NodeRow("b" * 12, "two", [gpu("drained", "hot"), gpu("drained", "hot")], up=False, notes=["gone"])
    mended = NodeRow("c" * 12, "three", [], drained="for a new driver", notes=["slow"])
    rows = [re.split("  +", line) for line in _said(print_nodes, [busy, aside, mended])[2:]]
    assert rows == [
        ["one", "aaaaaaaa", "up", "4", "2", "slow"],
        ["two", "bbbbbbbb", "down", "2", "0", "hot; gone"],
        ["three", "cccccccc", "drained", "0", "0", "for a new driver"],
    ]


def test_queues_say_where_ones_runs_may_go() -> None:
    def queue(name: str, usable: bool, **more: Any) -> QueueShare:
        return QueueShare(name, "", 0, True, usable, None, None, 1.0, 0, 1.5, 2.0, 1, 3.0, **more)

    users = [QueueUser("ann", 1.5, 0, 0.0), QueueUser("bob", 0.0, 1, 3.0)]
    both = [queue("a", True, users=users), queue("b", False)]
    said = _said(print_queues, QueuesDocument(1, 4, "a", both, ["line 3"]))
    assert re.split("  +", said[2]) == ["a", "all", "1.5", "2", "1 run (3)", "ann 1.5; waiting: bob 3"]
    assert said[-2:] == ["  · line 3", "You may use a; without --queue: a."]
    assert _said(print_queues, QueuesDocument(1, 4, "", both))[-1] == "You may use a."


def test_findings_have_their_mark_and_their_cure() -> None:
    found = [ok("store", "is there"), note("slurm", "is old", "update it"), broken("gateway", "is gone", "start it")]
    said = _said(print_findings, found)
    assert [line[0] for line in said if line[0] != " "] == ["✓", "·", "✗"]
    assert [line.strip() for line in said if line[0] == " "] == ["→ update it", "→ start it"]


def test_the_longest_check_stands_apart_from_its_finding() -> None:
    assert _said(print_findings, [ok("environments", "node: is there")]) == ["✓ environments node: is there"]
