"""A word on cells whose outcome depends on this kernel's hashes or identities, where the cluster's are others."""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...adapters.users_code import is_of_the_user
from ...analysis.hash_order import SUSPECT, depends_on_hashes, finds_by_id, walked_names
from ...protocol.config import VARIABLE, is_seed_of_this_process
from ...serialization.set_order import MOST, is_kept_by_pickle

_SUSPECTS = frozenset({"hash", "set", "frozenset", "id"})
_MOST_LOOKED_AT = 1000


def note_on_hashes(source: str, sent: Mapping[str, Any], cluster_seed: str) -> list[str]:
    """The sentence for the receipt; none where the seeds are equal, or where nothing is seen that depends on them."""
    if not cluster_seed or is_seed_of_this_process(cluster_seed):
        return _note_on_order(source, sent)
    sets = {name for name, value in sent.items() if isinstance(value, set | frozenset) and not _has_numbers_only(value)}
    for text in [source, *_sources(sent.values())]:
        what = _look(text, sets)
        if what:
            return [
                f"{what} is not what it is in this kernel, which has other hashes: {VARIABLE}={cluster_seed} in the "
                "environment with which the kernel starts makes them equal"
            ]
    return []


def note_on_ids(source: str, sent: Mapping[str, Any]) -> list[str]:
    """The sentence for the receipt of a cell that finds something again by its ``id()``."""
    texts = [source, *_sources(sent.values())]
    if not any("id(" in text and finds_by_id(tree) for text in texts if (tree := _parsed(text)) is not None):
        return []
    return ["`id()` gives other numbers in each process: what the notebook keeps by them, a GPU cell does not find"]


def _note_on_order(source: str, sent: Mapping[str, Any]) -> list[str]:
    """The hashes are the same: a word on sets that still do not keep their order on the way."""
    sets = {
        name for name, value in sent.items() if type(value) is frozenset or (type(value) is set and len(value) > MOST)
    }
    if not sets:
        return []
    tree = _parsed(source)
    walked = sets & walked_names(tree) if tree is not None else set()
    return [
        f"`{name}` has its elements in another order in the cell: a frozenset, and a set of more than {MOST:,}, "
        "travels without it"
        for name in sorted(walked)
        if not is_kept_by_pickle(sent[name])
    ]


def _look(text: str, sets: set[str]) -> str:
    if not sets and SUSPECT.search(text) is None:
        return ""
    tree = _parsed(text)
    return "" if tree is None else depends_on_hashes(tree, sets.__contains__)


def _parsed(text: str) -> ast.AST | None:
    try:
        return ast.parse(textwrap.dedent(text))
    except (SyntaxError, ValueError):  # magics; a lambda in the middle of a line
        return None


def _sources(values: Iterable[Any]) -> Iterator[str]:
    """Sources of the user's functions and methods: libraries' classes and decorators are full of such calls."""
    for value in values:
        for function in map(_undecorated, list(vars(value).values()) if isinstance(value, type) else [value]):
            is_suspect = isinstance(function, types.FunctionType) and is_of_the_user(function)
            if is_suspect and not _SUSPECTS.isdisjoint(function.__code__.co_names):
                try:
                    yield inspect.getsource(function)
                except (OSError, TypeError):
                    continue


def _undecorated(function: Any) -> Any:
    return inspect.unwrap(function) if isinstance(function, types.FunctionType) else function


def _has_numbers_only(values: set[Any] | frozenset[Any]) -> bool:
    return all(isinstance(value, int | float) for value, _ in zip(values, range(_MOST_LOOKED_AT), strict=False))
