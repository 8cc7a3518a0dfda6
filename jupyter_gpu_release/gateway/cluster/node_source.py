"""``NodeSource``: where the cluster's nodes come from, and who takes them back. ``FixedNodes``: nobody does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence

from ...scheduling.decisions import Wait
from ...scheduling.workload import Run
from .nodes import Node


class NodeSource(ABC):
    """Lends nodes to the cluster. ``reconcile.Scaling`` calls it on the gateway's event loop, one call at a time.

    A call may wait for an answer as Ray's do, but for nothing that may take minutes: the look around waits for it.
    Nodes are named by Ray's ids.
    """

    #: nodes come when somebody asks, so no run is refused as too large for those that are there
    scales = False
    #: GPUs of all nodes together that may be lent, where that is known; else 0
    gpus_most = 0
    #: nodes that are about to end: they get no runs
    leaving: frozenset[str] = frozenset()
    #: nodes without work that may go: ``Scaling`` ends their agents, then calls :meth:`give_back`
    spare: tuple[str, ...] = ()

    @abstractmethod
    async def look(self, lacking: Sequence[Run], waiting: Collection[str], idle_s: Mapping[str, float]) -> bool:
        """Ask for what ``lacking`` runs (the first first) need, of those that are ``waiting``, and for nothing else.

        ``idle_s``: nodes on which nothing runs, and for how long. Called every second or two. Returns True when answers
        or ``leaving`` are others than before. Raises :class:`ClusterError` when the lender does not answer.
        """

    @abstractmethod
    def with_answer(self, wait: Wait) -> Wait:
        """The same wait, with what the lender does about it. The queue calls it in each pass; it never raises."""

    def why_leaving(self, node: Node, *, is_preempted: bool = False) -> str:
        """Say of a node that is ``leaving`` what users are told whose runs end with it, or are preempted from it; it
        never raises.
        """
        return "its node is about to end" + ("" if is_preempted else ", and the run with it")

    def why_gone(self, node: Node) -> str:
        """Say of a node that Ray no longer has what users are told whose runs are lost with it; it never raises."""
        return f"the node {node.host} is gone"

    @abstractmethod
    async def give_back(self, node: Node) -> None:
        """Let a node go whose agent has ended. Again for the same node is fine; raises nothing."""


class FixedNodes(NodeSource):
    """The nodes that are there."""

    async def look(self, lacking: Sequence[Run], waiting: Collection[str], idle_s: Mapping[str, float]) -> bool:
        """Ask nobody."""
        return False

    def with_answer(self, wait: Wait) -> Wait:
        """Nobody does anything about it."""
        return wait

    async def give_back(self, node: Node) -> None:
        """Nobody wants it."""
