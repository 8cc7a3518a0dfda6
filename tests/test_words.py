"""One word for one thing: names that were given up come back nowhere, and titles are not clauses."""

from __future__ import annotations

import ast
import re
from functools import cache
from itertools import chain
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
PACKAGE = REPOSITORY / "jupyter_gpu_release"
#: word that was given up → the word for the thing
_RETIRED = {
    "keeper": "cluster daemon",
    "card": "GPU",
    "broker": "gateway",
    "provenance": "lineage",
    "ingredient": "lineage",
    "kinship": "lineage",
    "rehearsal": "warmup",
    "homecoming": "result binder",
    "seat": "rank spec",
    "surrounding": "context",
    "loan": "remote rank",
    "lending": "remote rank",
    "outbox": "send queue",
    "workplace": "cell environment",
    "deed": "action",
}
#: (file, word): there it is another thing's name
_EXCEPTIONS = {
    ("docs/index.md", "card"),  # sphinx-design's boxes
    ("jupyter_gpu_release/scheduling/queues/queues_file.py", "card"),  # `card_tiers` of the queues file
    ("docs/scheduling/queues-file.md", "card"),
    ("docs/scheduling/other-schedulers.md", "card"),
    ("jupyter_gpu_release/settings/table.py", "card"),
    ("docs/settings.md", "card"),
}
_CLAUSE = re.compile(r"(What|Which|Who|Whom|Whose|Whoever|Whatever|Whether)\b")


@cache
def _texts() -> dict[str, str]:
    """Everything that users and developers read, except the tests."""
    documents = [REPOSITORY.glob("*.md"), *((REPOSITORY / "docs").glob(pages) for pages in ("*.md", "[!_]*/*.md"))]
    code = [PACKAGE.rglob("*.py"), PACKAGE.rglob("*.yaml"), (REPOSITORY / "labextension/src").rglob("*.ts*")]
    paths = chain.from_iterable([*documents, *code])
    return {str(path.relative_to(REPOSITORY)): path.read_text() for path in paths}


def _words_of(text: str) -> set[str]:
    """The words of a text, and those that its identifiers are made of; in the singular, too."""
    parts = {part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", text)}
    return parts | {part.removesuffix("s") for part in parts}


def test_words_of_identifiers_are_found() -> None:
    assert {"keeper", "pid", "card", "gpu"} <= _words_of("keeper_pid = ICardRow(GPUCards)")
    assert "card" not in _words_of("the set is discarded; a wildcard")


@pytest.mark.parametrize("word", sorted(_RETIRED))
def test_a_word_that_was_given_up_stays_away(word: str) -> None:
    found = [file for file, text in _texts().items() if word in _words_of(text) and (file, word) not in _EXCEPTIONS]
    assert found == [], f"say {_RETIRED[word]}"


def test_no_title_is_a_clause() -> None:
    """Questions are: those of users and of operators."""
    titles = [
        (file, title)
        for file, text in _texts().items()
        if file.endswith(".md") and Path(file).stem not in ("faq", "faq-runs", "questions")
        for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    ]
    assert len(titles) > 100
    assert [(file, title) for file, title in titles if _CLAUSE.match(title)] == []


def test_no_docstring_begins_with_a_clause() -> None:
    found = []
    for file, text in _texts().items():
        if file.endswith(".py"):
            tree = ast.parse(text)
            kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
            said = [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, kinds)]
            found += [(file, words.splitlines()[0]) for words in said if _CLAUSE.match(words)]
    assert found == []
