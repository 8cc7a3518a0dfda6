from __future__ import annotations

import msgspec
import pytest

from jupyter_gpu_release.kernel.magics.tables import Table, queue_tables, runs_table, status_tables
from jupyter_gpu_release.protocol.rest import RunRow, RunsDocument, StatusDocument

STATUS = {
    "schema_version": 1,
    "simulated": True,
    "gateway": {"url": "http://127.0.0.1:1", "version": "0", "up": True},
    "gpus": {"total": 4, "held": 1, "free": 3, "external": 0},
    "nodes": [
        {
            "id": "n",
            "host": "box",
            "gpus": [
                {
                    "index": "0",
                    "uuid": "u",
                    "name": "sim",
                    "memory_bytes": 8 << 30,
                    "used_bytes": 1 << 30,
                    "utilization": 0.4,
                    "state": "running",
                    "user": "ann",
                    "run": "r1",
                }
            ],
        }
    ],
    "queue": [
        {
            "run": "r2",
            "user": "bob",
            "queue": "default",
            "priority": "normal",
            "gpus": 2,
            "position": 1,
            "reason": "1 of 2 free",
            "start_estimate_s": None,
        }
    ],
    "runs": [
        {
            "run": "r1",
            "user": "ann",
            "state": "running",
            "gpus": 1,
            "notebook": "/a/b.ipynb",
            "queued_s": 0,
            "held_s": 3,
        },
        {"run": "r2", "user": "bob", "state": "queued", "gpus": 2, "notebook": "", "queued_s": 4, "held_s": 0},
    ],
}


def test_status_tells_who_holds_and_who_waits():
    head, gpus, running, waiting = status_tables(msgspec.convert(STATUS, StatusDocument))
    assert repr(head) == "http://127.0.0.1:1 · 4 simulated GPUs: 1 held, 3 free"
    assert gpus.rows == [("box", "0", "sim", "1 of 8 GiB", "40 %", "running", "r1", "ann")]
    assert running.rows == [("r1", "ann", "running", "1", "0 ms", "3 s", "b.ipynb")]
    assert waiting.rows == [("1", "r2", "bob", "default", "normal", "2", "1 of 2 free")]
    assert waiting.title == "Queued; ann holds 1 GPU for 3 s"


@pytest.mark.parametrize(
    ("facts", "called"),
    [({}, "b.ipynb"), ({"title": "net.fit(x)"}, "net.fit(x)"), ({"title": "net.fit(x)", "name": "late"}, "late")],
)
def test_all_lists_call_a_run_the_same(facts: dict[str, str], called: str):
    active = {**STATUS["runs"][0], **facts}
    (_, _, running, *_) = status_tables(msgspec.convert({**STATUS, "runs": [active]}, StatusDocument))
    (listed,) = runs_table(RunsDocument(1, [row(run="r1", notebook="/a/b.ipynb", state="running", **facts)])).rows
    assert (running.heads[-1], running.rows[0][-1]) == ("name", called)
    assert listed[-2] == called


def test_the_queue_says_when_and_what_would_be_sooner():
    row = {
        **STATUS["queue"][0],
        "start_estimate_s": 240.0,
        "start_at_least_s": 60.0,
        "start_at_most_s": 250.0,
        "start_after": "ann",
    }
    document = msgspec.convert({**STATUS, "user": "bob", "queue": [row]}, StatusDocument)
    waiting, sooner = queue_tables(document, {"r2": "--gpus 1 (now)"})
    assert waiting.rows[0][-1] == "1 of 2 free; starts in about 4 min (1 to 4 min), when ann's run has ended"
    assert repr(sooner) == "r2 would start sooner with --gpus 1 (now)"
    quiet = msgspec.convert({**STATUS, "queue": []}, StatusDocument)
    assert [repr(table) for table in queue_tables(quiet, {})] == ["Nobody waits"]


def test_all_that_is_held_up_is_said():
    held_up = [{**run, "waits_for": f"room for {run['run']}"} for run in STATUS["runs"]]
    *_, first, second = status_tables(msgspec.convert({**STATUS, "runs": held_up}, StatusDocument))
    assert ("room for r1" in first.title, "room for r2" in second.title) == (True, True)


def test_quiet_cluster_is_one_line():
    idle = {**STATUS, "nodes": [], "queue": [], "runs": []}
    assert len(status_tables(msgspec.convert(idle, StatusDocument))) == 1


def row(**facts: object) -> RunRow:
    empty: dict[str, object] = {}
    for field in msgspec.structs.fields(RunRow):
        if field.required:
            empty[field.name] = {str: "", int: 0, float: 0.0, bool: False}.get(field.type)
    lists = {"hosts": [], "gpu_ids": [], "results": [], "files": []}
    return msgspec.convert({**empty, **lists, **facts}, RunRow)


def test_runs():
    failed = row(
        run="r3",
        state="failed",
        gpus=1,
        granted_at=1.0,
        queued_s=0.1,
        held_s=2.0,
        notebook="/x/y.ipynb",
        results=[{"name": "a", "type": "int"}, {"name": "b", "type": "int"}],
        error={"ename": "ValueError", "evalue": "no"},
    )
    document = RunsDocument(1, [failed, row(run="r2", state="cancelled", name="mine")])
    table = runs_table(document)
    assert table.title == "2 runs"
    assert table.rows[0] == ("r3", "failed", "1", "", "100 ms", "2 s", "a, b", "y.ipynb", "ValueError: no")
    assert table.rows[1][5:8] == ("", "", "mine")
    titled = row(run="r1", state="running", title="fit(model)", notebook="/x/y.ipynb")
    assert runs_table(RunsDocument(1, [titled])).rows[0][7] == "fit(model)"
    newest = runs_table(document, most=1)
    assert (newest.title, [line[0] for line in newest.rows]) == ("the newest 1 runs", ["r3"])
    trials = [row(run=f"t{number}", sweep="s1", state="running") for number in range(3)]
    assert [line[0] for line in runs_table(RunsDocument(1, [*trials, titled])).rows] == ["s1", "r1"]
    document = msgspec.structs.replace(document, stored_bytes=11 << 30)
    assert runs_table(document).title == "2 runs; your runs take 11 GiB of the store"


@pytest.mark.parametrize(
    ("facts", "own", "state", "hint"),
    [
        ({"state": "running"}, (), "running", ""),
        ({"state": "running", "detached": True}, (), "running (detached)", "%gpu_attach r1"),
        ({"state": "succeeded", "detached": True}, (), "succeeded (detached)", ""),
        ({"state": "running"}, ("r1",), "running (async)", "%gpu_wait r1"),
        ({"state": "persisting", "waits_for": "room"}, ("r1",), "persisting (async)", "room"),
    ],
)
def test_what_can_be_done_with_a_run_stands_in_its_line(facts, own, state, hint):
    (line,) = runs_table(RunsDocument(1, [row(run="r1", **facts)]), own=own).rows
    assert (line[1], line[-1]) == (state, hint)


def test_tables_as_text_and_html():
    table = Table("T", ("a", "bb"), [("1", "<x>"), ("22", "y")])
    assert repr(table) == "T\n  a   bb\n  1   <x>\n  22  y"
    assert "&lt;x&gt;" in table._repr_html_()
    assert repr(Table("only")) == "only"
