"""A handler of a signal is said once, and never if a setup sets it in the ranks, too."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest

from jupyter_gpu_release.adapters.stdlib.environment import SignalHandlers


@pytest.fixture
def set_handler() -> Iterator[Callable[[], None]]:
    """Set one of the notebook's."""
    before = signal.getsignal(signal.SIGALRM)
    yield lambda: exec(
        "import signal\nfor number in (signal.SIGALRM, signal.SIGINT): signal.signal(number, lambda *_: None)",
        {"__name__": "__main__"},
    )
    signal.signal(signal.SIGALRM, before)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_it_is_said_once_and_not_of_what_a_setup_sets(set_handler: Callable[[], None]) -> None:
    handlers = SignalHandlers()
    assert handlers.notes("elsewhere") == []
    with handlers.everywhere():
        set_handler()
    assert handlers.notes("elsewhere") == []
    set_handler()
    assert handlers.notes("elsewhere") == ["handler of SIGALRM: elsewhere"]
    assert handlers.notes("elsewhere") == []
