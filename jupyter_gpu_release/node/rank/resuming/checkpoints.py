"""Checkpoints of a restartable run: states that its code saves, and asks for when it goes on."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any

from . import random_state


class Checkpoints:
    """States of one attempt, and those that the attempt before has left."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        #: calls of ``checkpoint``, those of earlier attempts too
        self._count = 0
        #: calls of ``restore`` since the run's first statement
        self._restores = 0
        #: saved by an earlier attempt, and not asked for yet; by the number of the ``restore`` that shall have it
        self._waiting: dict[int, dict[str, Any]] = {}
        #: the checkpoint that the code is at
        self.current: dict[str, Any] | None = None

    def go_on_from(self, state: Mapping[str, Any]) -> None:
        """Take over what a save has of them."""
        self._restores, self._count = state["restores"], state["checkpoints"]
        self._waiting = dict(state["waiting"])

    @property
    def is_elsewhere(self) -> bool:
        """The code is not where it could be left: in another thread, or another process."""
        return os.getpid() != self._pid or threading.current_thread() is not threading.main_thread()

    @property
    def is_unread(self) -> bool:
        """Nobody has asked for a state yet: whoever goes on would not have it."""
        return not self._restores

    @property
    def count(self) -> int:
        """Calls of ``checkpoint``, those of earlier attempts too."""
        return self._count

    @property
    def place(self) -> str:
        """The checkpoint that the code is at, in words."""
        return f"checkpoint {self._count}"

    def begin(self, state: Any) -> None:
        """The code is at a checkpoint."""
        self._count += 1
        self.current = {"state": state}

    def end(self) -> None:
        """The code goes on behind it."""
        self.current = None

    def restore(self) -> Any:
        """The state that an earlier attempt has saved after this very call of ``restore``; else None."""
        if self.is_elsewhere:
            return None
        self._restores += 1
        left = self._waiting.pop(self._restores, None)
        if left is None:
            return None
        random_state.restore(left["rng"])
        return left["state"]

    def saved(self) -> dict[str, Any]:
        """The part of a save that is theirs."""
        waiting, restores = self._waiting, self._restores
        if self.current is not None:  # the run begins anew with it
            waiting = {**waiting, max(1, restores): {**self.current, "rng": random_state.capture()}}
            restores = 0
        return {"waiting": waiting, "restores": restores, "checkpoints": self._count}
