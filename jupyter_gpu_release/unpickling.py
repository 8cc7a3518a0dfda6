"""The one place where bytes become objects. That runs code, so each caller says why the bytes may be trusted.

``tests/test_unpickling.py`` finds whatever else unpickles, and who says which of these.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any, BinaryIO


class Trust(Enum):
    """The reason why bytes may become objects in this process: whose they are, and what has decided that."""

    #: this process wrote them, or has them from inside of objects that it has read already
    OWN = "own"
    #: a rank is a process of the user whose cell it runs: its order, its fellow ranks and its saves are of this user
    RANK = "rank"
    #: the gateway gave them: those of a run only to the run's owner (``Act.LOAD``)
    GATEWAY = "gateway"
    #: a file that only this user can have written, or of which a gateway has told the digest (``client/loading.py``)
    STORE = "store"


def loads(data: bytes | memoryview, trust: Trust) -> Any:
    """The object of one plain pickle; raises whatever its classes do."""
    _check(trust)
    return pickle.loads(data)


class Unpickler(pickle.Unpickler):
    """Python's unpickler in C. ``buffers``: those that its stream has out of band."""

    def __init__(self, file: BinaryIO, trust: Trust, buffers: Iterable[Any] | None = None) -> None:
        _check(trust)
        super().__init__(file, buffers=buffers)


if TYPE_CHECKING:
    _PythonUnpickler = Any
else:
    _PythonUnpickler = pickle._Unpickler


class SteppedUnpickler(_PythonUnpickler):
    """Python's unpickler in Python, for those that do something else than it at some of the opcodes."""

    def __init__(self, file: BinaryIO, trust: Trust, buffers: Iterable[Any] | None = None) -> None:
        _check(trust)
        super().__init__(file, buffers=buffers)


def _check(trust: Trust) -> None:
    """Refuse what is no verdict, also where no type checker looks."""
    if type(trust) is not Trust:
        raise TypeError(f"nobody says whose bytes these are: {trust!r}")
