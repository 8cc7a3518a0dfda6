"""A limit on how long checks take: each in a thread of its own, all at once, and an interrupt ends the waiting."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from .finding import Finding, broken

Check = Callable[[], Iterable[Finding]]
#: how long nothing is looked at: an interrupt is heard at once all the same, a clock that jumps does no harm
_TICK_S = 0.5


def findings_within(limit_s: float, checks: Mapping[str, Check], *, where: str = "") -> Iterator[Finding]:
    """The findings of all checks as they come. What takes longer than ``limit_s`` is a finding, too.

    Called on a thread that may wait. A check that hangs (a filesystem that does not answer) keeps its thread, which
    ends with the process.
    """
    told: queue.SimpleQueue[tuple[str, Finding | BaseException | None]] = queue.SimpleQueue()
    for name, check in checks.items():
        threading.Thread(target=_carry_out, args=(name, check, told), name=f"jgr-check-{name}", daemon=True).start()
    missing, ends_s = dict.fromkeys(checks), time.monotonic() + limit_s
    while missing and (left_s := ends_s - time.monotonic()) > 0:
        try:
            name, said = told.get(timeout=min(left_s, _TICK_S))
        except queue.Empty:
            continue
        if isinstance(said, Finding):
            yield said
        else:
            del missing[name]
            if said is not None:
                mend = "report it, with the command or cell that shows it"
                yield broken(name, f"this check failed: {type(said).__name__}: {said}", mend, where=where)
    for name in missing:
        mend = "look at the filesystem, the host or the driver that it asks; the other findings may name it"
        yield broken(name, f"this check has not ended within {limit_s:g} s", mend, where=where)


def _carry_out(name: str, check: Check, told: queue.SimpleQueue[tuple[str, Finding | BaseException | None]]) -> None:
    try:
        for finding in check():
            told.put((name, finding))
    except BaseException as error:  # noqa: BLE001 - a thread's entry point: it becomes a finding
        told.put((name, error))
    else:
        told.put((name, None))
