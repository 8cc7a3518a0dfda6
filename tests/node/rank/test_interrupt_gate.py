"""The gate through which interrupts reach a cell: those that come early strike at its first statement."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from jupyter_gpu_release.node.rank.interrupts import InterruptGate


@pytest.fixture
def gate() -> Iterator[InterruptGate]:
    mask, handler = signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.getsignal(signal.SIGINT)
    gate = InterruptGate()
    yield gate
    signal.signal(signal.SIGINT, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def test_what_came_while_inputs_were_loaded_strikes_once(gate: InterruptGate) -> None:
    gate.note_interrupt()
    with pytest.raises(KeyboardInterrupt):
        gate.open()
    assert gate.is_open
    gate.close()
    gate.open()


def test_a_signal_that_is_blocked_while_the_gate_is_closed_strikes_when_it_opens(gate: InterruptGate) -> None:
    signal.signal(signal.SIGINT, gate.note_interrupt)
    gate.close()
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        gate.open()
