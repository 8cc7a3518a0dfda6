"""A published value: from its event, or from the file that the event names."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ..errors import ForbiddenError, StoreError
from ..protocol.cell import Graph
from ..protocol.events import Publication
from ..protocol.wire import decode
from ..serialization import codec
from ..serialization.rebuild import NamespaceInfo
from ..store.layout import RunPaths


class ReplacedError(Exception):
    """The file belongs to a newer publication already, whose event is on its way."""


def value_of(found: Publication, run: str, realm: NamespaceInfo, find_store: Callable[[], Path]) -> Any:
    """The published value.

    Raises :class:`ReplacedError`, :class:`ForbiddenError` for one that is withheld, or :class:`StoreError` where the
    file cannot be read.
    """
    if found.withheld:
        raise ForbiddenError(f"`{found.name}` of run {run} is not loaded: {found.withheld}")
    graph = found.graph
    if found.file:
        graph = _read(found, run, find_store())
    if graph is None:
        return found.value
    return codec.load(graph.stream, [bytearray(buffer) for buffer in graph.buffers], realm).values[found.name]


def _read(found: Publication, run: str, store: Path) -> Graph:
    if Path(found.file).name != found.file:
        raise StoreError(f"{found.file!r} is no file name of a run folder")
    path = RunPaths.of(store, run).published / found.file
    try:
        body = path.read_bytes()
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    if hashlib.blake2b(body, digest_size=16).hexdigest() != found.digest:
        raise ReplacedError(found.name)
    try:
        graph: Graph = decode(body, Graph)
    except msgspec.MsgspecError as error:
        raise StoreError(f"{path} is damaged: {error}") from error
    return graph
