"""The word on sets whose order a GPU cell does not have."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from jupyter_gpu_release.kernel.runs import hash_order
from jupyter_gpu_release.kernel.runs.hash_order import note_on_hashes
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
