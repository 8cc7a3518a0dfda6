"""``status``, ``runs`` and ``cancel``: ids whole whatever the width, what ``last`` means, what a cancelled run was."""

from __future__ import annotations

import io
import json
from typing import Any

import msgspec
import pytest
from rich.console import Console

from jupyter_gpu_release.cli import runs as cli_runs
from jupyter_gpu_release.cli.main import main
from jupyter_gpu_release.cli.tables import output_console, print_report, print_run, print_runs, print_status
from jupyter_gpu_release.client.rest import GatewayClient
from jupyter_gpu_release.errors import NoSuchRunError
from jupyter_gpu_release.protocol.lineage import (
    Environment,
    Lineage,
    Link,
    RunFacts,
    RunSummary,
    TrackedFile,
    UsedInput,
)
from jupyter_gpu_release.protocol.rest import (
    GatewayFacts,
    GpuCounts,
    GpuRow,
    NodeRow,
    ReportDocument,
    ReportRow,
    RunError,
    RunRow,
    RunsDocument,
    StatusDocument,
    Usage,
    UsageFacts,
)
from jupyter_gpu_release.protocol.states import new_run_id

_OVER, _RUNS, _WAITS = "20260101-000003-00000003", "20260101-000002-00000002", "20260101-000001-00000001"


def run_row(run: str, state: str = "running", **more: object) -> RunRow:
    facts = {
        "run": run,
        "user": "ann",
        "state": state,
        "gpus": 2,
        "name": "a rather long name of a run",
        "notebook": "work/notebooks/a long name.ipynb",
        "simulated": True,
        "submitted_at": 1.8e9,
        "granted_at": 1.8e9,
        "queued_s": 0.01,
        "held_s": 754.0,
        "release_ms": 12.0,
    }
    return RunRow(**{**facts, **more})  # type: ignore[arg-type]


def shown_at(width: int) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, width=width, force_terminal=True, color_system=None), text


@pytest.mark.parametrize("width", [200, 80, 40])
def test_run_ids_stand_on_one_line(width: int) -> None:
    ids = [new_run_id() for _ in range(3)]
    console, text = shown_at(width)
    print_runs(console, [run_row(run) for run in ids])
    assert all(sum(run in line for line in text.getvalue().splitlines()) == 1 for run in ids)


def test_eighty_columns_are_enough_for_a_line_a_run() -> None:
    run = new_run_id()
    console, text = shown_at(80)
    print_runs(console, [run_row(run, "succeeded", name="fit")])
    (line,) = [line for line in text.getvalue().splitlines() if run in line]
    assert all(word in line.split() for word in ("succeeded", "fit", "34"))
    assert len([line for line in text.getvalue().splitlines() if line.strip()]) == 3


def test_a_run_without_a_name_is_called_by_its_title_else_by_its_notebook() -> None:
    rows = [run_row(new_run_id(), name="", title=title) for title in ("model.fit(images, labels)", "")]
    console, text = shown_at(200)
    print_runs(console, rows)
    head, _rule, *lines = text.getvalue().splitlines()
    assert [line[head.index("name") :] for line in lines] == ["model.fit(images, labels)", "a long name.ipynb"]
    console, text = shown_at(80)
    print_runs(console, rows[:1])
    assert "model.fit(im" in text.getvalue(), "it is told by its beginning"


def test_our_marks_of_code_are_not_shown_and_a_users_own_text_is_left_as_it_is() -> None:
    notes = ["`device` is cuda in GPU cells and cpu in the notebook"]
    for code, said in (("run_failed", "net (--out) was not bound"), ("", "`net` (--out) was not bound")):
        error = RunError("RunFailedError", "`net` (--out) was not bound", code)
        console, text = shown_at(200)
        print_run(console, run_row(new_run_id(), "failed", notes=notes, error=error))
        assert f"RunFailedError: {said} " in text.getvalue()
        assert "device is cuda in GPU cells" in text.getvalue()


def test_a_report_has_a_line_for_each_user_and_type_and_their_sum() -> None:
    h100, day_s = "NVIDIA H100 NVL", 86400.0
    rows = [ReportRow("ann", h100, 12, 30.5 * 3600, 76.25), ReportRow("bob", "", 1, 1800.0, 0.25)]
    console, text = shown_at(200)
    print_report(console, ReportDocument(1, 0.0, day_s, rows, "EUR"))
    _span, head, _rule, *lines = [line.split() for line in text.getvalue().splitlines()]
    assert head == ["user", "GPUs", "runs", "GPU-hours", "price", "(EUR)"]
    assert lines == [
        ["ann", *h100.split(), "12", "30.50", "76.25"],
        ["bob", "simulated", "1", "0.50", "0.25"],
        ["all", "13", "31.00", "76.50"],
    ]
    console, text = shown_at(200)
    print_report(console, ReportDocument(1, 0.0, day_s, rows[:1]))
    _span, head, _rule, *lines = [line.split() for line in text.getvalue().splitlines()]
    assert (head[-1], lines) == ("GPU-hours", [["ann", *h100.split(), "12", "30.50"]])
    console, text = shown_at(200)
    print_report(console, ReportDocument(1, 0.0, day_s, []))
    assert text.getvalue().endswith("No run held a GPU in this time.\n")


@pytest.mark.parametrize(
    ("facts", "lines"),
    [
        ({}, {"GPUs": "2 simulated", "free after": "12 ms", "queued, held": "10 ms, 12 min 34 s"}),
        ({"hosts": ["a", "b"], "simulated": False, "gpu_name": "H100"}, {"GPUs": "2 H100 on a, b"}),
        ({"imported_from": "the other lab"}, {"kept": "imported", "imported": "exported by the other lab"}),
        ({"pinned": True}, {"kept": "pinned"}),
    ],
)
def test_a_run_is_told_by_the_facts_that_there_are(facts: dict[str, object], lines: dict[str, str]) -> None:
    text = io.StringIO()
    print_run(Console(file=text, width=200), run_row(_OVER, "succeeded", **facts))
    said = dict(line.split("  ", 1) for line in text.getvalue().splitlines())
    said = {name: fact.strip() for name, fact in said.items()}
    assert {name: said[name] for name in lines} == lines
    assert ("imported" in said, "before" in said) == ("imported" in lines, False)


def test_a_list_says_what_runs_wait_for() -> None:
    text = io.StringIO()
    print_runs(Console(file=text, width=200), [run_row(_WAITS, "persisting", waits_for="writing 1 GiB to /s")])
    assert text.getvalue().splitlines()[-1] == f"  · {_WAITS}: writing 1 GiB to /s"


@pytest.mark.parametrize("width", [200, 80, 40])
def test_so_they_do_in_the_status(width: int) -> None:
    running, waiting = new_run_id(), new_run_id()
    gpu = GpuRow(
        index="0",
        uuid="GPU-0",
        name="NVIDIA H100 80GB HBM3",
        memory_bytes=80 << 30,
        used_bytes=1 << 30,
        utilization=0.5,
        state="running",
        user="ann",
        run=running,
    )
    queued = RunRow(waiting, "ann", gpus=4, position=1, reason="4 GPUs are wanted and 2 are free, behind one run")
    document = StatusDocument(
        1,
        False,
        GatewayFacts("http://x", "0"),
        GpuCounts(4, 2, 2, 0),
        [NodeRow("n", "a-host-of-the-cluster", [gpu])],
        [queued],
        [RunRow(running, "ann", "running", notebook="work/a long name.ipynb", queued_s=0.1, held_s=3.0)],
    )
    console, text = shown_at(width)
    print_status(console, document)
    lines = text.getvalue().splitlines()
    assert sum(running in line for line in lines) == 2
    assert sum(waiting in line for line in lines) == 1


def test_the_status_has_the_accounts_gpu_hours() -> None:
    week = Usage(held_s=3600 * 12.4, used_s=3600 * 9.9, saved_s=3600 * 5, others_s=3600 * 2)
    document = StatusDocument(
        1,
        False,
        GatewayFacts("http://x", "0"),
        GpuCounts(4, 2, 2, 0),
        [],
        [],
        [],
        usage=UsageFacts(
            Usage(held_s=600, used_s=300), week, Usage(held_s=1e9), Usage(held_s=1e9), stored_bytes=11 << 30
        ),
    )
    console, text = shown_at(80)
    print_status(console, document)
    _head, *lines = text.getvalue().splitlines()
    assert lines == [
        "  · your GPU-hours today: 0.2 h held, 0.1 h used, 0 h saved",
        "  · your GPU-hours in 7 days: 12 h held, 9.9 h used, 5 h saved (others used 2 h)",
        "  · your runs take 11 GiB of the store",
    ]
    quiet = msgspec.structs.replace(document, usage=UsageFacts(Usage(), Usage(), week, week))
    console, text = shown_at(80)
    print_status(console, quiet)
    assert len(text.getvalue().splitlines()) == 1


def test_in_a_pipe_a_run_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    run = new_run_id()
    print_runs(output_console(), [run_row(run)])
    (line,) = [line for line in capsys.readouterr().out.splitlines() if run in line]
    assert "a rather long name of a run" in line
    assert len(line) < 200


class Recorded(GatewayClient):
    """A gateway that has these runs, the newest first."""

    def __init__(self, *rows: RunRow) -> None:
        super().__init__("http://127.0.0.1:9", "t")
        self.rows = list(rows)
        self.cancelled: list[str] = []
        self.preempted: list[str] = []

    def runs(self, limit: int = 100, *, mine: bool = False, brief: bool = False) -> RunsDocument:
        return RunsDocument(1, self.rows[:limit], 11 << 30)

    def run(self, run: str) -> RunRow:
        return next(row for row in self.rows if row.run == run)

    def lineage(self, run: str) -> Lineage:
        up, down = "20261120-000000-00000001", "20261122-000000-00000002"
        used = [UsedInput("features", "ndarray", 2048, up, "graph:" + "a" * 64)]
        facts = RunFacts("model.fit(features)", used=used, environment=Environment("3.11", packages={"numpy": "2.1"}))
        runs = [
            RunSummary(run, True, "succeeded"),
            RunSummary(up, True, "succeeded", "prepare"),
            RunSummary(down, False),
        ]
        links = [Link(run, "features", up), Link(down, "model", run), Link(up, "loop", run)]
        tracked = [TrackedFile("/data/a.csv", 3, "b" * 64)]
        return Lineage(run, facts, tracked, runs, links, reused=2, is_reusable=True)

    def preempt(self, run: str) -> RunRow:
        self.preempted.append(run)
        return run_row(run, "yielding")

    def cancel(self, run: str, *, kill: bool = False) -> RunRow:
        self.cancelled.append(run)
        return self.run(run)


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    over, runs, waits = (
        run_row(_OVER, "succeeded"),
        run_row(_RUNS),
        msgspec.structs.replace(run_row(_WAITS, "queued"), granted_at=None),
    )
    recorded = Recorded(over, runs, waits)
    monkeypatch.setattr(cli_runs, "_gateway", lambda: recorded)
    return recorded


def test_what_results_take_of_the_store_stands_below_the_runs(
    gateway: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["runs"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "  · your runs take 11 GiB of the store"


def test_last_is_the_newest_run(gateway: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "show", "last"]) == 0
    assert _OVER in capsys.readouterr().out


def test_a_run_is_shown_with_what_it_was_made_from(gateway: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "show", _OVER]) == 0
    shown = capsys.readouterr().out
    for text in (
        "model.fit(features)",
        "from run 20261120-000000-00000001",
        "/data/a.csv",
        "numpy 2.1",
        "not known here",
    ):
        assert text in shown
    assert shown.index("made from\n") < shown.index("prepare") < shown.index("made from it")
    assert "used again 2 times" in shown
    assert len(shown.splitlines()) < 60  # links in a circle end


def test_lineage_as_open_lineage_events(gateway: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs", "show", _OVER, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema_version"] == 1
    assert document["runs"][0]["run"] == _OVER
    event = document["events"][0]
    assert event["eventType"] == "COMPLETE"
    assert event["run"]["runId"] == _OVER
    assert event["job"]["facets"]["sourceCode"]["sourceCode"] == "model.fit(features)"
    made, used = event["outputs"], event["inputs"]
    assert [each["name"] for each in used] == ["20261120-000000-00000001/features", "/data/a.csv"]
    other = next(each for each in document["events"] if each["run"]["runId"] == "20261120-000000-00000001")
    assert used[0]["name"] in [each["name"] for each in other["outputs"]]  # the edge: one dataset, two events
    assert {"eventTime", "producer", "schemaURL"} <= event.keys()
    assert made is not None


def test_the_last_to_cancel_is_one_that_is_not_over(gateway: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cancel", "last"]) == 0
    assert gateway.cancelled == [_RUNS]
    assert f"{_RUNS} is being ended: its cell is interrupted" in capsys.readouterr().out


def test_a_run_is_asked_to_step_aside(gateway: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preempt", "last"]) == 0
    assert gateway.preempted == [_RUNS]
    assert f"{_RUNS} is being preempted" in capsys.readouterr().out


def test_a_waiting_run_is_taken_out_of_the_queue(gateway: Recorded, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cancel", _WAITS]) == 0
    assert gateway.cancelled == [_WAITS]
    assert f"{_WAITS} is taken out of the queue" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("rows", "words"), [([], "there is no run yet"), ([run_row(_OVER, "failed")], "no run is under way")]
)
def test_there_may_be_no_last(
    rows: list[Any], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli_runs, "_gateway", lambda: Recorded(*rows))
    assert main(["cancel", "last"]) == 1
    assert words in capsys.readouterr().err


def test_without_a_run_there_is_no_newest() -> None:
    with Recorded() as empty, pytest.raises(NoSuchRunError):
        empty.newest()
