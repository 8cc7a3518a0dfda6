"""The graph key: equal values have equal keys in every process, others have others."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from optional_libraries import skip_without

from jupyter_gpu_release.serialization.hashing.canonical import UnkeyableError
from jupyter_gpu_release.serialization.hashing.value_hash import graph_key
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo

_WORKER = """
import builtins, sys, json
builtins.inf = float("inf")
from jupyter_gpu_release.serialization.hashing.value_hash import graph_key
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo
for line in sys.stdin:
    space = {"__name__": "__main__"}
    exec(json.loads(line), space)
    names = {k: v for k, v in space.items() if not k.startswith("__")}
    print(graph_key(names, NamespaceInfo(space, at_home=True)).digest, flush=True)
"""


def key_of_names(code: str) -> str:
    """The key of all names that code makes, in this process and with its hash seed."""
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(code, "<string>", "exec", dont_inherit=True), space)
    names = {name: value for name, value in space.items() if not name.startswith("__")}
    return graph_key(names, NamespaceInfo(space, at_home=True)).digest


class Elsewhere:
    """A process with another hash seed that does the same."""

    def __init__(self, seed: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )

    def key(self, code: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(code) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait(30)


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Elsewhere]:
    made = Elsewhere("4711")
    yield made
    made.close()


_atoms = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
_keys = st.text() | st.integers() | st.tuples(st.text(), st.integers())
_values = st.recursive(
    _atoms | st.sets(_keys) | st.frozensets(_keys),
    lambda inner: st.lists(inner) | st.dictionaries(_keys, inner) | st.tuples(inner, inner),
    max_leaves=20,
)


@settings(max_examples=75, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(value=_values)
def test_equal_values_have_one_key_whatever_the_hash_seed(elsewhere: Elsewhere, value: Any) -> None:
    here = key(x=value)
    assert len(here) == 64
    # as a pickle: a literal would make one object of equal tuples, and what is shared counts
    code = f"import pickle; x = pickle.loads({pickle.dumps(value)!r}); del pickle"
    assert elsewhere.key(code) == here


@settings(max_examples=150)
@given(one=_values, other=_values)
def test_different_values_have_different_keys(one: Any, other: Any) -> None:
    same = repr_of(one) == repr_of(other)
    assert (key(x=one) == key(x=other)) is same


def repr_of(value: Any) -> Any:
    """What tells values apart, types and the order of dicts too."""
    if isinstance(value, (set, frozenset)):
        return type(value), frozenset(map(repr, value))
    if isinstance(value, dict):
        return dict, [(repr_of(name), repr_of(item)) for name, item in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value), [repr_of(item) for item in value]
    return type(value), repr(value)


def key(**values: Any) -> str:
    return graph_key(values, NamespaceInfo({}, at_home=True)).digest


LIBRARIES = """
import numpy as np, pandas as pd, torch, random, collections, datetime, dataclasses, enum, functools
from pathlib import Path
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
optimiser = torch.optim.Adam(net.parameters())
net(torch.ones(1, 4)).sum().backward()
optimiser.step()
schedule = torch.optim.lr_scheduler.StepLR(optimiser, 1)
array = np.arange(2000.0)
view, fortran = array[:1500], np.asfortranarray(np.ones((3, 4)))
objects = np.array(["a", None, {"q", "r"}], dtype=object)
frame = pd.DataFrame({"a": [1, 2], "s": ["x", None], "c": pd.Categorical(["p", "q"])})
series = pd.Series(pd.to_datetime(["2020", "2021"]).tz_localize("UTC"), name="t")
state, generator, rng = np.random.RandomState(0), np.random.default_rng(1), random.Random(2)
counted = collections.Counter("hello")
rate = 2
class Shape(enum.Enum):
    ROUND = 1
class Net:
    kinds = {"a", "b", "c"}
    def run(self): return helper(self)
def helper(x):
    # what it is for
    return x in {"one", "two", "three"} and rate
@functools.lru_cache(maxsize=3)
def cached(x): return x
def counter():
    n = [0]
    def add(): n[0] += 1
    return add
add, instance, moment = counter(), Net(), datetime.datetime(2020, 1, 1)
"""


@pytest.mark.slow("a process that imports each library")
def test_libraries_functions_and_classes(elsewhere: Elsewhere) -> None:
    skip_without(LIBRARIES)
    known = key_of_names(LIBRARIES)
    assert len(known) == 64
    assert elsewhere.key(LIBRARIES) == known
    assert elsewhere.key(LIBRARIES.replace("# what it is for", "\n\n    # another comment")) == known
    for old, new in (
        ("np.arange(2000.0)", "np.arange(2000.0) + 1e-12"),
        ("torch.manual_seed(0)", "torch.manual_seed(1)"),
        ('"s": ["x", None]', '"s": ["x", "y"]'),
        ("RandomState(0)", "RandomState(1)"),
        ("and rate", "or rate"),
        ('"two"', '"2"'),
        ("n = [0]", "n = [1]"),
        ("maxsize=3", "maxsize=4"),
        ("ROUND = 1", "ROUND = 2"),
        ("np.asfortranarray(np.ones((3, 4)))", "np.ones((3, 4))"),
    ):
        assert elsewhere.key(LIBRARIES.replace(old, new)) != known, old


def test_what_is_shared_matters() -> None:
    part = [1]
    assert key(x=[part, part]) != key(x=[[1], [1]])
    assert key(a=part, b=part) != key(a=[1], b=[1])
    array = np.zeros(4000)
    assert key(a=array, v=array[:3000]) != key(a=array, v=array[:3000].copy())
    loop: list[Any] = []
    loop.append(loop)
    assert key(x=loop) == key(x=loop)
    text = "".join(["a", "b"])
    assert key(x=["ab", text]) == key(x=["ab", "ab"])  # which of two equal texts it is, nobody can tell


def test_names_and_types_matter() -> None:
    assert len({key(x=1), key(x=True), key(x=1.0), key(y=1), key(x="1"), key(x=b"1"), key(x=[1]), key(x=(1,))}) == 8
    assert key(x=0.0) != key(x=-0.0)
    assert key(x={"a": 1, "b": 2}) != key(x={"b": 2, "a": 1})  # a cell sees the order


def test_what_has_no_digest_is_named() -> None:
    with open(os.devnull) as file:
        for value in (threading.Lock(), (n for n in ()), file):
            with pytest.raises(UnkeyableError, match="`thing`: "):
                key(thing=[value])


def test_what_is_too_deep_is_named() -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(UnkeyableError, match="nested too deeply"):
        key(x=deep)


def test_defaults_of_a_function_matter() -> None:
    def made(arguments: str) -> str:
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(f"def f({arguments}): return 1", names)
        return key(f=names["f"])

    assert len({made(f"a{rest}") for rest in ("", "=1", "=2", ", *, b", ", *, b=1", ", *, b=2", ": int = 2")}) == 7


@pytest.mark.parametrize(
    ("code", "old", "new"),
    [
        ("def f():\n    def inner(): return 1\n    return inner", "return 1", "return 2"),
        ("f = lambda x: [each * 2 for each in x]", "* 2", "+ 2"),
        ("def make(n):\n    return lambda: n\nf = make(1)", "make(1)", "make(2)"),
        ("class A: pass\nclass B: pass\nclass f(A): pass", "f(A)", "f(B)"),
        ("class f:\n    a = 1\n    b = 2", "a = 1\n    b = 2", "b = 2\n    a = 1"),
        ("class Plain: pass\nf = Plain()\nf.x = 1", "f.x = 1", "f.x = 2"),
        ("class Many(list): pass\nf = Many([1])", "[1]", "[2]"),
        ("class Named(dict): pass\nf = Named(a=1)", "a=1", "b=1"),
        ("f = ['ab', 'c']", "'ab', 'c'", "'a', 'bc'"),
        ("inner = frozenset([1])\nf = [{inner}, {inner, 2}]", "2}", "3}"),
    ],
)
def test_all_that_a_thing_is_made_of_matters(code: str, old: str, new: str) -> None:
    assert key_of_names(code) == key_of_names(code)
    assert key_of_names(code) != key_of_names(code.replace(old, new))
