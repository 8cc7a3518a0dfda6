"""What depends on the seed of hashes is seen, and what does not is left alone."""

from __future__ import annotations

import ast

import pytest

from jupyter_gpu_release.analysis.hash_order import SUSPECT, depends_on_hashes, finds_by_id
from jupyter_gpu_release.protocol.config import DEFAULT_HASH_SEED, hash_seed_for_kernel, hash_seed_in


@pytest.mark.parametrize(
    "body",
    [
        "x = hash('a')",
        "vocab = {w: i for i, w in enumerate(set(words))}",
        "classes = list(set(words))",
        "for tag in tags: print(tag)",
        "for tag in tags | {'x'}: pass",
        "seen = {w for w in words}\nfirst = seen.pop()",
        "a = ', '.join(tags.union(more))",
        "print(*tags)",
        "for each in {1, name}: pass",
    ],
)
def test_code_that_depends_on_hashes(body: str) -> None:
    assert SUSPECT.search(body) or "tags" in body
    assert depends_on_hashes(ast.parse(body), {"tags"}.__contains__)


@pytest.mark.parametrize(
    "body",
    [
        "sorted(set(words)), len(tags), 'a' in tags",
        "for i in {1, 2, 3}: pass",
        "d = {'a': 1}\nfor k in d: pass",
        "x = a | b\nfor i in x: pass",
        "stack.pop()\nhashes = 1",
    ],
)
def test_code_that_does_not(body: str) -> None:
    assert not depends_on_hashes(ast.parse(body), {"tags"}.__contains__)


def test_kernels_get_the_clusters_seed_unless_they_have_one() -> None:
    assert hash_seed_for_kernel({}, "") == {"PYTHONHASHSEED": DEFAULT_HASH_SEED}
    assert hash_seed_for_kernel({}, "7") == {"PYTHONHASHSEED": "7"}
    assert hash_seed_for_kernel({"PYTHONHASHSEED": "0"}, "7") == {}
    assert [hash_seed_in({"PYTHONHASHSEED": seed}) for seed in ("3", "random", "")] == ["3", "", ""]


@pytest.mark.parametrize(
    ("body", "finds"),
    [
        ("fits[id(model)]", True),
        ("id(model) in fits", True),
        ("seen.add(id(model))", True),
        ("{(id(m), 'a'): m for m in models}", True),
        ("known = {id(model)}", True),
        ("print(id(model), id(a) == id(b))", False),
        ("fits[model.id(3)]", False),
    ],
)
def test_code_that_finds_something_by_its_id(body: str, finds: bool) -> None:
    assert finds_by_id(ast.parse(body)) == finds
