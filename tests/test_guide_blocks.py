"""Blocks of README and of the pages for users and operators are run: each is claimed by a test."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest
from doc_blocks import DOCS, Block, block, blocks_in, blocks_of

TESTS = Path(__file__).parent
_CLAIMS = {"block": block, "blocks_in": blocks_in}


@cache
def _claimed() -> set[Block]:
    """The blocks that tests and what they stand on name with plain texts."""
    claimed = set[Block]()
    for path in TESTS.rglob("*.py"):
        if path == Path(__file__) or "doc_blocks" not in (source := path.read_text()):
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CLAIMS:
                found = _CLAIMS[node.func.id](*(ast.literal_eval(word) for word in node.args))
                claimed.update(found if isinstance(found, list) else [found])
    return claimed


#: all but the developers' own
_PAGES = [
    str(path.relative_to(DOCS)) for path in [*DOCS.glob("*.md"), *DOCS.glob("[!_]*/*.md")] if "design" not in path.parts
]


@pytest.mark.parametrize("document", ["../README.md", *sorted(_PAGES)])
def test_every_block_is_run_by_a_test(document: str) -> None:
    left = [str(one) for one in blocks_of(document) if one not in _claimed()]
    assert not left, "no test runs these (tests/harness/doc_blocks.py):\n" + "\n".join(left)
