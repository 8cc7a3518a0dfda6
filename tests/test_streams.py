"""Pickles that we write name our code by its public names and by ``streams``, never by where it lives today."""

from __future__ import annotations

import collections
import subprocess
import sys
import types
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stream_names import paths_of_ours

import jupyter_gpu_release
from jupyter_gpu_release import errors, streams
from jupyter_gpu_release.client.results import Results
from jupyter_gpu_release.protocol.runs import ValueInfo
from jupyter_gpu_release.serialization import codec
from jupyter_gpu_release.serialization.process_state import library_settings
from jupyter_gpu_release.serialization.rebuild import NamespaceInfo
from jupyter_gpu_release.serialization.sharing.references import KnownInputs

_NOTEBOOK = """
import abc, dataclasses, enum, functools, typing
class Base(abc.ABC):
    __slots__ = ("x",)
class Child(Base): ...
class Colour(enum.Enum):
    RED = 1
class Pair(typing.NamedTuple):
    a: int
def counter(start):
    def step():
        nonlocal start
        start += 1
        return start
    return step
step = counter(3)
cached = functools.lru_cache(maxsize=3)(counter)
class Lazy:
    @functools.cached_property
    def value(self):
        return 1
"""


def notebook() -> dict[str, Any]:
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(_NOTEBOOK, space)
    return {name: value for name, value in space.items() if not name.startswith("__")}


def _failed(kind: type[Exception], *arguments: Any) -> Exception:
    error = kind(*arguments)
    error.__cause__ = ValueError("why")
    return error


def samples(folder: Path) -> dict[str, Any]:
    """Values of all the kinds for which we have a way of our own, without the large libraries."""
    array = np.arange(1000.0)
    mapped = np.memmap(folder / "mapped", "f8", "w+", shape=(100,))
    owner = collections.UserList([1])
    ours = jupyter_gpu_release
    made = {
        "array": array,
        "view": array[10:900],
        "mapped": mapped,
        "part": mapped[3:],
        "dates": array.astype("M8[s]"),
        "masked": np.ma.masked_array(array, array > 3),
        "owner": owner,
        "weak": weakref.ref(owner),
        "gone": weakref.ref(collections.UserList()),
        "stdout": sys.stdout,
        "module": types,
        "error": _failed(OSError, 2, "x"),
        "ours": errors.StoreError("text", hint="hint"),
        "missing": errors.MissingHereError("text"),
        "launch": ours.launch,
        "gpu": ours.gpu,
        "track": ours.track,
        "ranks": ours.ranks,
        "load": ours.load,
        "decorator": ours.gpu(gpus=1),
        "barrier": ours.ranks.barrier,
        "results": Results("r", "succeeded", {"x": 1}, [ValueInfo("x", "int", 1)]),
        "settings": library_settings.capture_settings(),
    }
    made["on_gpu"] = ours.gpu(lambda: 1)
    return made


def test_streams_name_no_place_of_our_code(tmp_path: Path) -> None:
    space = notebook()
    values = {**space, **samples(tmp_path)}
    known = KnownInputs({id(values["array"]): "array"}, [values["array"]])
    values["again"] = [values["array"], values["array"][5:]]
    dump = codec.dump(values, NamespaceInfo(space, at_home=True), known=known)
    assert dump.failed == {}
    assert paths_of_ours(dump.stream) == set()
    assert streams.__name__.encode() in dump.stream


def test_each_name_is_found() -> None:
    found = {name: getattr(streams, name) for name in streams._HOMES if name != "ranks"}
    assert {(thing.__module__, thing.__qualname__) for thing in found.values()} == {
        (streams.__name__, name) for name in found
    }


def test_a_fresh_process_finds_what_it_has_not_imported() -> None:
    code = "import pickle, sys; f = pickle.loads(sys.stdin.buffer.read()); print(f.__name__, 'numpy' in sys.modules)"
    pickled = b"cjupyter_gpu_release.streams\nrebuild_view\n."
    done = subprocess.run([sys.executable, "-c", code], input=pickled, capture_output=True, check=True)
    assert done.stdout == b"rebuild_view True\n"


def test_there_is_no_other_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'rebuild_everything'"):
        _ = streams.rebuild_everything
