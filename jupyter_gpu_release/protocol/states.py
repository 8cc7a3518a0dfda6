"""States of runs and leases. The facts about a state sit on the enum member, not in lists in code."""

from __future__ import annotations

import re
import secrets
import time
from enum import Enum


class RunState(Enum):
    """Life of one submission. ``holds_gpu`` and ``is_terminal`` are facts of the state."""

    SUBMITTED = ("submitted", False, False)
    QUEUED = ("queued", False, False)
    STARTING = ("starting", True, False)
    RUNNING = ("running", True, False)
    #: being preempted
    YIELDING = ("yielding", True, False)
    RELEASING = ("releasing", True, False)
    PERSISTING = ("persisting", False, False)
    SUCCEEDED = ("succeeded", False, True)
    FAILED = ("failed", False, True)
    CANCELLED = ("cancelled", False, True)
    LOST = ("lost", False, True)

    def __init__(self, word: str, holds_gpu: bool, is_terminal: bool) -> None:
        self.word = word
        self.holds_gpu = holds_gpu
        self.is_terminal = is_terminal

    @classmethod
    def of(cls, word: str) -> RunState:
        """The state called ``word``; raises KeyError for an unknown word."""
        return _BY_WORD[word]


_BY_WORD = {state.word: state for state in RunState}


class LeaseState(Enum):
    """Life of one placement group: ``starting → busy ⇄ warm → releasing → gone``."""

    STARTING = "starting"
    BUSY = "busy"
    WARM = "warm"
    RELEASING = "releasing"
    GONE = "gone"


_RUN_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{8}")


def new_run_id(now_s: float | None = None) -> str:
    """A sortable, unguessable-enough run id such as ``20261121-034512-9f3a12bc`` (UTC)."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now_s))
    return f"{stamp}-{secrets.token_hex(4)}"


def is_run_id(text: str) -> bool:
    """Tell if ``text`` has the form of a run id (so that it is safe as a folder name)."""
    return _RUN_ID.fullmatch(text) is not None
