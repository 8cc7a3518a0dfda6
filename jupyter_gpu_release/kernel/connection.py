"""This kernel's way to a gateway: the configured one, else this machine's own cluster, started when need be."""

from __future__ import annotations

import secrets
import threading
from typing import Any

from ..client.config import GpuRelease, check_may_start, find_target, start_own
from ..client.discovery import Target, has_ended, is_alive
from ..client.session import GatewaySession, connect
from ..errors import GatewayUnavailableError, StoreError
from ..presentation.receipt import boxed_html, bundle_of, to_html
from ..presentation.status_line import StatusLine
from ..protocol.session import Welcome
from .output.cell_output import CellOutput

#: for so long it passes without a word that a gateway does not answer
_QUIET_S = 1.0


class GatewayConnection:
    """The one session of a kernel with its gateway; found, opened and replaced as need be."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._session_id = secrets.token_hex(8)
        self._session: GatewaySession | None = None
        self._has_said_which = False

    def open(self, settings: GpuRelease) -> GatewaySession:
        """Return a session that is welcome at the gateway; starts this machine's own cluster if none is known.

        Raises the reason why there is none. A configured gateway that is down is never replaced by the local one.
        """
        target = find_target(settings)
        session = self._session
        if session is not None and session.connected and session.serves(target):
            return session
        had_ended = target is not None and not is_alive(target)
        if target is None or had_ended:
            if session is not None and has_ended(session.target):  # else it waits for its head
                self.close()
            target = self._start_own(settings, had_ended=had_ended)
        session = self._connected(target)
        self._say_which_once(session)
        return session

    @property
    def session_id(self) -> str:
        """The id of this kernel's session, also before it is opened."""
        return self._session_id

    def is_configured(self, settings: GpuRelease) -> bool:
        """Tell if a gateway is named; else this machine's own cluster is used."""
        target = find_target(settings)
        return target is not None and target.configured

    def target(self, settings: GpuRelease) -> Target:
        """The gateway as far as it is known, without starting anything; for status and lists."""
        target = find_target(settings)
        if target is None or not is_alive(target):
            raise GatewayUnavailableError(
                "no cluster is running here and no gateway is configured",
                hint="the first %%gpu_train starts this machine's own; JUPYTER_GPU_URL names the team's",
            )
        return target

    def session(self, settings: GpuRelease) -> GatewaySession:
        """The session with a gateway that is there; starts nothing."""
        target = self.target(settings)
        session = self._session
        return session if session is not None and session.serves(target) else self._connected(target)

    def session_in_contact(self, settings: GpuRelease) -> GatewaySession:
        """As :meth:`session`, and waits for one that has lost contact; it goes on trying when that takes too long."""
        session = self.session(settings)
        self._reach(session)
        return session

    def close(self, timeout_s: float = 2.0) -> None:
        """Say good-bye to the gateway (runs that are attached to this kernel end)."""
        session, self._session = self._session, None
        if session is not None:
            session.close(timeout_s)

    def _connected(self, target: Target) -> GatewaySession:
        if self._session is not None and not self._session.serves(target):
            self.close()
        if self._session is None:
            self._session = GatewaySession(target, self._session_id)
        try:
            self._reach(self._session)
        except BaseException as error:
            # an interrupt shall not wait for threads
            self.close(2.0 if isinstance(error, Exception) else 0.1)
            raise
        return self._session

    def _reach(self, session: GatewaySession) -> None:
        line = StatusLine(CellOutput(self._shell))
        end = f"connecting to the gateway {session.target.url}: not done"

        def say(waited_s: float) -> None:
            if waited_s >= _QUIET_S:
                line.show_text(f"connecting to the gateway {session.target.url} … ({waited_s:.0f} s)")

        try:
            connect(session, say)
            end = f"connected to the gateway {session.target.url}"
        finally:
            line.end(end)

    def _start_own(self, settings: GpuRelease, *, had_ended: bool) -> Target:
        check_may_start(settings)
        line = StatusLine(CellOutput(self._shell))
        why = "starting this machine's own cluster" + (" anew (it had ended)" if had_ended else "")
        line.show_text(f"{why} …")
        try:
            target = start_own(settings, lambda step: line.show_text(f"{why}: {step} …"))
        except BaseException:
            line.finish_plain(f"{why}: not done")
            raise
        self._has_said_which = False
        session = self._connected(target)
        if session.welcome is not None:
            line.finish(describe_cluster(session.welcome), {})
            self._has_said_which = True
        return target

    def _say_which_once(self, session: GatewaySession) -> None:
        if self._has_said_which or session.welcome is None:
            return
        self._has_said_which = True
        if session.welcome.embedded and not session.target.configured:
            StatusLine(CellOutput(self._shell)).finish(describe_cluster(session.welcome), {})
        elif why := _why_no_store(session):
            text = f"Of cells that are sent from here, names above 1 MiB in all neither go nor come back: {why}"
            StatusLine(CellOutput(self._shell)).finish_plain(text)


def _why_no_store(session: GatewaySession) -> str:
    """Why this kernel does not see the store, and the cure. One that hangs is told of where a value needs it."""
    from ..submission.request import find_store

    found: list[StoreError] = []

    def look() -> None:
        try:
            find_store(session.target.store, session.welcome, configured=session.target.configured)
        except StoreError as error:
            found.append(error)

    looking = threading.Thread(target=look, name="jgr-store-look", daemon=True)
    looking.start()
    looking.join(_QUIET_S)
    return f"{found[0].message}; {found[0].hint}" if found else ""


def describe_cluster(welcome: Welcome) -> dict[str, str]:
    """The one line that says that this is this machine's own cluster, and whether its GPUs are real."""
    kind = "simulated GPUs" if welcome.simulated else "GPUs"
    number = f"{welcome.gpus_most} {kind if welcome.gpus_most != 1 else kind[:-1]}"
    if welcome.gpus_borrowed_most:
        number = f"up to {number}, on nodes that are borrowed when cells need them"
    text = f"This is this machine's own cluster: {number}. It runs until `jupyter gpu stop`."
    return bundle_of(text, boxed_html(to_html(text)))
