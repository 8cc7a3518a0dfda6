"""The word on sets whose order a GPU cell does not have."""

from __future__ import annotations

import pytest

from jupyter_gpu_release.core.hash_seed import VARIABLE
from jupyter_gpu_release.kernel.hash_order import note_on_hashes
from jupyter_gpu_release.storage.set_order import MOST, is_kept_by_pickle


def test_a_cell_that_walks_a_set_that_travels_without_its_order_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "7")
    many = {number * number for number in range(2 * MOST)}
    sent = {"many": many, "frozen": frozenset(n * n * n for n in range(2000)), "few": {1, 2}, "same": frozenset({1, 2})}
    assert not is_kept_by_pickle(many)
    assert not is_kept_by_pickle(sent["frozen"])
    for name in ("many", "frozen"):
        (note,) = note_on_hashes(f"for each in {name}: pass\nlen(few)", sent, "7")
        assert note.startswith(f"`{name}` has its elements in another order")
    assert note_on_hashes("for each in few | same: print(each, 1 in many)\nlist(same)", sent, "7") == []
    assert note_on_hashes("%ls\nlist(many)", sent, "7") == []
