"""States of runs and leases. The facts about a state sit on the enum member, not in lists in code."""

from __future__ import annotations

import re
import secrets
import time
from enum import Enum


class RunState(Enum):
    """Life of one submission. ``holds_gpu``, ``is_terminal`` and ``meaning`` are facts of the state."""

    SUBMITTED = ("submitted", False, False, "it was sent, and is not in the queue yet")
    QUEUED = ("queued", False, False, "it waits for its GPUs")
    STARTING = ("starting", True, False, "it has its GPUs, and its processes get their inputs")
    RUNNING = ("running", True, False, "the cell runs")
    YIELDING = ("yielding", True, False, "it is being preempted: saved at its next safe point, and queued again")
    RELEASING = ("releasing", True, False, "the last statement is over, and its processes end")
    PERSISTING = ("persisting", False, False, "the GPUs are free, and results are being written to the store")
    SUCCEEDED = ("succeeded", False, True, "it ended well")
    FAILED = ("failed", False, True, "the cell raised an exception, crashed or passed a limit")
    CANCELLED = ("cancelled", False, True, "a person, or the end of its kernel, ended it")
    LOST = ("lost", False, True, "its node, agent or cluster died")

    def __init__(self, word: str, holds_gpu: bool, is_terminal: bool, meaning: str) -> None:
        self.word = word
        self.holds_gpu = holds_gpu
        self.is_terminal = is_terminal
        self.meaning = meaning

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


def new_run_id() -> str:
    """A sortable, unguessable-enough run id such as ``20261121-034512-9f3a12bc`` (UTC)."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    return f"{stamp}-{secrets.token_hex(4)}"


def is_run_id(text: str) -> bool:
    """Tell if ``text`` has the form of a run id (so that it is safe as a folder name)."""
    return _RUN_ID.fullmatch(text) is not None
