"""Long tables: lined up, folded in the last column only, and nobody's label moves the cursor."""

from __future__ import annotations

import io

from rich.console import Console

from jupyter_gpu_release.cli.tables import write_columns


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
