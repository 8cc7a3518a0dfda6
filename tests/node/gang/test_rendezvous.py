"""The meeting place of ranks: what those are told who come when another one waits no longer."""

from __future__ import annotations

from jupyter_gpu_release.node.gang.rendezvous import CollectiveCall, Rendezvous

_FIRST, _LATER = CollectiveCall(1, "barrier"), CollectiveCall(2, "barrier")


def test_who_comes_after_another_gave_up_does_not_wait_for_it() -> None:
    meeting = Rendezvous(2)
    assert meeting.arrive(0, _FIRST) == {}
    (told,) = meeting.arrive(0, CollectiveCall(1, "leave")).values()
    assert told.error == "rank 1 did not come to barrier()"
    (told,) = meeting.arrive(1, _FIRST).values()
    assert told.error == "rank 0 gave up waiting for rank 1 in barrier()"
    assert meeting.waiting == set()
    assert meeting.arrive(1, _LATER) == {}
    assert [reply.error for reply in meeting.arrive(0, _LATER).values()] == ["", ""], "they meet at the next one"
