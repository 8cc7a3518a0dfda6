"""Records of the nodes that runs wait for: whoever is behind them cannot take these away, and can take all others."""

from __future__ import annotations

from .constraints import impossible, suits
from .snapshot import NodeState, QueuedRun


class Claims:
    """Of one decision. GPUs and cores are claimed apart: a run without GPUs takes nothing that others wait for."""

    def __init__(self, nodes: tuple[NodeState, ...]) -> None:
        self._nodes = nodes
        self._suited: dict[bytes, frozenset[str]] = {}
        self._asides: dict[bytes, str] = {}
        self._claimed: dict[bool, set[str]] = {True: set(), False: set()}
        #: what those ahead ask for: others of the kind wait behind them
        self._behind: set[bytes] = set()

    def suited(self, queued: QueuedRun) -> frozenset[str]:
        """The nodes that could take the run, were they empty."""
        found = self._suited.get(queued.shape)
        if found is None:
            found = frozenset(node.node for node in self._nodes if suits(queued.ask, node))
            self._suited[queued.shape] = found
        return found

    def may_go(self, queued: QueuedRun) -> bool:
        """Whether there may be a node for the run that nobody ahead of it waits for."""
        return queued.shape not in self._behind and not self.aside(queued)

    def left_to(self, queued: QueuedRun) -> frozenset[str]:
        """The nodes that could take the run, and that nobody ahead of it waits for."""
        return self.suited(queued) - self._claimed[queued.ask.gpus > 0]

    def add(self, queued: QueuedRun) -> None:
        """The run waits for any of the nodes that suit it."""
        self._claimed[queued.ask.gpus > 0] |= self.suited(queued)
        self._behind.add(queued.shape)

    def aside(self, queued: QueuedRun) -> str:
        """The reason why the run waits for no node that is here, in words; empty when it does wait.

        It holds nobody up, and is in its old place again as soon as there are nodes for it.
        """
        found = self._asides.get(queued.shape)
        if found is None:
            found = self._asides[queued.shape] = self._lack(queued)
        return found

    def split(self, queue: list[QueuedRun]) -> tuple[list[QueuedRun], list[QueuedRun]]:
        """Those that wait for nodes which are here, and those that stand aside."""
        inside = [queued for queued in queue if not self.aside(queued)]
        return inside, [queued for queued in queue if self.aside(queued)] if len(inside) < len(queue) else []

    def _lack(self, queued: QueuedRun) -> str:
        suited = [node for node in self._nodes if node.node in self.suited(queued)]
        if sum(node.expected for node in suited) >= queued.ask.nodes:
            return ""
        if len(suited) >= queued.ask.nodes:
            return "; ".join(dict.fromkeys(node.reason for node in suited if not node.expected))
        return impossible(queued.ask, self._nodes) or "no node that fits is up"
