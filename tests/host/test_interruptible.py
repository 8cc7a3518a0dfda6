"""Events that an interrupt may strike at any moment."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Iterator
from typing import NoReturn

import pytest

from jupyter_gpu_release.host.interruptible import InterruptibleCondition, InterruptibleEvent

_STRIKES = 3000


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


@pytest.fixture
def alarm() -> Iterator[None]:
    """An alarm is an interrupt."""
    before = signal.signal(signal.SIGALRM, _interrupt)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def _struck(act: Callable[[], object]) -> None:
    """Do it again and again until an interrupt strikes somewhere in it."""
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(5e-5, 2e-4))
        while True:
            act()
    except KeyboardInterrupt:
        return


def _can_be_had(lock: InterruptibleCondition) -> bool:
    had: list[bool] = []
    other = threading.Thread(target=lambda: had.append(lock.acquire(timeout=20)))
    other.start()
    other.join()
    return had == [True]


@pytest.mark.usefixtures("alarm")
def test_no_interrupt_leaves_the_lock_held() -> None:
    event = InterruptibleEvent()

    def use() -> None:
        event.set()
        event.wait()
        event.clear()
        event.wait(1e-6)

    for _ in range(_STRIKES):
        _struck(use)
        assert not event._cond._is_owned()
    assert _can_be_had(event._cond)


@pytest.mark.usefixtures("alarm")
def test_a_wait_that_is_struck_raises_nothing_else() -> None:
    condition = InterruptibleCondition()

    def use() -> None:
        with condition:
            condition.wait(1e-6)

    for _ in range(_STRIKES):
        _struck(use)
    assert _can_be_had(condition)


def test_waiting_ends_with_the_event_or_the_time() -> None:
    event = InterruptibleEvent()
    assert not event.wait(0.01)
    threading.Timer(0.05, event.set).start()
    assert event.wait(20)
    assert event.is_set()
