"""Answers and reports of agents from before `start --upgrade`, which name runs without their attempts.

Such an agent goes on until its runs have ended (``gateway/reconcile/scaling.py``). What it says is put into the words
of this version; this file goes once no version that may be upgraded has such agents.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ...protocol.attempts import AttemptId
from ...protocol.node import NodeRun
from ...protocol.wire import decode, encode

_Fields = dict[str, msgspec.Raw]


class _Report(msgspec.Struct):
    node: str
    incarnation: str
    messages: list[_Fields]


def runs(answer: bytes) -> list[NodeRun]:
    """The attempts that an agent of any version knows: which version it has may not have been heard yet."""
    found: list[NodeRun]
    try:
        found = decode(answer, list[NodeRun])
    except msgspec.ValidationError:
        told = [_named(run, lambda _: 0) for run in decode(answer, list[_Fields])]
        found = decode(encode(told), list[NodeRun])
    return found


def report(body: bytes, attempt_of: Callable[[str], int]) -> bytes:
    """A report with the attempts that the agent did not say: it knows one at a time, which ``attempt_of`` tells."""
    told = decode(body, _Report)
    return encode(msgspec.structs.replace(told, messages=[_named(message, attempt_of) for message in told.messages]))


def _named(fields: _Fields, attempt_of: Callable[[str], int]) -> dict[str, Any]:
    run = decode(bytes(fields["run"]), str)
    attempt = decode(bytes(fields["attempt"]), int) if "attempt" in fields else attempt_of(run)
    return {**{name: value for name, value in fields.items() if name not in ("run", "attempt")},
            "attempt_id": AttemptId(run, attempt)}  # fmt: skip
