"""Signals stay until the gateway is known to have heard them."""

from __future__ import annotations

from jupyter_gpu_release.client.websocket import UnackedMessages
from jupyter_gpu_release.protocol.session import Detach, Heartbeat, Signal

_FIRST, _SECOND = Signal("run", "interrupt", "1"), Detach("run")


def _echo(sent: list[Signal | Detach | Heartbeat]) -> Heartbeat:
    assert isinstance(sent[-1], Heartbeat)
    return sent[-1]


def test_what_was_heard_is_not_sent_again() -> None:
    unheard = UnackedMessages()
    unheard.keep(_FIRST)
    first = unheard.due()
    assert first[:-1] == [_FIRST]
    assert unheard.due() == []
    unheard.keep(_SECOND)
    second = unheard.due()
    assert second[:-1] == [_SECOND]
    unheard.heard(Heartbeat(1.0))  # a regular one says nothing: it may have been sent before
    unheard.heard(_echo(first))
    assert unheard.due(again=True)[:-1] == [_SECOND]
    unheard.heard(_echo(second))  # of the connection that is gone
    assert unheard.due(again=True)[:-1] == [_SECOND]


def test_what_may_not_have_been_heard_is_sent_again_in_order() -> None:
    unheard = UnackedMessages()
    unheard.keep(_FIRST)
    unheard.due()
    unheard.keep(_SECOND)
    again = unheard.due(again=True)
    assert again[:-1] == [_FIRST, _SECOND]
    unheard.heard(_echo(again))
    assert unheard.due(again=True) == []
