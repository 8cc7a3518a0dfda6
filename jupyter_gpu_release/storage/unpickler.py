"""The fast reader: C unpickler, with the receiver's own answers for what depends on the receiver."""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any

from .rebuild import RECEIVERS, Rebuilder


class GraphUnpickler(pickle.Unpickler):
    """Several pickles with one memo; ``load`` is called once for each."""

    def __init__(self, file: io.BytesIO, rebuilder: Rebuilder, buffers: Sequence[Any]) -> None:
        super().__init__(file, buffers=writable(buffers))
        self._rebuilder = rebuilder

    def find_class(self, module: str, name: str) -> Any:
        """A global of the stream."""
        mine = RECEIVERS.get((module, name))
        return self._rebuilder.lookup(mine) if mine else super().find_class(module, name)

    def persistent_load(self, number: int) -> Any:
        """An object that the stream refers to."""
        return self._rebuilder.referred(number)


def writable(buffers: Sequence[Any]) -> list[Any]:
    """Objects built over the buffers must be writable, as they were."""
    return [bytearray(buffer) if isinstance(buffer, bytes) else buffer for buffer in buffers]
