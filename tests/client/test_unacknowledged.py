"""Signals stay until the gateway is known to have heard them."""

from __future__ import annotations

from jupyter_gpu_release.client.websocket import UnackedMessages
from jupyter_gpu_release.protocol.session import Detach, Heartbeat, Signal

_FIRST, _SECOND = Signal("run", "interrupt", "1"), Detach("run")


def _echo(sent: list[Signal | Detach | Heartbeat]) -> Heartbeat:
    assert isinstance(sent[-1], Heartbeat)
    return sent[-1]


def test_what_was_heard_is_not_sent_again() -> None:
    unacked = UnackedMessages()
    unacked.keep_message(_FIRST)
    first = unacked.due()
    assert first[:-1] == [_FIRST]
    assert unacked.due() == []
    unacked.keep_message(_SECOND)
    second = unacked.due()
    assert second[:-1] == [_SECOND]
    unacked.on_echo(Heartbeat(1.0))  # a regular one says nothing: it may have been sent before
    unacked.on_echo(_echo(first))
    assert unacked.due(again=True)[:-1] == [_SECOND]
    unacked.on_echo(_echo(second))  # of the connection that is gone
    assert unacked.due(again=True)[:-1] == [_SECOND]


def test_what_may_not_have_been_heard_is_sent_again_in_order() -> None:
    unacked = UnackedMessages()
    unacked.keep_message(_FIRST)
    unacked.due()
    unacked.keep_message(_SECOND)
    again = unacked.due(again=True)
    assert again[:-1] == [_FIRST, _SECOND]
    unacked.on_echo(_echo(again))
    assert unacked.due(again=True) == []
