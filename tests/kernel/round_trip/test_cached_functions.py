"""Entries of cached functions: what the table of cells (``tests/cells``) cannot say."""

from __future__ import annotations

import functools
import threading
from typing import Any

from round_trip import Notebook

from jupyter_gpu_release.adapters.stdlib import cached_functions
from jupyter_gpu_release.serialization.hashing.value_hash import graph_key
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo
from tests.cells.functions import IMPORTS


def test_what_cannot_be_pickled_stays_where_it_is_and_is_said(nb: Notebook) -> None:
    nb.cell(
        IMPORTS + "@functools.cache\ndef base(name='a'):\n    made = sqlite3.connect(':memory:')\n"
        "    made.execute('create table t (x)')\n    return made\n"
        "base().execute('insert into t values (1)'); first = base()"
    )
    trip = nb.gpu("rows = base('b').execute('select count(*) from t').fetchall()")
    assert not trip.error
    assert "`base` came back without a part of what base() remembers, which cannot be pickled" in trip.notes
    assert nb.cell("rows, base() is first, first.execute('select * from t').fetchall()") == ([(0,)], True, [(1,)])
    nb.cell("first.close()")


def test_what_stayed_here_is_remembered_after_a_cell_that_was_sent_the_rest(nb: Notebook) -> None:
    nb.cell(
        IMPORTS
        + "@functools.cache\ndef base(name):\n    return sqlite3.connect(':memory:') if name == 'a' else name * 2\n"
        "first = base('a'); base('c')"
    )
    trip = nb.gpu("got = base('b')")
    assert not trip.error
    assert nb.cell("got, base.cache_info().currsize, base('a') is first") == ("bb", 3, True)
    nb.cell("first.close()")


def test_another_thread_gets_its_own_answer_while_a_cache_is_filled() -> None:
    answers: list[int] = []

    @functools.cache
    def double(x: Any) -> int:
        return int(x) * 2

    class Asks(int):
        def __hash__(self) -> int:
            asker = threading.Thread(target=lambda: answers.append(double(21)))
            asker.start()
            asker.join()
            return 1

    cached_functions.fill(double, [cached_functions.Entry((Asks(1),), {}, -1)], 4, 5)
    assert answers[0] == 42
    assert double.cache_info()[:2] == (4, 5)


def test_what_is_remembered_is_no_part_of_a_cache_key() -> None:
    @functools.cache
    def double(x: int) -> int:
        return x * 2

    double.__module__ = "__main__"
    realm = NamespaceInfo({}, at_home=True)
    before = graph_key({"f": double}, realm).digest
    double(2)
    assert graph_key({"f": double}, realm).digest == before
