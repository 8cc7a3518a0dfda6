"""Blocks of README and of the operator's documents are run: each is claimed by a test."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from doc_blocks import Block, block, blocks_in, blocks_of

TESTS = Path(__file__).parent
_CLAIMS = {"block": block, "blocks_in": blocks_in}


def _claimed() -> Iterator[Block]:
    """The blocks that tests and what they stand on name with plain texts."""
    for path in TESTS.rglob("*.py"):
        if path == Path(__file__) or "doc_blocks" not in (source := path.read_text()):
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CLAIMS:
                found = _CLAIMS[node.func.id](*(ast.literal_eval(word) for word in node.args))
                yield from found if isinstance(found, list) else [found]


@pytest.mark.parametrize(
    "document",
    ["../README.md", "operator-guide.md", "scheduling.md", "idle-policy.md", "troubleshooting.md", "kubernetes.md"],
)
def test_every_block_is_run_by_a_test(document: str) -> None:
    left = [str(one) for one in blocks_of(document) if one not in set(_claimed())]
    assert not left, "no test runs these (tests/harness/doc_blocks.py):\n" + "\n".join(left)
