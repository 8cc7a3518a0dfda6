"""The names of a notebook by value, as rows of text. Runs inside the kernel, by its path: it imports what is there.

Objects are numbered by where they are met first, so that it shows when two names are one object, and when two arrays
share memory.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import pickle
import re
import sys
import types
from collections import deque
from collections.abc import Iterator
from functools import partial
from operator import length_hint
from pathlib import Path, PurePath
from typing import Any
from weakref import WeakKeyDictionary

_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
_HIDDEN = {"In", "Out", "exit", "quit", "get_ipython", "open"}
_ATOMS = (type(None), bool, int, float, complex, type(Ellipsis), range, slice)
_ITERATORS = {type(iter(each)) for each in ([], (), "", "ä", range(0))}
#: what a class of a library leaves out of its own pickles (sklearn's Bunch)
_NOT_PICKLED = {"_deprecated_key_to_warnings"}
#: they know the whole kernel, or all of their library's machinery
_WIDGETS = {"asyncio", "sqlalchemy", "ipywidgets", "ipykernel", "traitlets", "comm", "IPython", "pydantic"}
#: ours, on a tensor that is on a GPU again in the next GPU cell
_MARK = "_gpu_release_device"
#: attributes that ours, and pydantic, put into classes of the notebook
_OF_LIBRARIES = ("__jgr", "__pydantic")
_ROWS_AT_MOST = 20_000
Row = tuple[str, str]


def write(shell: Any, path: str) -> None:
    """Describe the user's names, and what ``_`` is, into a file."""
    space = shell.user_ns
    names = sorted(name for name in space if not name.startswith("_") and name not in _HIDDEN)
    walk = Walk(space)
    found = {name: walk.rows(name, space[name]) for name in names}
    found["_"] = walk.rows("_", space.get("_", ""))
    Path(path).write_text(json.dumps(found))


def write_content(shell: Any, file: str, path: str) -> None:
    """Describe what is in a pickle, a joblib file or one of ``torch.save``."""
    try:
        rows = Walk(shell.user_ns).rows("content", _unpickled(Path(file)))
    except Exception as error:  # a file of another kind
        rows = [("content", f"{digest(Path(file).read_bytes())}, no pickle: {type(error).__name__}")]
    Path(path).write_text(json.dumps(rows))


def _unpickled(file: Path) -> Any:
    if file.suffix == ".joblib":
        import joblib

        return joblib.load(file)
    if file.read_bytes()[:2] == b"PK":
        import torch

        return torch.load(file, weights_only=False)
    return pickle.loads(file.read_bytes())


def digest(data: Any) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def class_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


class Walk:
    """Objects seen so far, and the memory of arrays."""

    def __init__(self, space: dict[str, Any]) -> None:
        self._space = space
        self._seen: dict[int, str] = {}
        self._memory: list[tuple[int, int, str]] = []
        self._alive: list[Any] = []
        self._count = 0

    def rows(self, place: str, value: Any) -> list[Row]:
        """What stands at ``place``; what cannot be looked at is named by its type."""
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(max(limit, 20_000))
        self._count = 0
        try:
            return list(self._of(place, value))
        except Exception as error:
            return [(place, f"{class_name(type(value))}: cannot be described: {type(error).__name__}: {error}")]
        finally:
            sys.setrecursionlimit(limit)

    def _of(self, place: str, value: Any) -> Iterator[Row]:
        self._count += 1
        if self._count > _ROWS_AT_MOST:
            return
        kind = type(value)
        if kind in _ATOMS:
            yield place, f"{kind.__name__} {value!r}"
        elif kind.__name__ == "RangeIndex":  # as immutable as a range
            yield place, repr(value)
        elif isinstance(value, PurePath):
            yield place, f"{kind.__name__} {value}"
        elif kind.__name__ == "UnavailableVariable":
            yield place, f"words in its place: {value!r}"
        elif kind in (str, bytes, bytearray):
            yield (
                place,
                f"{kind.__name__} {value!r}" if len(value) < 300 else f"{kind.__name__} {digest(repr(value).encode())}",
            )
        elif isinstance(value, types.ModuleType):
            yield place, f"module {value.__name__}"
        elif isinstance(value, type) and value.__module__ != "__main__":
            yield place, f"class {class_name(value)}"
        elif kind in (tuple, frozenset):
            yield place, f"{kind.__name__} of {len(value)}"
            yield from self._items(place, value)
        elif id(value) in self._seen:
            yield place, f"is {self._seen[id(value)]}"
        else:
            self._seen[id(value)] = place
            self._alive.append(value)
            yield from self._object(place, value, kind)

    def _items(self, place: str, values: Any) -> Iterator[Row]:
        for number, item in enumerate(values):
            yield from self._of(f"{place}[{number}]", item)

    def _object(self, place: str, value: Any, kind: type) -> Iterator[Row]:
        library = kind.__module__.partition(".")[0]
        if isinstance(value, dict) and kind.__module__ in ("builtins", "collections"):
            yield place, f"{kind.__name__} of {len(value)}"
            for number, (key, item) in enumerate(value.items()):
                yield from self._of(f"{place}.keys()[{number}]", key)
                yield from self._of(f"{place}[{key!r}]" if isinstance(key, str | int) else f"{place}[#{number}]", item)
        elif kind in (list, set, deque):
            yield place, f"{kind.__name__} of {len(value)}"
            yield from self._items(place, value)
        elif isinstance(value, type):
            yield from self._class(place, value)
        elif isinstance(value, types.FunctionType):
            yield from self._function(place, value)
        elif isinstance(value, staticmethod | classmethod):
            yield place, kind.__name__
            yield from self._of(f"{place}.__func__", value.__func__)
        elif isinstance(value, types.MethodType):
            yield place, f"method {value.__func__.__qualname__}"
            yield from self._of(f"{place}.__self__", value.__self__)
        elif isinstance(value, types.BuiltinFunctionType):
            yield place, f"builtin {value.__qualname__}"
        elif isinstance(value, partial):
            yield place, "partial"
            yield from self._items(place, (value.func, value.args, value.keywords))
        elif library in _WIDGETS:
            yield place, f"instance of {class_name(kind)}"
        elif kind in _ITERATORS and not length_hint(value):
            yield place, f"{kind.__name__} at its end"
        elif kind is WeakKeyDictionary:
            yield place, f"{kind.__name__} of {len(value)}"
        elif library == "numpy":
            yield from self._numpy(place, value, kind)
        elif library == "pandas":
            yield from self._pandas(place, value, kind)
        elif library == "polars" and hasattr(value, "serialize"):  # its pickles differ from time to time
            yield place, f"{class_name(kind)} {value.explain() if hasattr(value, 'explain') else value.to_dicts()}"
        elif library == "torch" and hasattr(value, "untyped_storage"):
            yield from self._tensor(place, value, kind)
        elif library == "torch" and hasattr(value, "_c") and hasattr(value, "state_dict"):  # of torch.jit
            yield place, f"a module of torch.jit {digest(value.code.encode())}"
            yield from self._of(f"{place}.state_dict()", value.state_dict())
        elif library == "matplotlib":
            yield from self._drawn(place, value, kind)
        elif isinstance(value, BaseException):
            yield place, f"exception {class_name(kind)}"
            yield from self._of(f"{place}.args", value.args)
            yield from self._of(f"{place}.__dict__", getattr(value, "__dict__", {}))
            yield from self._of(f"{place}.__cause__", value.__cause__)
        else:
            yield from self._reduced(place, value, kind)

    def _class(self, place: str, value: type) -> Iterator[Row]:
        yield place, f"class {class_name(value)}"
        if value.__module__ != "__main__":
            return
        yield from self._items(f"{place}.__bases__", value.__bases__)
        skipped = {"__dict__", "__weakref__", "__doc__", "__module__", "_abc_impl", "__slotnames__"}
        for name in sorted(name for name in vars(value) if name not in skipped and not name.startswith(_OF_LIBRARIES)):
            yield from self._of(f"{place}.{name}", vars(value)[name])

    def _function(self, place: str, value: Any) -> Iterator[Row]:
        if value.__module__ != "__main__":
            yield place, f"function {value.__module__}.{value.__qualname__}"
            return
        here = "" if value.__globals__ is self._space else ", not bound to this notebook"
        yield place, f"function {value.__qualname__} {self._code(value.__code__)}{here}"
        yield from self._of(f"{place}.__defaults__", value.__defaults__)
        yield from self._of(f"{place}.__kwdefaults__", value.__kwdefaults__)
        yield from self._of(f"{place}.__dict__", value.__dict__)
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            try:
                content = cell.cell_contents
            except ValueError:
                yield f"{place} closes over {name}", "nothing yet"
            else:
                yield from self._of(f"{place} closes over {name}", content)

    def _code(self, code: types.CodeType) -> str:
        consts = [self._code(item) if isinstance(item, types.CodeType) else repr(item) for item in code.co_consts]
        return digest(repr((code.co_code, code.co_names, code.co_varnames, sorted(consts))).encode())

    def _shared(self, place: str, low: int, high: int) -> str:
        """Whose memory it is; arrays without elements have none."""
        if high <= low:
            return ""
        for begin, end, whose in self._memory:
            if low < end and begin < high:
                return f", in the memory of {whose}"
        self._memory.append((low, high, place))
        return ""

    def _numpy(self, place: str, value: Any, kind: type) -> Iterator[Row]:
        import numpy as np

        if value is np.random.mtrand._rand:  # its state is no name's, and imports may draw from it
            yield place, "numpy's own generator"
        elif isinstance(value, np.ndarray):
            shared = self._shared(place, *np.lib.array_utils.byte_bounds(value))
            flags = "" if value.flags.writeable else ", read-only"
            yield place, f"{class_name(kind)} {value.dtype} {value.shape}{flags}{shared}"
            if value.dtype.hasobject:
                yield from self._items(place, value.ravel().tolist())
            elif np.ma.isMaskedArray(value):
                yield from self._items(place, (value.filled().tobytes(), np.ma.getmaskarray(value).tobytes()))
            else:
                yield f"{place} (elements)", f"{digest(value.tobytes())} {value.ravel()[:8].tolist()}"
        elif isinstance(value, np.generic):
            yield place, f"{class_name(kind)} {value!r}"
        elif isinstance(value, np.random.Generator):
            yield place, class_name(kind)
            yield from self._of(f"{place}.state", value.bit_generator.state)
        else:
            yield from self._reduced(place, value, kind)

    def _pandas(self, place: str, value: Any, kind: type) -> Iterator[Row]:
        import pandas as pd

        if isinstance(value, pd.DataFrame):
            yield place, f"{class_name(kind)} {value.shape}"
            yield from self._of(f"{place}.attrs", value.attrs)
            yield from self._of(f"{place}.index", value.index)
            yield from self._of(f"{place}.columns", value.columns)
            for number in range(value.shape[1]):
                yield from self._column(f"{place}.iloc[:, {number}]", value.iloc[:, number].array)
        elif isinstance(value, pd.Series | pd.Index):
            yield place, f"{class_name(kind)} {value.dtype} {value.shape} {value.name!r}"
            if isinstance(value, pd.Series):
                yield from self._of(f"{place}.index", value.index)
            yield from self._column(place, value.array)
        elif hasattr(value, "__array__"):
            yield from self._column(place, value)
        else:
            yield from self._reduced(place, value, kind)

    def _column(self, place: str, array: Any) -> Iterator[Row]:
        yield f"{place} (column)", f"{array.dtype}"
        plain = array.to_numpy() if hasattr(array, "to_numpy") else list(array)
        if getattr(plain, "dtype", None) is not None and not plain.dtype.hasobject:
            yield f"{place} (elements)", f"{digest(plain.tobytes())} {plain.ravel()[:8].tolist()}"
        else:
            yield from self._items(place, list(plain))

    def _tensor(self, place: str, value: Any, kind: type) -> Iterator[Row]:
        plain = value.detach().cpu()
        whole = value.untyped_storage()
        shared = self._shared(place, whole.data_ptr(), whole.data_ptr() + whole.nbytes())
        facts = f"{value.dtype} {tuple(value.shape)} {value.device}"
        graph = ", in a graph" if value.grad_fn is not None else ""
        yield place, f"{class_name(kind)} {facts} grad={value.requires_grad}{graph}{shared}"
        yield f"{place} (elements)", f"{digest(repr(plain.tolist()).encode())} {plain.flatten()[:8].tolist()}"
        if value.is_leaf and value.grad is not None:
            yield from self._of(f"{place}.grad", value.grad)
        attributes = {name: each for name, each in vars(value).items() if name != _MARK}
        yield from self._of(f"{place}.__dict__", attributes)

    def _drawn(self, place: str, value: Any, kind: type) -> Iterator[Row]:
        yield place, class_name(kind)
        if hasattr(value, "savefig"):
            import io

            file = io.BytesIO()
            value.savefig(file, format="png", metadata={"Software": None})
            yield f"{place} (picture)", digest(file.getvalue())
        if hasattr(value, "get_xydata"):
            yield f"{place} (points)", digest(value.get_xydata().tobytes())
        if getattr(value, "figure", None) is not None and not hasattr(value, "savefig"):
            yield from self._of(f"{place}.figure", value.figure)

    def _reduced(self, place: str, value: Any, kind: type) -> Iterator[Row]:
        """An object by what it would be pickled as."""
        yield place, f"instance of {class_name(kind)}"
        try:
            parts = value.__reduce_ex__(4)
        except Exception:  # it stays where it is: a pool, a generator, an open file
            if kind.__module__ == "__main__":
                yield from self._of(f"{place}.__dict__", getattr(value, "__dict__", {}))
            else:
                yield f"{place} (text)", _ADDRESS.sub("0x…", repr(value))[:300]
            return
        if isinstance(parts, str):
            yield f"{place} (global)", parts
            return
        _, arguments, *rest = parts
        if kind is itertools.islice and arguments[1:] in ((0,), (0, 0, 1)):  # nothing left, before and after a pickle
            yield f"{place} (state)", "exhausted"
            return
        yield from self._items(f"{place}(…)", arguments)
        state, items, pairs = [*rest, None, None, None][:3]
        if state is not None:
            yield from self._state(place, state)
        if items is not None:
            yield from self._items(place, items)
        for number, (key, item) in enumerate(pairs or ()):
            yield from self._of(f"{place}.keys()[{number}]", key)
            yield from self._of(f"{place}[{key!r}]", item)

    def _state(self, place: str, state: Any) -> Iterator[Row]:
        if not isinstance(state, dict):  # of a class of C, which makes it to be pickled
            rows = list(Walk(self._space)._of("", state))
            yield f"{place} (state)", digest(repr(rows).encode())
            return
        for name, item in state.items():
            if name not in _NOT_PICKLED:
                yield from self._of(f"{place}.{name}", item)
