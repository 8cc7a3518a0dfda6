"""Checks that hang or fail are findings, and cost the others nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import NoReturn

from jupyter_gpu_release.checks.finding import BROKEN, OK, Finding, ok
from jupyter_gpu_release.checks.limits import findings_within


def test_what_hangs_is_a_finding_and_the_others_are_told() -> None:
    never = threading.Event()

    def hang() -> Iterator[Finding]:
        yield ok("store", "it is there")
        never.wait()

    def fail() -> NoReturn:
        raise OSError("broken pipe")

    began_s = time.monotonic()
    checks = {"store": hang, "gateway": fail, "home": lambda: [ok("home", "private")]}
    found = list(findings_within(1.0, checks, where="kernel"))
    never.set()
    assert time.monotonic() - began_s >= 1.0
    told = {(one.check, one.level): one for one in found}
    assert told.keys() == {("store", OK), ("store", BROKEN), ("gateway", BROKEN), ("home", OK)}
    assert told["store", BROKEN].finding == "this check has not ended within 1 s"
    assert "OSError: broken pipe" in told["gateway", BROKEN].finding
    assert {told[check, BROKEN].where for check in ("store", "gateway")} == {"kernel"}


def test_nothing_waits_for_the_limit_once_all_is_told() -> None:
    began_s = time.monotonic()
    assert len(list(findings_within(3600.0, {"home": lambda: [ok("home", "private")]}))) == 1
    assert time.monotonic() - began_s < 600
