"""This kernel's way to a gateway: the configured one, else this machine's own cluster, started when need be."""

from __future__ import annotations

import html
import os
import secrets
from typing import Any

from ..client.discovery import Target, find_gateway
from ..client.session import GatewaySession
from ..core.messages import Welcome
from ..errors import GatewayUnavailableError, GpuReleaseError
from .receipt import boxed, bundle_of
from .settings import GpuRelease
from .status_line import StatusLine

CONNECT_S = 15.0


class ClusterLink:
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
        if session is not None and session.connected and session.target == target:
            return session
        had_ended = target is not None and not is_alive(target)
        if target is None or had_ended:
            self.close()
            target = self._start_own(settings, had_ended=had_ended)
        session = self._connected(target)
        self._say_which_once(session)
        return session

    def target(self, settings: GpuRelease) -> Target:
        """The gateway as far as it is known, without starting anything; for status and lists."""
        target = find_target(settings)
        if target is None or not is_alive(target):
            raise GatewayUnavailableError(
                "no cluster is running here and no gateway is configured",
                mend="the first %%gpu_train starts this machine's own; JUPYTER_GPU_URL names the team's",
            )
        return target

    def session(self, settings: GpuRelease) -> GatewaySession:
        """The session with a gateway that is there; starts nothing."""
        target = self.target(settings)
        session = self._session
        return session if session is not None and session.target == target else self._connected(target)

    def close(self) -> None:
        """Say good-bye to the gateway (runs that are attached to this kernel end)."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _connected(self, target: Target) -> GatewaySession:
        if self._session is not None and self._session.target != target:
            self.close()
        if self._session is None:
            self._session = GatewaySession(target, self._session_id)
        try:
            self._session.connect(CONNECT_S)
        except GpuReleaseError:
            self.close()
            raise
        return self._session

    def _start_own(self, settings: GpuRelease, *, had_ended: bool) -> Target:
        from ..client.autostart import start_local_cluster

        if settings.auto_start == "never":
            raise GatewayUnavailableError(
                "no cluster is running here, no gateway is configured, and auto_start is 'never'",
                mend="set JUPYTER_GPU_URL, or run `jupyter gpu start`",
            )
        line = StatusLine(self._shell)
        why = "starting this machine's own cluster" + (" anew (it had ended)" if had_ended else "")
        line.say(f"{why} …")
        try:
            start_local_cluster(lambda step: line.say(f"{why}: {step} …"), options=settings.start_options)
        except BaseException:
            line.finish_plain(f"{why}: not done")
            raise
        self._has_said_which = False
        target = find_target(settings)
        if target is None:
            raise GatewayUnavailableError(
                "the local cluster was started but left no connection file", mend="run `jupyter gpu doctor`"
            )
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
            StatusLine(self._shell).finish(describe_cluster(session.welcome), {})


def find_target(settings: GpuRelease) -> Target | None:
    """Where the environment, else the configuration files, else the connection file of this machine point."""
    return find_gateway(
        url=_unless("JUPYTER_GPU_URL", settings.url),
        token_file=_unless("JUPYTER_GPU_TOKEN_FILE", _unless("JUPYTER_GPU_TOKEN", settings.token_file)),
        store=_unless("JUPYTER_GPU_STORE", settings.store),
    )


def _unless(variable: str, setting: str | None) -> str | None:
    """A file's setting, unless the environment says otherwise."""
    return None if os.environ.get(variable) else setting or None


def is_alive(target: Target) -> bool:
    """Whether this machine's own cluster still runs (its keeper process does); a configured gateway counts as alive."""
    connection = target.connection
    if target.configured or connection is None or not connection.keeper_pid:
        return True
    import psutil

    try:
        keeper = psutil.Process(connection.keeper_pid)
        same = abs(keeper.create_time() - connection.keeper_created) < 2.0 or not connection.keeper_created
        return same and keeper.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def describe_cluster(welcome: Welcome) -> dict[str, str]:
    """The one line that says that this is this machine's own cluster, and whether its GPUs are real."""
    kind = "simulated GPUs" if welcome.simulated else "GPUs"
    number = f"{welcome.gpus_total} {kind if welcome.gpus_total != 1 else kind[:-1]}"
    text = f"This is this machine's own cluster: {number}. It runs until `jupyter gpu stop`."
    return bundle_of(text, boxed(html.escape(text)))
