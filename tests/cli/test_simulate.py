from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from doc_blocks import block
from rich.console import Console

from jupyter_gpu_release.cli import simulate
from jupyter_gpu_release.cli.main import main
from jupyter_gpu_release.cli.parser import parse

TRACES = Path(__file__).parents[2] / "examples" / "traces"
ROWS = "submit_s,duration_s,gpus,user,priority,gpu_type\n0,100,4,ann,,\n1,50,4,bob,,\n2,10,1,bob,,\n3,x,1,bob,,\n"


@pytest.fixture
def trace(tmp_path: Path) -> list[str]:
    (tmp_path / "trace.csv").write_text(ROWS)
    (tmp_path / "cluster.yaml").write_text("nodes: [{count: 1, gpus: 4, gpu_type: v100, cpus: 64}]\n")
    return ["simulate", str(tmp_path / "trace.csv"), "--cluster", str(tmp_path / "cluster.yaml")]


def test_policies_are_compared_in_one_document(trace: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*trace, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["schema_version"], document["trace"], document["gpus"]) == (1, "trace.csv", 4)
    assert list(document["policies"]) == ["fifo", "first_fit", "easy", "shortest_first", "configured"]
    assert set(document["policies"]["fifo"]) >= {
        "mean_wait_s",
        "p50_wait_s",
        "p90_wait_s",
        "p99_wait_s",
        "p99_wait_by_size_s",
        "bounded_slowdown",
        "makespan_s",
        "utilization",
        "jain",
        "max_overtaken_s",
        "preempted",
        "work_lost",
        "held_over_used",
    }
    assert document["left_out"] == {"rows": 1, "first": [[5, "duration_s is not a number"]]}


def test_tables_and_charts_are_written(trace: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*trace, "--policy", "fifo", "configured", "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "3 jobs on 4 GPUs" in printed
    assert "1 row of trace.csv left out: duration_s is not a number (row 5)" in printed
    assert "mean wait" in printed
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {"report.html", "report.json", "sizes.png", "waits.png"}
    assert (tmp_path / "out" / "waits.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<table>" in page
    assert "mean · median · 90 % at most · 99 % at most" in page


def test_the_comparison_of_all_policies_fits_80_columns(
    trace: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = io.StringIO()
    monkeypatch.setattr(simulate, "output_console", lambda: Console(file=text, width=80))
    user = "katherine.johnson@mathematics.example.org"
    (tmp_path / "trace.csv").write_text(ROWS.replace("ann", user))
    assert main(trace) == 0
    lines = text.getvalue().splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert "…" not in text.getvalue()
    for words in ("utilization", "configured", "1 min 22 s", "shortest_"):
        assert words in text.getvalue(), words


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["simulate"], "nothing to play"),
        (["simulate", "nowhere.csv"], "a trace needs --cluster FILE"),
        (["simulate", "--from-ledger", "--restartable", "50"], "--restartable 50: not a number from 0 to 1"),
        (["simulate", "nowhere.csv", "--cluster", str(TRACES / "philly_400.yaml")], "nowhere.csv: No such file"),
        (
            ["simulate", str(TRACES / "README.md"), "--cluster", "nowhere.yaml"],
            "--cluster: cannot read nowhere.yaml: No such file",
        ),
    ],
)
def test_what_is_missing_is_named(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) != 0
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("nodes: [", "cluster.yaml, line 1: "),
        ("[]", "line 1: expected a table, it is a list"),
        ("nodes: [{gpus: 0}]", "it has no GPUs"),
        ("nodes: [{gpus: eight}]", "line 1: nodes[0].gpus: expected a whole number, it is a text"),
        ("nodes: [{gpus: 8, gpu: 3}]", "line 1: nodes[0].gpu: there is no such field"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(
    trace: list[str], tmp_path: Path, content: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cluster.yaml").write_text(content)
    assert main([*trace, "--json"]) != 0
    assert says in capsys.readouterr().err


def test_an_unknown_policy_is_refused_with_the_list(trace: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*trace, "--policy", "fife"]) != 0
    assert "policies: fifo, first_fit, easy, shortest_first, configured" in capsys.readouterr().err


def test_each_queues_file_is_a_column(trace: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / "one.yaml", tmp_path / "two.yaml"]
    for file in files:
        file.write_text("schema_version: 1\n")
    one = ["--queues", str(files[0]), "--policy", "configured", "fifo", "--json"]
    assert main([*trace, *one]) == 0
    assert set(json.loads(capsys.readouterr().out)["policies"]) == {"configured", "fifo"}
    assert main([*trace, "--queues", str(files[1]), *one]) == 0
    assert set(json.loads(capsys.readouterr().out)["policies"]) == {"fifo", *map(str, files)}


def test_each_pool_is_a_column_with_its_waits_and_its_hours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "trace.csv").write_text("submit_s,duration_s,gpus\n0,100,1\n600,100,1\n601,10,8\n")
    files = {str(tmp_path / f"{idle}.yml"): idle for idle in ("3m", "20m")}
    for file, idle in files.items():
        Path(file).write_text(f"max_nodes: 1\ngpus_per_node: 4\nidle_return: {idle}\n")
    pools = [word for file in files for word in ("--slurm", file)]
    assert main(["simulate", str(tmp_path / "trace.csv"), *pools, "--node-wait", "1m", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["left_out"]["first"] == [[4, "asks for 8 GPUs, the cluster has 4"]]
    found = {idle: document["policies"][file] for file, idle in files.items()}
    assert [found[idle]["mean_wait_s"] for idle in ("3m", "20m")] == [70, 35]
    assert found["3m"]["held_over_used"] == 4 * 2 * (10 + 100 + 180) / 200
    assert found["20m"]["held_over_used"] == 4 * (700 + 1200 - 60) / 200


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--policy", "fifo"], "simulate: --slurm with --policy"),
        (["--queues", "a.yml", "--queues", "b.yml"], "or with several --queues"),
        (["--node-wait", "soon"], "--node-wait soon: not a duration"),
        (["--cluster", "cluster.yaml"], "not allowed with argument"),
        (["--slurm", "none.yml"], "--slurm: cannot read none.yml"),
    ],
)
def test_what_does_not_go_with_a_pool_is_named(
    more: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pool.yml").write_text("max_nodes: 1\n")
    assert main(["simulate", "trace.csv", "--slurm", str(tmp_path / "pool.yml"), *more]) != 0
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(("part", "preempted"), [("0", 0), ("1", 1)])
def test_restartable_jobs_are_preempted_where_a_queue_reclaims_its_share(
    trace: list[str], tmp_path: Path, part: str, preempted: int, capsys: pytest.CaptureFixture[str]
) -> None:
    job = "0,9000,2,ann,one\n"
    (tmp_path / "trace.csv").write_text(f"submit_s,duration_s,gpus,user,queue\n{job}{job}10,50,2,bob,two\n")
    file = tmp_path / "queues.yaml"
    file.write_text("schema_version: 1\nqueues: [{name: one}, {name: two}]\n")
    words = ["--queues", str(file), "--restartable", part, "--policy", "configured", "--json"]
    assert main([*trace, *words]) == 0
    assert json.loads(capsys.readouterr().out)["policies"]["configured"]["preempted"] == preempted


class _Gateway:
    """A gateway with one run that is over."""

    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows

    def __enter__(self) -> _Gateway:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def runs(self, limit: int) -> Any:
        return SimpleNamespace(runs=self._rows[:limit])

    def status(self) -> Any:
        return SimpleNamespace(nodes=[SimpleNamespace(gpus=[SimpleNamespace(name="A100")] * 4)])


def test_the_ledgers_runs_are_replayed_beside_what_happened(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = {
        "user": "ann",
        "queue": "",
        "priority": "normal",
        "gpu_name": "A100",
        "notebook": "",
        "cell": "",
        "name": "",
    }
    late = SimpleNamespace(submitted_at=5, granted_at=95, running_at=96, gone_at=105, release_ms=500.0, gpus=1, **facts)
    early = SimpleNamespace(submitted_at=0, granted_at=1, running_at=2, gone_at=90, release_ms=None, gpus=2, **facts)
    monkeypatch.setattr(simulate, "open_gateway", lambda timeout_s: _Gateway([late, early]))
    assert main(["simulate", "--from-ledger", "--policy", "fifo", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["trace"], document["gpus"]) == ("ledger", 4)
    assert document["policies"]["measured"]["mean_wait_s"] == 45.5
    assert document["policies"]["measured"]["held_over_used"] == round((10 + 2 * 89) / (8.5 + 2 * 88), 4)
    assert document["policies"]["fifo"]["mean_wait_s"] == 0

    for name in ("pool.yml", "other.yml"):
        (tmp_path / name).write_text("max_nodes: 1\ngpus_per_node: 2\ngpu_type: a100\n")
    monkeypatch.chdir(tmp_path)
    own_runs = block("operate/pool-size.md", "## Try files that differ", "jupyter gpu simulate --from-ledger")
    (command,) = own_runs.commands()
    assert main(command.split()[2:]) == 0
    printed = capsys.readouterr().out
    assert "measured" in printed
    assert "other.yml" in printed


def test_the_example_of_a_pool_replays_a_trace_that_is_here() -> None:
    (command,) = block("operate/pool-size.md", "## Try files that differ", "jupyter gpu simulate examples").commands()
    asked = parse(command.split()[2:])
    assert (TRACES.parents[1] / asked.trace).exists()
    assert (asked.slurm, asked.node_wait) == (["pool.yml"], 60)


def test_a_trace_and_the_ledger_cannot_be_replayed_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "trace.csv", "--from-ledger"]) != 0
    assert "a trace and --from-ledger" in capsys.readouterr().err


def test_the_commands_of_the_page_name_traces_that_are_here() -> None:
    for line in block("operate/simulator.md", "# Simulator").commands():
        asked = parse(line.split()[2:])
        assert (TRACES.parents[1] / asked.trace).exists()
        assert (TRACES.parents[1] / asked.cluster).exists()
