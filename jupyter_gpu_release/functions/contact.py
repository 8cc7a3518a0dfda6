"""Runs that are waited for while the gateway is silent: they end here when this machine's own cluster has ended."""

from __future__ import annotations

import threading
import time
from typing import Any

from ..client.discovery import is_alive
from ..client.session import GatewaySession
from ..errors import RunLostError
from .launched import Launched

_LOOK_EVERY_S = 0.5
#: a gateway that restarts is back by then
_WORTH_SAYING_S = 10.0


def silence(session: GatewaySession) -> str:
    """For how long nothing was heard of any run, in words; empty while there is contact."""
    silent_s = session.silent_s
    return (
        "" if silent_s < _WORTH_SAYING_S else f"the gateway {session.target.url} has not answered for {silent_s:.0f} s"
    )


class Contact:
    """A thread looks after the cluster only while contact is lost."""

    def __init__(self) -> None:
        self._open: dict[str, Launched[Any]] = {}
        self._lock = threading.Lock()
        self._watches = False

    def add(self, launched: Launched[Any]) -> None:
        """Look after it until it is done."""
        self._open[launched.id] = launched
        launched.when_done(lambda _: self._open.pop(launched.id, None))

    def lost(self, session: GatewaySession) -> None:
        """The gateway does not answer just now."""
        with self._lock:
            if self._watches:
                return
            self._watches = True
        threading.Thread(target=self._watch, args=[session], name="gpu-contact", daemon=True).start()

    def _watch(self, session: GatewaySession) -> None:
        while not session.connected and self._open:
            if not is_alive(session.target):
                for launched in list(self._open.values()):
                    launched.give_up(
                        RunLostError(
                            f"this machine's own cluster ended while run {launched.id} was {launched.status}",
                            mend="launch it again: that starts the cluster anew",
                        )
                    )
                break
            time.sleep(_LOOK_EVERY_S)
        with self._lock:
            self._watches = False
