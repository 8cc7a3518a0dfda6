"""Long tables: lined up, folded in the last column only, and nobody's label moves the cursor."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from rich.console import Console

from jupyter_gpu_release.cli.admin.gc import print_collection
from jupyter_gpu_release.cli.tables import print_nodes, write_columns
from jupyter_gpu_release.protocol.admin import GcDocument, RemovalRow
from jupyter_gpu_release.protocol.rest import GpuRow, NodeRow

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
