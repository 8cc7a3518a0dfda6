"""Random values of many kinds, as cells hold them: nested, shared, seen through views."""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime
import decimal
import enum
import functools
import io
import itertools
import operator
import pathlib
import random
import re
import types
import uuid
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.linear_model import LinearRegression
from torch import nn


class Thing:
    def __init__(self, **parts: Any) -> None:
        self.log: list[Any] = []
        vars(self).update(parts)

    def hit(self) -> None:
        self.log.append(1)


class Slotted:
    __slots__ = ("first", "second")


class Stateful:
    """Its state is made anew for each that asks."""

    def __init__(self, value: Any) -> None:
        self.value, self.cache = value, [0]

    def __getstate__(self) -> dict[str, Any]:
        return {"value": self.value, "more": [self.value, {"x": [1.5]}]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.value, self.cache = state["value"], [0]


class Reduced:
    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __reduce__(self) -> Any:
        return Reduced, (list(self.arguments), {"key": [2.5]})


@dataclasses.dataclass
class Data:
    x: Any
    y: list[Any] = dataclasses.field(default_factory=list)


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


Pair = collections.namedtuple("Pair", "a b")


def counter(seen: list[Any]) -> Callable[[], int]:
    count = 0

    def step() -> int:
        nonlocal count
        count += 1
        seen.append(count)
        return count

    return step


def cached(key: Any) -> Any:
    @functools.lru_cache
    def find(number: int) -> list[Any]:
        return [number, key]

    find(1), find(2)
    return find


def read_only(made: Any) -> Any:
    view = made.view()
    view.flags.writeable = False
    return view


def optimizer(steps: int) -> Any:
    model = nn.Linear(3, 2)
    found = (torch.optim.SGD if steps % 2 else torch.optim.Adam)(model.parameters(), lr=0.1)
    model(torch.randn(4, 3)).sum().backward()
    found.step()
    return model, found


def frame(rows: int) -> pd.DataFrame:
    return pd.DataFrame({"a": np.random.rand(rows), "b": ["x"] * rows, "c": range(rows)})


KINDS: dict[str, Callable[[int], Any]] = {
    "tensor": torch.randn,
    "transposed tensor": lambda n: torch.randn(n, 3).t(),
    "small view of a tensor": lambda n: torch.randn(200)[n : n + 5],
    "small view of a large tensor": lambda n: torch.randn(300_000)[n : n + 5],
    "conjugate": lambda n: torch.zeros(n, dtype=torch.complex64).conj(),
    "parameter": lambda n: nn.Parameter(torch.randn(n)),
    "sparse": lambda n: torch.arange(n).to_sparse(),
    "with a gradient": lambda n: torch.randn(n, requires_grad=True) * 2,
    "quantised": lambda n: torch.quantize_per_tensor(torch.randn(n), 0.1, 0, torch.quint8),
    "array of a tensor": lambda n: torch.randn(n).numpy(),
    "tensor of an array": lambda n: torch.from_numpy(np.random.rand(n)),
    "array": np.random.rand,
    "column": lambda n: np.random.rand(n, 4)[:, 1],
    "reversed": lambda n: np.random.rand(200)[::-1],
    "small view of an array": lambda n: np.random.rand(50_000)[n : n + 7],
    "dates": lambda n: np.arange(n).astype("M8[s]"),
    "objects": lambda n: np.array([{"a": n}, [2]], dtype=object),
    "masked": lambda n: np.ma.masked_array([1.0, 2, n], [0, 1, 0]),
    "records": lambda n: np.zeros(n, dtype=[("a", "i4"), ("b", "f8")]),
    "read-only": lambda n: read_only(np.random.rand(n)),
    "read-only columns": lambda n: read_only(np.random.rand(n, 5)[:, 2:4]),
    "over bytes": lambda n: np.frombuffer(bytes(n), "u1"),
    "matrix": lambda n: np.matrix([[1, n]]),
    "frame": frame,
    "columns of a frame": lambda n: frame(n)[["a", "c"]],
    "values of a frame": lambda n: frame(n)[["a", "c"]].values,
    "series": lambda n: pd.Series(range(n), name="s"),
    "categories": lambda n: pd.DataFrame({"a": pd.Categorical(["u", "v"]), "t": pd.date_range("2020", periods=2)}),
    "index": lambda n: pd.Index(np.arange(n)),
    "index of several levels": lambda n: pd.MultiIndex.from_product([[1, n], ["a", "b"]]),
    "groups": lambda n: frame(n).groupby("c"),
    "module": lambda n: nn.Linear(n, 2),
    "modules": lambda n: nn.Sequential(nn.Linear(n, 3), nn.BatchNorm1d(3), nn.ReLU()),
    "recurrent": lambda n: nn.LSTM(2, 3),
    "optimizer": optimizer,
    "scheduler": lambda n: torch.optim.lr_scheduler.StepLR(optimizer(n)[1], 3),
    "data": lambda n: torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(n, 2))),
    "estimator": lambda n: LinearRegression().fit(np.random.rand(9, 2), np.random.rand(9)),
    "random": random.Random,
    "random of numpy": np.random.default_rng,
    "random of torch": lambda n: torch.Generator().manual_seed(n),
    "bytes": bytearray,
    "array of the standard library": lambda n: array.array("d", [1.5] * n),
    "view of bytes": lambda n: memoryview(bytearray(n)),
    "file in memory": lambda n: io.BytesIO(b"abc" * n),
    "pattern": lambda n: re.compile("a" * n),
    "atoms": lambda n: (decimal.Decimal(n), datetime.date(2020, 1, 1), uuid.uuid4(), pathlib.Path("a") / str(n), None),
    "texts": lambda n: {f"key {place}": str(place) for place in range(n)},
    "set": lambda n: {f"element {place}" for place in range(n)},
    "set of tuples": lambda n: {(place, str(place)) for place in range(n)},
    "counter": lambda n: collections.Counter("abca" * n),
    "ordered": lambda n: collections.OrderedDict(a=[n], b={}),
    "chain": lambda n: collections.ChainMap({"a": n}, {}),
    "sentinel": lambda n: object(),
    "iterators": lambda n: [iter([1, 2, n]), itertools.count(n)],
    "closure": lambda n: counter([1, n]),
    "cached function": cached,
    "default": lambda n: lambda seen=[n]: seen,
    "method": lambda n: Thing(n=n).hit,
    "partial": lambda n: functools.partial(print, [n]),
    "getter": operator.itemgetter,
    "proxy": lambda n: types.MappingProxyType({"a": [n]}),
    "state made anew": Stateful,
    "arguments made anew": lambda n: Reduced(n, [n]),
    "member": lambda n: Colour.RED,
    "pair": lambda n: Pair(n, [n]),
    "error": lambda n: ValueError("x", [n]),
}


def random_value(draw: random.Random, depth: int = 3) -> Any:
    """A value of one of :data:`KINDS`, or a container of some."""
    if not depth or draw.random() < 0.4:
        return KINDS[draw.choice(list(KINDS))](draw.randrange(1, 80))
    parts = [random_value(draw, depth - 1) for _ in range(draw.randrange(1, 4))]
    if draw.random() < 0.3:
        parts.append(parts[0])
    return draw.choice(_CONTAINERS)(parts)


def _slotted(parts: list[Any]) -> Slotted:
    made = Slotted()
    made.first = parts
    return made


_CONTAINERS: list[Callable[[list[Any]], Any]] = [
    list,
    tuple,
    _slotted,
    lambda parts: dict(enumerate(parts)),
    lambda parts: {str(place): part for place, part in enumerate(parts)},
    lambda parts: Thing(parts=parts, first=parts[0]),
    lambda parts: collections.deque(parts, 9),
    lambda parts: Data(parts[0], parts),
    lambda parts: types.SimpleNamespace(first=parts[0]),
    counter,
    lambda parts: functools.partial(counter, *parts),
    Stateful,
    lambda parts: Reduced(*parts),
    lambda parts: collections.defaultdict(list, parts=parts),
    lambda parts: Pair(parts, 1),
]
