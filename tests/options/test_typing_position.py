"""The place in a magic's line, also in lines that are not finished or wrong."""

from __future__ import annotations

import pytest

from jupyter_gpu_release.options.typing_position import find_cursor, find_setting


def place(head: str) -> tuple[str, str, str]:
    cursor = find_cursor(head)
    return cursor.option.name if cursor.option else "", cursor.typed, cursor.statement


@pytest.mark.parametrize(
    ("head", "option", "typed", "statement"),
    [
        ("", "", "", ""),
        ("--", "", "--", ""),
        ("--gpu", "", "--gpu", ""),
        ("--gpus 2 ", "", "", ""),
        ("--gpus ", "gpus", "", ""),
        ("--gpus=h1", "gpus", "h1", ""),
        ("--GPUS 2 --min_gpu_memory 4", "min-gpu-memory", "4", ""),
        ("--fresh --on-disconnect c", "on-disconnect", "c", ""),
        ("--name 'a b", "name", "'a b", ""),
        ("--name 'a b' --ke", "", "--ke", ""),
        ("--in a,b", "in", "b", ""),
        ("--in a, b, ", "in", "", ""),
        ("--in a ", "", "", ""),
        ("--in +a", "in", "a", ""),
        ("--gpus --fre", "", "--fre", ""),
        ("--nonsense 3 --fre", "", ["3", "--fre"][-1], "3 --fre"),
        ("--gpus 2 model.fit(x, y", "", "y", "model.fit(x, y"),
    ],
)
def test_the_place_of_the_cursor(head: str, option: str, typed: str, statement: str):
    assert place(head) == (option, typed, statement)


def test_what_stands_before_is_told():
    cursor = find_cursor("--gpus 2 --fresh --skip a, b,c")
    assert cursor.given == ("gpus", "fresh", "skip")
    assert cursor.listed == ("a", "b")
    assert find_cursor("--in +a,b").listed == ("a",)
    assert find_cursor("--gpus 2 --ke").given == ("gpus",)


def test_settings_of_a_notebook():
    assert find_setting("gpus=2 ke").typed == "ke"
    setting = find_setting("gpus=2 keep=au")
    assert setting.option is not None
    assert (setting.option.name, setting.typed, setting.given) == ("keep", "au", ("gpus",))
    assert find_setting("nonsense=").option is None
