"""``gpu_release.published``: the latest value that a running cell has published: its event's, or of a file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ..cell_api import context
from ..errors import ForbiddenError, GatewayUnavailableError, NoSuchRunError, NothingPublishedError, StoreError
from ..protocol.cell import Graph
from ..protocol.events import Publication, publication_of
from ..protocol.states import is_run_id
from ..protocol.wire import decode
from ..serialization import codec
from ..serialization.rebuild import NamespaceInfo
from ..store.layout import RunPaths
from ..unpickling import Trust
from .loading import execution_context, store_of
from .rest import GatewayClient

_ATTEMPTS = 20
#: run → (number of the last event read, name → latest), so that asking again costs only what is new
_read_so_far: dict[str, tuple[int, dict[str, Publication]]] = {}


def latest_published(name: str, run: str | None) -> Any:
    """The latest value of ``name``: what this notebook has heard, else (with ``run``) what the gateway has recorded."""
    around = execution_context()
    known = around.published(name, run)
    if known is not None:
        return known[0]
    if run is None:
        raise NothingPublishedError(
            f"no run of this notebook has published `{name}` yet", hint=f"name the run: published({name!r}, run=…)"
        )
    if not is_run_id(run):
        raise NoSuchRunError(f"{run!r} is not the id of a run", hint="%gpu_runs (jupyter gpu runs) lists them")
    return _from_gateway(name, run, around)


def _from_gateway(name: str, run: str, around: context.ExecutionContext) -> Any:
    target = around.find_target() if around.find_target is not None else None
    if target is None:
        raise GatewayUnavailableError("what another run has published cannot be read here: there is no gateway")
    for _ in range(_ATTEMPTS):
        with GatewayClient.for_target(target) as gateway:
            found = _catch_up(gateway, run).get(name)
        if found is None:
            raise NothingPublishedError(f"run {run} has not published `{name}`")
        try:
            return value_of(found, run, around.realm(), lambda: store_of(target))
        except ReplacedError:
            continue
    raise StoreError(f"`{name}` of run {run} was replaced faster than it can be read", hint="try again")


def _catch_up(gateway: GatewayClient, run: str) -> dict[str, Publication]:
    after, latest = _read_so_far.setdefault(run, (0, {}))
    more = True
    while more:
        page = gateway.events(run, after)
        for event in page.events:
            if event.kind == "published":
                publication = publication_of(event)
                latest[publication.name] = publication
        after, more = page.last, page.more and page.last > after
        _read_so_far[run] = (after, latest)
    return latest


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
    buffers = [bytearray(buffer) for buffer in graph.buffers]
    return codec.load(graph.stream, buffers, realm, trust=Trust.GATEWAY).values[found.name]


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
