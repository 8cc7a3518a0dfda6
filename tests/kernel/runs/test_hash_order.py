"""The word on sets whose order a GPU cell does not have."""

from __future__ import annotations

import copy
import os
import subprocess
import sys

import pytest

from jupyter_gpu_release.kernel.runs import hash_order
from jupyter_gpu_release.kernel.runs.hash_order import note_on_hashes, note_on_ids
from jupyter_gpu_release.protocol.config import VARIABLE
from jupyter_gpu_release.serialization.set_order import MOST, is_kept_by_pickle


def test_a_cell_that_walks_a_set_that_travels_without_its_order_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hash_order, "is_seed_of_this_process", lambda seed: seed == "7")
    many = {number * number for number in range(2 * MOST)}
    sent = {"many": many, "frozen": frozenset(n * n * n for n in range(2000)), "few": {1, 2}, "same": frozenset({1, 2})}
    assert not is_kept_by_pickle(many)
    assert not is_kept_by_pickle(sent["frozen"])
    for name in ("many", "frozen"):
        (note,) = note_on_hashes(f"for each in {name}: pass\nlen(few)", sent, "7")
        assert note.startswith(f"`{name}` has its elements in another order")
    assert note_on_hashes("for each in few | same: print(each, 1 in many)\nlist(same)", sent, "7") == []
    assert note_on_hashes("%ls\nlist(many)", sent, "7") == []


_ASKS = """
import os
from jupyter_gpu_release.kernel.runs.hash_order import note_on_hashes
os.environ["PYTHONHASHSEED"] = "7"
for seed in ("0", "5", "7", ""):
    print(len(note_on_hashes("hash('text')", {}, seed)))
"""


@pytest.mark.parametrize(
    ("seed", "notes"), [("5", "1 0 1 0"), ("7", "1 1 0 0"), ("0", "0 1 1 0"), ("random", "1 1 1 0")]
)
def test_a_seed_that_is_set_while_the_kernel_runs_misleads_nobody(seed: str, notes: str) -> None:
    environment = {**os.environ, VARIABLE: seed}
    ran = subprocess.run([sys.executable, "-c", _ASKS], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == notes.split()


def _shard_of(name: str) -> int:
    return hash(name) % 4


class _Table:
    def shard(self, name: str) -> int:
        return hash(name) % 4


@pytest.mark.parametrize("sent", [{"f": _shard_of}, {"f": _Table}])
def test_functions_and_methods_that_go_along_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, sent: dict[str, object]
) -> None:
    monkeypatch.setattr(hash_order, "is_seed_of_this_process", lambda _: False)
    assert len(note_on_hashes("f", sent, "7")) == 1


def _of_model(model: object, fits: dict[int, str]) -> str:
    return fits[id(model)]


@pytest.mark.parametrize(
    ("source", "sent", "is_said"),
    [
        ("fits[id(model)]", {}, True),
        ("of_model(m, {})", {"of_model": _of_model}, True),
        ("%time id(model)", {}, False),
        ("keep(m, {})", {"keep": copy._keep_alive}, False),  # type: ignore[attr-defined]
        ("Model()", {"Model": type("Model", (), {"keep": copy._keep_alive})}, False),  # type: ignore[attr-defined]
    ],
)
def test_a_cell_that_finds_something_by_its_id_says_so(source: str, sent: dict[str, object], is_said: bool) -> None:
    assert ["`id()` gives other numbers in each process" in note for note in note_on_ids(source, sent)] == [
        True
    ] * is_said
