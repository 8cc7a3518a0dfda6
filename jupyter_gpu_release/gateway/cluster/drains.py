"""Nodes that an admin has taken out: they get no new runs until they are resumed, also over the gateway's restarts."""

from __future__ import annotations

import time
from functools import partial

import msgspec
from sqlalchemy.engine import Connection

from ...errors import ConflictError, NoSuchNodeError, OptionError
from ..db import database
from ..db.writer import LedgerWriter
from .nodes import Node, NodeTable

_META = "drained nodes"
#: of a node's id, what a user has to write at least
_SHORTEST_ID = 6


class Drain(msgspec.Struct, frozen=True):
    """One node taken out, by whom, why, and since when (unix seconds)."""

    by: str
    reason: str
    since_s: float

    def words(self, host: str) -> str:
        """Why the node takes no runs."""
        return f"the node {host} is drained by {self.by}{f': {self.reason}' if self.reason else ''}"


class DrainTable:
    """The drained nodes by host. A host that is drained stays so when its Ray node is started anew."""

    def __init__(self, nodes: NodeTable, ledger: LedgerWriter) -> None:
        self._nodes = nodes
        self._ledger = ledger
        self._drains: dict[str, Drain] = {}

    def read(self, connection: Connection) -> None:
        """Remember those of the gateway's earlier lives."""
        stored = database.read_meta(connection, _META)
        self._drains = msgspec.json.decode(stored, type=dict[str, Drain]) if stored else {}
        self._apply()

    def _apply(self) -> None:
        self._nodes.note_drained({host: drain.words(host) for host, drain in self._drains.items()})

    async def drain(self, name: str, by: str, reason: str) -> list[Node]:
        """Take a node out; done when it is committed. Returns the Ray nodes of that host.

        Raises :class:`NoSuchNodeError`, :class:`OptionError` for a single GPU.
        """
        found = self._find(name)
        self._drains[found[0].host] = Drain(by, reason, time.time())
        await self._write()
        return found

    async def resume(self, name: str) -> list[Node]:
        """Give runs to a node again; raises :class:`ConflictError` when it was not drained, else as :meth:`drain`."""
        found = self._find(name)
        if self._drains.pop(found[0].host, None) is None:
            raise ConflictError(f"the node {found[0].host} is not drained", hint="`jupyter gpu nodes` lists them")
        await self._write()
        return found

    async def _write(self) -> None:
        self._apply()
        text = msgspec.json.encode(self._drains).decode()
        await self._ledger.write(partial(database.write_meta, key=_META, value=text))

    def _find(self, name: str) -> list[Node]:
        alive = self._nodes.alive()
        found = [node for node in alive if node.host == name]
        if not found and len(name) >= _SHORTEST_ID:
            hosts = {node.host for node in alive if node.node.startswith(name)}
            found = [node for node in alive if node.host in hosts and len(hosts) == 1]
        if found:
            return found
        host, _, gpu = name.rpartition(":")
        if gpu.isdecimal() and any(node.host == host for node in alive):
            raise OptionError(f"{name}: a single GPU cannot be drained, only its node", hint=f"write {host}")
        known = ", ".join(sorted({node.host for node in alive}))
        raise NoSuchNodeError(f"there is no node {name[:100]}", hint=f"nodes: {known}")
