"""The end of an attempt of a cell that is resumed later."""

from __future__ import annotations

import ast
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ....protocol.runs import Save
    from ...values.collected_values import Collected


class Preempted(BaseException):
    """Raised in the cell at a safe point, once it is saved."""


@dataclass(frozen=True)
class TakenSave:
    """A save that has been made; its values point at live memory."""

    save: Save
    values: Collected


#: runs statements; (nodes, IPython's interactivity) → whether they failed
RunNodes = Callable[[list[ast.stmt], str], Awaitable[bool]]


class StatementRunner(Protocol):
    """Runs a cell's statements in the shell's place. ``taken``: the save with which it was preempted."""

    taken: Any

    async def run_statements(self, nodes: list[ast.stmt], interactivity: str, run: RunNodes) -> bool:
        """Run them all; True: one failed, or the cell was preempted."""
