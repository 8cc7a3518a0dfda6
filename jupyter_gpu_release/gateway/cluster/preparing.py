"""Has nodes import what a run's cell needs before the run is queued: no GPU is held meanwhile.

Which node the run will get is not known yet, so each of them is asked; what a node is known to have is not asked again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...errors import ClusterError
from ...protocol.node import PrepareOrder
from .nodes import Node, NodeTable

log = logging.getLogger(__name__)


@dataclass
class _Known:
    """User → modules that a node's agent has prepared, in this life of it, while nothing prepared has gone since."""

    life: tuple[str, int]
    modules: dict[str, set[str]] = field(default_factory=dict)


class Preparing:
    """Knows roughly what nodes have prepared: at worst a cell imports what was taken for prepared."""

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._known: dict[str, _Known] = {}

    def lacking(self, user: str, needs: Sequence[str]) -> list[Node]:
        """The nodes that may have to import something for a cell of ``user`` that needs these modules."""
        if not needs:
            return []
        return [node for node in self._able() if self._lacks(self._modules_of(node).get(user), needs)]

    @staticmethod
    def _lacks(known: set[str] | None, needs: Sequence[str]) -> bool:
        return known is None or not known.issuperset(needs)

    async def prepare(self, nodes: Sequence[Node], user: str, session: str, needs: Sequence[str]) -> None:
        """Return when they have imported what they can; one that does not answer is not waited for."""
        await asyncio.gather(*(self._prepare_on(node, PrepareOrder(list(needs), user, session)) for node in nodes))

    async def _prepare_on(self, node: Node, order: PrepareOrder) -> None:
        known = self._modules_of(node)
        try:
            await self._nodes.agent(node.node).prepare(order)
        except ClusterError as error:
            log.warning("%s: nothing is prepared there: %s", node.host, error.message)
        known.setdefault(order.user, set()).update(order.names)

    async def end_session(self, session: str) -> None:
        """A kernel has ended: what was prepared for it alone goes."""
        await asyncio.gather(*(self._end_on(node, session) for node in self._able()))

    async def _end_on(self, node: Node, session: str) -> None:
        try:
            await self._nodes.agent(node.node).end_session(session)
        except ClusterError as error:  # it goes when nobody has used it for a while
            log.info("%s", error.message)

    def _able(self) -> list[Node]:
        return [node for node in self._nodes.ready() if node.info is not None and node.info.max_prepared]

    def _modules_of(self, node: Node) -> dict[str, set[str]]:
        life = (node.info.incarnation, node.info.prepared_gone) if node.info is not None else ("", 0)
        known = self._known.get(node.node)
        if known is None or known.life != life:
            known = self._known[node.node] = _Known(life)
        return known.modules
