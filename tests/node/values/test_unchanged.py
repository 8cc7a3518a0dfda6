"""What a cell leaves alone does not count as changed, whatever addresses its parts have for the moment."""

from __future__ import annotations

import copy
import random
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from soak import sized

from jupyter_gpu_release.exchange.verdicts import Numbering, compare
from jupyter_gpu_release.node.values.namespace import RankValues
from jupyter_gpu_release.protocol.cell import CellPayload
from jupyter_gpu_release.serialization import codec
from jupyter_gpu_release.serialization.hashing.fingerprints import FingerprintReader
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo
from jupyter_gpu_release.unpickling import Trust

torch = pytest.importorskip("torch")
VALUES = Path(__file__).parents[2] / "harness" / "random_values.py"
#: of 20 values each
_ROUNDS = sized(5, 5000)


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The notebook's module, in which the classes of ``random_values`` are defined."""
    module = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    exec(compile(VALUES.read_text(), "<cell>", "exec", flags=0, dont_inherit=True), vars(module))
    return vars(module)


def there_and_back(main: dict[str, Any], values: dict[str, Any]) -> tuple[list[str], list[Any]]:
    """Names and parts that come home from a cell that does nothing with ``values``."""
    sent = codec.dump(values, NamespaceInfo(main, at_home=True), follow=lambda _name: {})
    assert not sent.failed
    space: dict[str, Any] = {"__builtins__": __builtins__}
    rank = RankValues(space, CellPayload(source=""), sent.stream, [bytes(each) for each in sent.buffers], has_gpu=False)
    rank.load()
    junk = [[type(value), str(number)] for number, value in enumerate(space.values())]
    del junk[::2]
    collected = rank.collect()
    home = codec.load(collected.stream, collected.buffers, NamespaceInfo(main, at_home=True), trust=Trust.OWN)
    assert (collected.results, collected.notes) == ([], [])
    return list(home.values), list(home.facts["same"][1])


@pytest.mark.soak
@pytest.mark.timeout(sized(240, 7200))
def test_random_values_stay_where_they_are(main: dict[str, Any]) -> None:
    for seed in range(_ROUNDS):
        draw = random.Random(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values = {f"v{number}": main["random_value"](draw) for number in range(20)}
            assert there_and_back(main, values) == ([], []), seed


def test_of_each_kind_nothing_comes_home(main: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values = {f"v{number}": kind(9) for number, kind in enumerate(main["KINDS"].values())}
        assert there_and_back(main, values) == ([], [])


class Stateful:
    """Its state is made anew for each that asks."""

    def __getstate__(self) -> dict[str, Any]:
        return {"a": [1], "b": [[2]]}


def reader_of(*things: Any) -> FingerprintReader:
    """A reader for which these have arrived from the notebook."""
    arrived = dict(enumerate(things))
    realm = NamespaceInfo({}, at_home=False)
    return FingerprintReader(realm, [], large=False, numbering=Numbering(arrived.items(), arrived.__getitem__))


@pytest.mark.parametrize("make", [lambda n: torch.randn(100 + n), lambda n: Stateful(), lambda n: {"x": Stateful()}])
def test_what_taking_apart_makes_for_the_moment_is_no_part(make: Any) -> None:
    values = [make(number) for number in range(300)]
    before = [reader_of(*values).read_fingerprint(value) for value in values]
    reader = reader_of(*values)
    assert [reader.is_same(*each) for each in zip(before, values, strict=True)] == [True] * 300


def test_a_part_that_took_the_place_of_its_equal_counts() -> None:
    value: dict[str, Any] = {"log": [1], "state": Stateful(), "array": np.arange(4)}
    arrived = value, value["log"], value["array"]
    reader = reader_of(*arrived)
    before = reader.read_fingerprint(value)
    assert before is not None
    assert reader.is_same(before, value)
    for name in ("log", "array"):
        value[name] = copy.copy(value[name])
        assert not reader.is_same(before, value)
        compared = reader.compare(before, value)
        assert compared is not None
        assert compare([compared.before], [compared.after]).changed == {0}
        value[name] = arrived[1 if name == "log" else 2]
    assert reader.is_same(before, value)


def test_a_digest_is_not_read_from_memory_that_was_another_ones() -> None:
    """Small views of large memory are copied for it, at an address that the next copy may get."""
    realm = NamespaceInfo({}, at_home=False)
    large = torch.arange(400_000.0)
    views = [large[number * 1000 : number * 1000 + 500] for number in range(300)]
    reader = FingerprintReader(realm, [], large=False)
    digests = {reader.read_fingerprint(view).buffers[0].digest for view in views}  # type: ignore[union-attr]
    assert len(digests) == len(views)


@pytest.mark.parametrize(
    "value",
    [
        np.zeros(10),
        np.zeros(1000),
        np.zeros(1000)[2:],
        torch.zeros(10),
        torch.zeros(1000)[3:],
        torch.nn.Linear(30, 30),
        pd.Index([1, 2]),
        np.ma.masked_array([1.0, 2], [0, 1]),
        np.random.default_rng(0),
        Stateful(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_we_hold_ourselves_while_writing_is_not_held_by_others(value: Any) -> None:
    values = {"box": {"value": [value]}}
    sent = codec.dump(values, NamespaceInfo({}, at_home=True), follow=lambda _name: {})
    home = codec.load(
        sent.stream, [bytes(each) for each in sent.buffers], NamespaceInfo({}, at_home=True), trust=Trust.OWN
    )
    by_number = dict(sent.memo.values())
    assert [by_number[number] for number in home.facts.get("held", ()) if by_number[number] is not value] == []
