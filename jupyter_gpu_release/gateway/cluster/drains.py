"""Nodes and single GPUs that an admin has taken out, until they are resumed, also over the gateway's restarts."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import msgspec
from sqlalchemy.engine import Connection

from ...errors import ConflictError, NoSuchNodeError
from ...protocol.admin import names_gpu
from ..db import database
from ..db.writer import LedgerWriter
from .nodes import Node, NodeTable

_META = "drained nodes"
#: of a node's id, what a user has to write at least
_SHORTEST_ID = 6


class Drain(msgspec.Struct, frozen=True):
    """One node or GPU taken out, by whom, why, and since when (unix seconds)."""

    by: str
    reason: str
    since_s: float

    def words(self, name: str) -> str:
        """Why the node (``host``) or GPU (``host:id``) takes no runs."""
        host, _, gpu = name.partition(":")
        what = f"GPU {gpu} of {host}" if gpu else f"the node {host}"
        return f"{what} is drained by {self.by}{f': {self.reason}' if self.reason else ''}"


class Named(msgspec.Struct, frozen=True):
    """A node by its host, and maybe one GPU of it, as a user has named it."""

    host: str
    gpu: str = ""

    def __str__(self) -> str:
        return f"{self.host}:{self.gpu}" if self.gpu else self.host


class DrainTable:
    """Drains by ``host`` or ``host:id``. They hold on when the host's Ray node is started anew."""

    def __init__(self, nodes: NodeTable, ledger: LedgerWriter) -> None:
        self._nodes = nodes
        self._ledger = ledger
        self._drains: dict[str, Drain] = {}
        #: those of a cluster that is about to be stopped: the next gateway knows nothing of them
        self._passing: dict[str, Drain] = {}
        self._changing = asyncio.Lock()

    def read(self, connection: Connection) -> None:
        """Remember those of the gateway's earlier lives."""
        stored = database.read_meta(connection, _META)
        self._drains = msgspec.json.decode(stored, type=dict[str, Drain]) if stored else {}
        self._apply()

    def _apply(self) -> None:
        drains = {**self._passing, **self._drains}
        self._nodes.note_drained({name: drain.words(name) for name, drain in drains.items()})

    async def drain(self, name: str, by: str, reason: str, *, passing: bool = False) -> Named:
        """Take a node or a GPU out; done when it is committed. Raises :class:`NoSuchNodeError`.

        ``passing``: as long as this gateway lives.
        """
        found, drain = self._find(name), Drain(by, reason, time.time())
        async with self._changing:
            if passing:
                self._passing[str(found)] = drain
                self._apply()
            else:
                await self._write(self._drains | {str(found): drain})
        return found

    async def resume(self, name: str) -> Named:
        """Give runs again to a node or GPU, or to one that is away, by its host's name, once it is back.

        Raises :class:`ConflictError` when it was not drained, else as :meth:`drain`.
        """
        async with self._changing:
            found = Named(*name.split(":", 1)) if name in self._drains else self._find(name)
            is_passing = self._passing.pop(str(found), None) is not None
            if str(found) not in self._drains and is_passing:
                self._apply()
                return found
            if str(found) not in self._drains:
                what = f"GPU {found.gpu} of {found.host}" if found.gpu else f"the node {found.host}"
                raise ConflictError(f"{what} is not drained", hint="`jupyter gpu nodes` lists them")
            await self._write({other: drain for other, drain in self._drains.items() if other != str(found)})
        return found

    async def _write(self, drains: dict[str, Drain]) -> None:
        """Nothing is changed unless it is committed."""
        text = msgspec.json.encode(drains).decode()
        await self._ledger.write(partial(database.write_meta, key=_META, value=text))
        self._drains = drains
        self._apply()

    def _find(self, name: str) -> Named:
        alive = self._nodes.alive()
        wanted, _, gpu = name.partition(":")
        found = [node for node in alive if node.host == wanted]
        if not found and len(wanted) >= _SHORTEST_ID:
            hosts = {node.host for node in alive if node.node.startswith(wanted)}
            found = [node for node in alive if node.host in hosts and len(hosts) == 1]
        if found and ":" in name:
            return Named(found[0].host, _gpu_of(found, gpu))
        if found:
            return Named(found[0].host)
        known = ", ".join(sorted({node.host for node in alive}))
        raise NoSuchNodeError(f"there is no node {name[:100]}", hint=f"nodes: {known}")


def _gpu_of(nodes: list[Node], gpu: str) -> str:
    """The id of a GPU as Ray writes it."""
    known = {index: uuid for node in nodes for index, uuid in _gpus_of(node)}
    found = [gpu] if gpu in known else [index for index, uuid in known.items() if names_gpu(gpu, index, uuid)]
    if len(found) != 1:
        raise NoSuchNodeError(f"the node {nodes[0].host} has no GPU {gpu[:50]}", hint=f"GPUs: {', '.join(known)}")
    return found[0]


def _gpus_of(node: Node) -> list[tuple[str, str]]:
    """Ids and UUIDs; no UUIDs until its agent has said them."""
    told = node.info.gpus if node.info is not None else []
    return [(gpu.index, gpu.uuid) for gpu in told] or [(gpu, "") for gpu in node.gpu_ids]
