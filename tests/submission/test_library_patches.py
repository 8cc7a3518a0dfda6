"""Attributes to which compiled code assigns, whatever instructions this Python makes of it."""

from __future__ import annotations

import ast
import sys
import types
from collections.abc import Callable
from typing import Any

import pytest

from jupyter_gpu_release.submission.library_patches import LibraryPatches, UnreadCells, stored_attributes


def _of_two_locals(lib: Any, value: Any) -> None:
    lib.attribute = value


def _of_itself(lib: Any) -> None:
    lib.attribute = lib


def _after_a_local(value: Any) -> None:
    lib = value
    lib.attribute = 3


def _in_place(lib: Any) -> None:
    lib.attribute += 1


def _of_a_global(value: Any) -> None:
    lib.attribute = value  # type: ignore[name-defined]  # noqa: F821


def _inside(value: Any) -> Callable[[Any], None]:
    def inner(lib: Any) -> None:
        lib.attribute = value

    return inner


@pytest.mark.parametrize("function", [_of_two_locals, _of_itself, _after_a_local, _in_place, _of_a_global, _inside])
def test_an_attribute_that_a_function_sets_is_found(function: Callable[..., Any]) -> None:
    assert stored_attributes(function.__code__) == {"lib.attribute"}


def test_of_a_chain_all_is_found() -> None:
    def deep(lib: Any, value: Any) -> None:
        lib.part.attribute = value

    assert stored_attributes(deep.__code__) == {"lib.part.attribute"}


def test_what_comes_back_is_not_said_to_stay_away() -> None:
    """Methods that a cell puts into classes of pandas; plain values, and those of other classes, stay there."""
    pandas = pytest.importorskip("pandas")
    patches = LibraryPatches({"pd": pandas}, list)
    cell = "pd.DataFrame.total = lambda self: 1\npd.DataFrame.x = 3\npd.Timestamp.later = lambda self: 1\npd.rate = 1"
    assert patches.stay_away(ast.parse(cell), []) == ["pd.DataFrame.x", "pd.Timestamp.later", "pd.rate"]


def test_what_is_set_in_an_object_of_a_module_goes_along_and_what_a_gpu_cell_sets_there_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The object is found by the module's name for it, or by a name of the notebook's. An adapter knows its library."""

    class Templates:
        __module__ = "plots"

    library = types.ModuleType("plots")
    library.templates = Templates()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "plots", library)
    names = {"p": library, "found": library.templates, "own": Templates(), "sys": sys}
    cells = ["p.templates.default = 'dark'\nfound.size = 3\nown.n = 1\nsys.stdout.x = 1"]
    for place, value in (("default", "dark"), ("size", 3)):
        setattr(library.templates, place, value)
    patches = LibraryPatches(names, lambda: cells)
    assert patches.found().items() >= {"plots:templates.default": "dark", "plots:templates.size": 3}.items()
    assert not [name for name in patches.found() if name.startswith(("sys:", "plots:own"))]
    assert patches.stay_away(ast.parse(cells[0]), []) == ["found.size", "p.templates.default"]


def test_each_cell_of_a_history_is_taken_once_and_anew_after_a_reset() -> None:
    cells = ["a", "b"]
    unread = UnreadCells(lambda: cells)
    assert [list(unread.take()), list(unread.take())] == [["a", "b"], []]
    cells.append("c")
    assert list(unread.take()) == ["c"]
    cells[:] = ["d"]
    assert [list(unread.take()), list(unread.take())] == [["d"], []]
