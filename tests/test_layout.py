"""The house stays readable: no circles, short chains of imports, and documents that name what exists."""

from __future__ import annotations

import ast
import re
import statistics
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
PACKAGE = REPOSITORY / "jupyter_gpu_release"
#: files that import each other in a row, within one folder
_LONGEST_CHAIN = 12
#: statements of a function, without its docstring: the formatter decides about lines
_MEDIAN_STATEMENTS, _MOST_STATEMENTS = 4, 50


@cache
def _modules() -> dict[str, Path]:
    """``node.agent.run`` → its file; of packages their ``__init__``."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = path
    return found


@cache
def _imports() -> dict[str, frozenset[str]]:
    """Module → modules that it imports, whenever: at its top, in functions, for its types."""
    return {name: frozenset(_imported(name, path)) for name, path in _modules().items() if name}


def _imported(name: str, path: Path) -> Iterator[str]:
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [*package[: len(package) + 1 - node.level], *(node.module or "").split(".")]
            for alias in node.names:
                whole = ".".join(filter(None, [*base, alias.name]))
                target = whole if whole in _modules() else ".".join(filter(None, base))
                if target and target != name:
                    yield target


def test_no_file_imports_its_own_users() -> None:
    left = dict(_imports())
    while free := {name for name, needs in left.items() if not needs & left.keys()}:
        left = {name: needs for name, needs in left.items() if name not in free}
    assert sorted(left) == [], "these import each other in a circle, or what does"


@pytest.mark.parametrize("folder", sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()))
def test_no_chain_of_imports_is_long(folder: str) -> None:
    inside = {name: needs for name, needs in _imports().items() if name.split(".")[0] == folder}

    @cache
    def depth(name: str) -> tuple[str, ...]:
        return (name, *max((depth(need) for need in inside[name] if need in inside), key=len, default=()))

    longest = max((depth(name) for name in inside), key=len)
    assert len(longest) <= _LONGEST_CHAIN, " → ".join(longest)


@pytest.mark.slow("it parses the whole package")
def test_functions_are_small() -> None:
    sizes = {f"{path.relative_to(PACKAGE)}: {name}": n for path in _modules().values() for name, n in _functions(path)}
    assert statistics.median(sizes.values()) <= _MEDIAN_STATEMENTS
    assert {name: n for name, n in sizes.items() if n > _MOST_STATEMENTS} == {}


def _functions(path: Path) -> Iterator[tuple[str, int]]:
    """Each function or method (by name and line) and its statements, without the docstring."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = sum(isinstance(each, ast.stmt) for each in ast.walk(node)) - 1
            yield f"{node.name} (line {node.lineno})", inside - (ast.get_docstring(node) is not None)


def test_only_users_import_the_package_itself() -> None:
    own = {name for name, path in _modules().items() if name and _imports_the_root(name, path)}
    assert own == set()


def _imports_the_root(name: str, path: Path) -> bool:
    depth = len(name.split(".")) + (path.name == "__init__.py")
    return any(
        isinstance(node, ast.ImportFrom)
        and (
            (node.level == depth and not node.module and not {a.name for a in node.names} <= _modules().keys())
            or (not node.level and node.module == "jupyter_gpu_release")
        )
        for node in ast.walk(ast.parse(path.read_text()))
    )


def test_sql_is_spoken_in_the_folder_for_it_only() -> None:
    """Other files pass connections on, and name their type."""
    made = re.compile(r"^(?:from|import) sqlalchemy(?!\.engine import).*|exec_driver_sql", re.MULTILINE)
    found = {
        name: made.findall(path.read_text())
        for name, path in _modules().items()
        if not name.startswith("gateway.db") and made.search(path.read_text())
    }
    assert found == {}


def test_every_folder_says_what_it_is_for() -> None:
    for path in PACKAGE.rglob("__init__.py"):
        if path.parent != PACKAGE:
            tree = ast.parse(path.read_text())
            assert ast.get_docstring(tree), f"{path}: no docstring"
            assert len(tree.body) == 1, f"{path} has code"


def test_the_tables_of_architecture_name_what_exists() -> None:
    text = (REPOSITORY / "ARCHITECTURE.md").read_text()
    _, _, table = text.partition("\n## Folders\n")
    named = set(re.findall(r"^\| `([\w/]+)/` \|", table, re.MULTILINE))
    there = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert named == there


def test_the_glossary_is_short_and_has_each_word_once() -> None:
    text = (REPOSITORY / "ARCHITECTURE.md").read_text()
    before, _, rest = text.partition("\n## Words\n")
    table, _, after = rest.partition("\n## ")
    words = re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)[1:]
    assert 20 < len(words) <= 30
    assert len(set(words)) == len(words)
    documents = [before, after, *(path.read_text() for path in sorted((REPOSITORY / "docs").rglob("*.md")))]
    used = "\n".join(documents).lower()
    assert [word for word in words if not re.search(rf"\b{word}", used)] == [], "explained, but used nowhere"


def test_paths_in_documents_exist() -> None:
    documents = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")]
    named = {
        (document.name, path)
        for document in documents
        if "_made" not in document.parts
        for path in re.findall(r"`((?:jupyter_gpu_release/)?[a-z_]+/[\w/]+\.py)`", document.read_text())
    }
    assert len(named) > 20
    there = [f"/{path.relative_to(REPOSITORY)}" for path in REPOSITORY.rglob("*.py") if ".venv" not in path.parts]
    assert sorted((d, p) for d, p in named if not any(path.endswith(f"/{p}") for path in there)) == []
