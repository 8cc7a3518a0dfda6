"""The idle policy: pure decisions about what holds a GPU. Records and a time in, a decision and its reason out.

What is not known counts as busy, and what is busy is never touched: the most that can happen to it is a notice.
Times are seconds of one clock that never jumps (``time.monotonic``). Records are msgspec's because hundreds are made at
each look, and those of dataclasses took most of its time.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from ...units import format_bytes, format_seconds


class Action(Enum):
    """An action of the policy. ``touches``: it changes something that the user has (so it is announced before)."""

    LEAVE = ("leave", False)
    WARN = ("warn", False)
    NOTIFY = ("notify", False)
    RELEASE = ("release", True)
    SUSPEND = ("suspend", True)
    SHUTDOWN = ("shutdown", True)

    def __init__(self, word: str, touches: bool) -> None:
        self.word = word
        self.touches = touches

    @classmethod
    def of(cls, word: str) -> Action:
        """The action called ``word``; raises KeyError for an unknown word."""
        return {action.word: action for action in cls}[word]


class Signal(msgspec.Struct, frozen=True):
    """One sign of work. ``busy`` None: not known. ``words`` complete "busy, because …"."""

    name: str
    busy: bool | None
    words: str = ""


class Observation(msgspec.Struct, frozen=True):
    """Facts that are known about a kernel or a lease at one moment."""

    subject: str
    #: ``kernel`` or ``lease``
    kind: str
    signals: tuple[Signal, ...]
    #: bytes of device memory; None: something is held, the driver does not tell how much
    held_bytes: int | None = 0
    #: consecutive samples in which every signal said idle
    idle_samples: int = 0
    #: since when nothing has been going on
    idle_since_s: float = 0.0
    #: since when it has been busy without a pause; None while idle
    busy_since_s: float | None = None
    connections: int = 0
    #: mean use from 0 to 1 over the last ``window_s`` seconds; None: not told
    utilization: float | None = None
    window_s: float = 0.0
    warned_at_s: float | None = None
    #: the user asked to keep it until then
    keep_until_s: float | None = None
    #: when the policy last acted in this idle period
    acted_at_s: float | None = None
    suspended: bool = False
    #: why it is on the protected list
    protected: str = ""
    #: when it ends by itself (a warm lease); None: it does not
    ends_at_s: float | None = None


class Policy(msgspec.Struct, frozen=True):
    """The limits for one subject, in seconds; 0 switches a limit off."""

    action: Action = Action.NOTIFY
    kernel_idle_s: float = 3600.0
    lease_idle_s: float = 300.0
    lease_action: Action = Action.RELEASE
    warn_before_s: float = 300.0
    samples: int = 3
    cull_connected: bool = True
    min_utilization: float = 0.0
    utilization_window_s: float = 1800.0
    max_busy_s: float = 0.0
    dry_run: bool = False


class Decision(msgspec.Struct, frozen=True):
    """``rule`` is a stable word (metrics, audit log), ``reason`` a sentence. ``due_s``: seconds until something is."""

    action: Action
    rule: str
    reason: str
    due_s: float | None = None
    dry_run: bool = False


def decide(seen: Observation, policy: Policy, now_s: float) -> Decision:
    """Decide what to do about one kernel or lease now. Total: every observation has an answer, and none raises."""
    if seen.kind == "kernel" and seen.held_bytes == 0:
        return Decision(Action.LEAVE, "no-gpu", "holds no GPU memory")
    if seen.protected:
        return Decision(Action.LEAVE, "protected", f"is protected ({seen.protected})")
    decision = _busy(seen, policy, now_s) if at_work(seen) else _idle(seen, policy, now_s)
    if policy.dry_run and decision.action is not Action.LEAVE:
        return msgspec.structs.replace(decision, dry_run=True)
    return decision


def at_work(seen: Observation) -> Signal | None:
    """The first sign of work, else the first that is unknown, which counts as one. No signal at all is one, too."""
    for signal in seen.signals:
        if signal.busy is True:
            return signal
    for signal in seen.signals:
        if signal.busy is None:
            return signal
    return None if seen.signals else Signal("none", None, "nothing is known of it")


def _busy(seen: Observation, policy: Policy, now_s: float) -> Decision:
    sign = at_work(seen) or Signal("none", None)
    known = "busy" if sign.busy else "maybe busy"
    low = (
        seen.utilization is not None
        and seen.window_s >= policy.utilization_window_s > 0
        and seen.utilization < policy.min_utilization
    )
    if low and not _said_lately(seen, policy.utilization_window_s, now_s):
        span = format_seconds(seen.window_s)
        return Decision(
            Action.NOTIFY,
            "low-utilization",
            f"used its GPU {seen.utilization or 0:.0%} of the last {span}, less than {policy.min_utilization:.0%}; "
            "it is at work, so it is left alone",
        )
    busy_s = 0.0 if seen.busy_since_s is None else max(0.0, now_s - seen.busy_since_s)
    if 0 < policy.max_busy_s <= busy_s and not _said_lately(seen, policy.max_busy_s, now_s):
        return Decision(
            Action.NOTIFY,
            "max-busy",
            f"has been busy for {format_seconds(busy_s)}, longer than {format_seconds(policy.max_busy_s)}; "
            "what is busy is left alone",
        )
    return Decision(Action.LEAVE, "busy" if sign.busy else "unknown", f"{known}: {sign.words or sign.name}")


def _said_lately(seen: Observation, span_s: float, now_s: float) -> bool:
    return seen.acted_at_s is not None and now_s - seen.acted_at_s < span_s


def _idle(seen: Observation, policy: Policy, now_s: float) -> Decision:
    lease = seen.kind == "lease"
    limit_s = policy.lease_idle_s if lease else policy.kernel_idle_s
    action = policy.lease_action if lease else policy.action
    if refusal := _left_alone(seen, policy, now_s, limit_s):
        return refusal
    idle_s = max(0.0, now_s - seen.idle_since_s)
    if seen.ends_at_s is not None and seen.ends_at_s <= now_s + _due_s(seen, policy, now_s, limit_s - idle_s):
        left_s = max(0.0, seen.ends_at_s - now_s)
        return Decision(Action.LEAVE, "ends", f"ends by itself in {format_seconds(left_s)}", left_s)
    words = f"has been idle for {format_seconds(idle_s)}{_holding(seen)}"
    if not action.touches:
        if idle_s < limit_s:
            return Decision(Action.LEAVE, "idle", words, limit_s - idle_s)
        return Decision(action, "idle-limit", f"{words}, longer than {format_seconds(limit_s)}")
    return _announced(seen, policy, now_s, action, limit_s - idle_s, words)


def _due_s(seen: Observation, policy: Policy, now_s: float, left_s: float) -> float:
    """Seconds until something idle may be acted on at the earliest, with the warning that comes before."""
    warned_at_s = now_s if seen.warned_at_s is None else seen.warned_at_s
    return max(left_s, warned_at_s + policy.warn_before_s - now_s)


def _announced(seen: Observation, policy: Policy, now_s: float, action: Action, left_s: float, words: str) -> Decision:
    """An action that touches something comes ``warn_before_s`` after its warning, and never sooner."""
    if policy.warn_before_s > 0:
        if seen.warned_at_s is None:
            if left_s > policy.warn_before_s:
                return Decision(Action.LEAVE, "idle", words, left_s)
            due_s = max(left_s, policy.warn_before_s)
            return Decision(Action.WARN, "idle-warning", f"{words}; {action.word} follows", due_s)
        left_s = max(left_s, seen.warned_at_s + policy.warn_before_s - now_s)
    if left_s > 0:
        return Decision(Action.LEAVE, "idle", words, left_s)
    return Decision(action, "idle-limit", f"{words}: {action.word}")


def _left_alone(seen: Observation, policy: Policy, now_s: float, limit_s: float) -> Decision | None:
    """The reason why something idle is not looked at further."""
    if limit_s <= 0:
        return Decision(Action.LEAVE, "no-limit", "is idle; there is no limit for it")
    if seen.idle_samples < policy.samples:
        return Decision(
            Action.LEAVE, "samples", f"looked idle {seen.idle_samples} times in a row, {policy.samples} are needed"
        )
    if seen.keep_until_s is not None and now_s < seen.keep_until_s:
        left_s = seen.keep_until_s - now_s
        return Decision(Action.LEAVE, "kept", f"is kept for another {format_seconds(left_s)}", left_s)
    if seen.connections > 0 and not policy.cull_connected:
        return Decision(Action.LEAVE, "connected", f"is open in {seen.connections} tabs")
    if seen.suspended:
        return Decision(Action.LEAVE, "suspended", "is suspended: it holds no GPU memory")
    if _said_lately(seen, limit_s, now_s):
        return Decision(Action.LEAVE, "done", "was dealt with in this idle time")
    return None


def _holding(seen: Observation) -> str:
    if seen.kind == "lease":
        return " with its GPUs held"
    return " with GPU memory" if seen.held_bytes is None else f" with {format_bytes(seen.held_bytes)} of GPU memory"
