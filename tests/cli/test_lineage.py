"""A run's lineage, as events of OpenLineage and on a terminal."""

from __future__ import annotations

import io
from typing import Any

import pytest
from msgspec import convert
from rich.console import Console

from jupyter_gpu_release.cli.lineage import lineage_document, print_lineage
from jupyter_gpu_release.cli.tables import print_nodes
from jupyter_gpu_release.protocol.lineage import Environment, Lineage, Link, RunFacts, RunSummary, UsedInput
from jupyter_gpu_release.protocol.rest import NodeRow, RunRow

_ROW = {"run": "fit", "user": "ann", "state": "failed", "gpus": 1, "ranks": 1, "name": "fit", "notebook": "b.ipynb"}
_ROW |= {"submitted_at": 10.0, "running_at": 20.0, "finished_at": 30.0, "simulated": False}
_ROW |= {"results": [{"name": "model", "type": "Net"}], "error": {"ename": "E", "evalue": "why"}}


def _lineage(**facts: Any) -> Lineage:
    used = [UsedInput("data", "Frame", 5, "load", "d" * 64), UsedInput("lr", "float", 8)]
    runs = [RunSummary("fit", True, "failed"), RunSummary("load", True, "succeeded", "load", "b.ipynb", 864000.0)]
    runs.append(RunSummary("gone", is_known=False))
    links = [Link("fit", "data", "load"), Link("gone", "model", "fit"), Link("gone", "other", "fit")]
    environment = Environment("3.11", "linux", digest="ab12" * 8)
    return Lineage("fit", RunFacts("x = 1", used=used, environment=environment), [], runs, links, **facts)


def test_each_run_is_one_event_with_what_it_read_and_made() -> None:
    document = lineage_document(convert(_ROW, RunRow, strict=False), _lineage())
    whole, load, gone = document["events"]
    assert [event["eventType"] for event in (whole, load, gone)] == ["FAIL", "COMPLETE", "OTHER"]
    assert [each["name"] for each in whole["inputs"]] == ["load/data", "fit/in/lr"]
    assert [each["name"] for each in whole["outputs"]] == ["fit/model"]
    assert whole["inputs"][0]["facets"]["version"]["datasetVersion"] == "d" * 64
    assert "version" not in whole["inputs"][1]["facets"]
    facets = whole["run"]["facets"]
    assert facets["nominalTime"]["nominalStartTime"] == "1970-01-01T00:00:20Z"
    assert facets["errorMessage"]["message"] == "E: why"
    assert facets["gpuReleaseEnvironment"]["digest"] == "ab12" * 8
    assert (whole["eventTime"], load["eventTime"]) == ("1970-01-01T00:00:30Z", "1970-01-11T00:00:00Z")
    assert (load["inputs"], [each["name"] for each in load["outputs"]]) == ([], ["load/data"])
    assert load["outputs"][0]["facets"] == {}
    assert ([each["name"] for each in gone["inputs"]], gone["outputs"]) == (["fit/model", "fit/other"], [])


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, ""),
        ({"is_reusable": True}, "--cache: its results may be used again"),
        ({"reused": 1}, "--cache: used again once"),
        ({"reused": 3, "cut": True}, "--cache: used again 3 times\nThere are more runs than are shown here."),
    ],
)
def test_on_a_terminal_the_runs_above_and_below_are_trees(facts: dict[str, Any], words: str) -> None:
    text = io.StringIO()
    print_lineage(Console(file=text, width=100), convert(_ROW, RunRow, strict=False), _lineage(**facts))
    lines = [line.strip() for line in text.getvalue().splitlines()]
    assert "x = 1" in lines
    assert "Python 3.11 · linux · environment ab12ab12ab12" in lines
    assert "└── load  data  load · succeeded · 1970-01-1" in text.getvalue().replace("\xa0", " ")
    assert any(line.startswith("└── gone  model, other  not known here") for line in lines)
    assert f"data (Frame, 5 B) from run load {'d' * 20}…" in text.getvalue()
    assert text.getvalue().rstrip().endswith(words)


def test_a_node_is_up_down_or_drained() -> None:
    text = io.StringIO()
    facts = {"a": {}, "b": {"up": False}, "c": {"drained": "c is drained by ann"}}
    rows = [convert({"id": host, "host": host, "gpus": [], **more}, NodeRow) for host, more in facts.items()]
    print_nodes(Console(file=text, width=100), rows)
    assert [line.split()[2] for line in text.getvalue().splitlines()[2:]] == ["up", "down", "drained"]
