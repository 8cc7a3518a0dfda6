"""``jupyter gpu queues``: the table, as docs/scheduling/queues-file.md shows it."""

from __future__ import annotations

import io
import re

import msgspec
import pytest
from doc_blocks import block, blocks_in
from rich.console import Console

from jupyter_gpu_release.cli.tables import print_queues
from jupyter_gpu_release.gateway.api.responses import queue_share
from jupyter_gpu_release.protocol.rest import QueuesDocument
from jupyter_gpu_release.scheduling.queues.overview import Claimed, overview
from jupyter_gpu_release.scheduling.queues.queues_file import QueuesFile, parse_queues
from jupyter_gpu_release.scheduling.workload import GPU

(_EXAMPLE,) = (one.text for one in blocks_in("scheduling/queues-file.md", "yaml") if "protein" in one.text)
_CLAIMS = (
    Claimed("protein", "ann", 6 * GPU),
    Claimed("climate", "eve", 3 * GPU),
    Claimed("teaching", "dan", GPU),
    Claimed("climate", "eve", 4 * GPU, waiting_runs=1),
)


def _document(file: QueuesFile, *claims: Claimed, usable: set[str]) -> QueuesDocument:
    shares = [queue_share(one, usable) for one in overview(file, claims, 16 * GPU)]
    return QueuesDocument(1, 16, "teaching" if len(usable) > 1 else "", shares, ["queues.yaml, line 3: name: none"])


def _printed(document: QueuesDocument, width: int = 80) -> str:
    text = io.StringIO()
    print_queues(Console(file=text, width=width), document)
    return re.sub(r" +$", "", text.getvalue(), flags=re.MULTILINE)


def test_the_table_of_the_docs() -> None:
    file = parse_queues(_EXAMPLE, "queues-file.md")
    document = _document(file, *_CLAIMS, usable={"climate", "teaching"})
    said = _printed(msgspec.structs.replace(document, notes=[]))
    assert said == block("scheduling/queues-file.md", "# The queues file", "queue ").text


@pytest.mark.parametrize("width", [24, 32, 40, 50, 62])
def test_a_narrow_table_names_its_queues(width: int) -> None:
    file = parse_queues(_EXAMPLE, "queues-file.md")
    said = _printed(_document(file, *_CLAIMS, usable={"climate", "teaching"}), width)
    head, _rule, *rows = said.splitlines()
    assert head.split()[0] == "queue", said
    assert "used" in head, said
    for name in ("protein", "climate", "teaching"):
        assert any(row.split()[0] == name for row in rows if row), said


def test_types_of_gpu_that_a_queue_names_have_lines_of_their_own() -> None:
    file = parse_queues(
        "schema_version: 1\nqueues:\n  - {name: a, guaranteed: {h100: 4}, max: {h100: 6, a100: 2}}\n  - {name: b}\n",
        "f",
    )
    types = {"NVIDIA H100 PCIe": 8 * GPU, "NVIDIA A100": 8 * GPU}
    claims = [Claimed("a", "ann", 3 * GPU, gpus_of={"NVIDIA H100 PCIe": 2 * GPU, "NVIDIA A100": GPU})]
    shares = [queue_share(one, {"a"}) for one in overview(file, claims, 16 * GPU, types)]
    rows = [line.split() for line in _printed(QueuesDocument(1, 16, "a", shares)).splitlines()]
    assert ["·", "h100", "4", "6", "2", "6"] in rows
    assert ["·", "a100", "2", "1", "2"] in rows


def test_it_fits_a_narrow_terminal() -> None:
    names = "schema_version: 1\nqueues:\n  - {name: research-group-a, max: 100, guaranteed: 64}\n"
    file = parse_queues(names, "queues.yaml")
    users = [Claimed("research-group-a", f"somebody{n}", 64 * GPU, waiting_runs=n % 2) for n in range(9)]
    said = _printed(_document(file, *users, usable=set()))
    assert max(map(len, said.splitlines())) <= 80, said
    assert all(f"somebody{n} 64" in re.sub(r"\s+", " ", said) for n in range(9)), said
    assert "queues.yaml, line 3" in said
    assert "No queue names you" in said
    assert "users share it fairly" in _printed(_document(QueuesFile(), usable={"default"}))
