"""Loops that cannot be left and entered again are named before the cell runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from jupyter_gpu_release.analysis.resumable_loops import plain_loops, resumable_problems

_REFUSED = {
    "for a in gpu.resumable(x):\n    for b in resumable(y):\n        pass": ("line 2", "inside of the one in line 1"),
    "from jupyter_gpu_release import resumable as r\nfor a in r(x):\n    if a:\n        for b in enumerate(r(y)):\n"
    "            pass": ("line 4", "inside of the one in line 2"),
    "for line in resumable(open('f')):\n    pass": ("line 1", "read once"),
    "f = open('f')\nfor n, line in enumerate(resumable(f)):\n    pass": ("line 2", "read once"),
    "f = open('f')\nfor x in resumable(int(line) for line in f):\n    pass": ("line 2", "read once"),
    "with x:\n    for line in tqdm(resumable(int(l) for l in open('f'))):\n        pass": ("line 2", "read once"),
    "for item in resumable(iter(queue.get, None)):\n    pass": ("line 1", "not returned again"),
}


@pytest.mark.parametrize("source", _REFUSED)
def test_what_cannot_be_entered_again_is_named_with_its_line(source: str) -> None:
    (problem,) = resumable_problems(ast.parse(source))
    for words in _REFUSED[source]:
        assert words in problem


@pytest.mark.parametrize(
    "source",
    [
        "for a in resumable(x):\n    for b in y:\n        pass\nfor c in resumable(z):\n    pass",
        "f = open('f')\nfor a in resumable(f.readlines()):\n    pass",
        "with open('f') as f:\n    for a in resumable(f):\n        pass",
        "for a in x:\n    open('f')\nfor b in zip(resumable(range(3)), open('f')):\n    pass",
        "for a in resumable(iter(items)):\n    with open('f') as f:\n        f.read()",
    ],
)
def test_other_loops_are_fine(source: str) -> None:
    assert resumable_problems(ast.parse(source)) == []


def _numbers() -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("for x in (n for n in y):\n    pass", {1: "a generator"}),
        ("for n, x in enumerate(stream()):\n    pass", {1: "a generator"}),
        ("for x in held:\n    pass\nfor y in items:\n    pass", {1: "a generator"}),
        ("with open('f') as f:\n    for line in open('g'):\n        pass", {2: "an open file"}),
        ("try:\n    async for x in y:\n        pass\nfinally:\n    pass", {2: "`async for`"}),
        ("while q.get():\n    pass\nwhile d.get('x'):\n    pass", {1: "its test waits: `q.get()`"}),
        (
            "if a:\n    pass\nelse:\n    while line := f.readline():\n        pass",
            {4: "its test waits: `f.readline()`"},
        ),
        ("while (await ask()) < 3:\n    pass", {1: "its test waits: `await ask()`"}),
        ("for x in range(3):\n    for y in (n for n in x):\n        while q.get():\n            pass", {}),
        ("for x in resumable(n for n in y):\n    pass\nfor x in sorted(n for n in y):\n    pass", {}),
    ],
)
def test_loops_that_are_left_only_when_they_are_over_are_known_before_the_run(
    source: str, found: dict[int, str]
) -> None:
    names = {"stream": _numbers, "held": _numbers(), "items": [1]}
    assert plain_loops(ast.parse(source).body, names) == found
