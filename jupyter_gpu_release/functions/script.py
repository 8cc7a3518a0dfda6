"""Launching from a plain script: no kernel, no IPython; the script's ``__main__`` is the namespace."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import threading
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from ..analysis.device_choices import DeviceHistory
from ..analysis.sources import OF_FILE, SOURCES_LIMIT_BYTES
from ..client.autostart import start_local_cluster
from ..client.config import GpuRelease, find_target, load_settings
from ..client.discovery import Target, is_alive, is_refused
from ..client.session import GatewaySession
from ..errors import GatewayUnavailableError
from ..options.definitions import Written, from_mapping, overlay
from ..options.run_options import RunOptions, build_options
from ..presentation.plain_text import is_stderr, text_of
from ..protocol.cell import CellSource
from ..protocol.events import Event
from ..serialization.rebuild import NamespaceInfo
from ..submission.capture import CapturedInputs, InputCapture
from ..submission.location import CellLocation
from .executor import FunctionExecutor, Show

_CONNECT_S = 15.0
#: a port of this machine at which nobody listens: a gateway that restarts is back by then
_REFUSED_HERE_S = 5.0
_TICK_S = 0.25


class ScriptExecutor(FunctionExecutor):
    """Connects when something is launched, and starts this machine's own cluster if none is known."""

    def __init__(self, names: dict[str, Any] | None = None, program: str = "script") -> None:
        names = vars(sys.modules["__main__"]) if names is None else names
        realm = NamespaceInfo(names, at_home=True)
        super().__init__(realm, InputCapture(names, realm), DeviceHistory(names, self._texts))
        self._session_id = f"{program}-{secrets.token_hex(6)}"
        self._session: GatewaySession | None = None
        self._connecting = threading.Lock()

    @cached_property
    def settings(self) -> GpuRelease:
        """The settings in Jupyter's configuration files."""
        return load_settings(None)

    def session(self) -> GatewaySession:  # noqa: D102
        with self._connecting:
            target = find_target(self.settings)
            session = self._session
            if session is not None and session.connected and session.serves(target):
                return session
            if target is None or not is_alive(target):
                target = self._start_own()
            if session is None or not session.serves(target):
                if session is not None:
                    session.close()
                session = self._session = GatewaySession(target, self._session_id)
            connect(session)
            return session

    def close(self) -> None:
        """End the session, and with it the runs that are not detached."""
        with self._connecting:
            if self._session is not None:
                self._session.close()

    def parse_options(self, written: Written) -> RunOptions:  # noqa: D102
        return build_options(overlay(from_mapping(self.settings.defaults), written))

    def location(self) -> CellLocation:  # noqa: D102
        return CellLocation(notebook=_script(), line_offset=0, program="script")

    def source_texts(self, prepared: CapturedInputs) -> Sequence[CellSource]:
        """The script's text: nodes need not see the file."""
        path = getattr(sys.modules["__main__"], "__file__", None) or ""
        if not path or path.encode(errors="replace") not in prepared.stream:
            return []
        return [CellSource(path, OF_FILE, text) for text in self._texts()]

    def output_listener(self, *, live: bool) -> Show:  # noqa: D102
        return _print if live else keep_quiet

    def _start_own(self) -> Target:
        if self.settings.auto_start == "never":
            raise GatewayUnavailableError(
                "no cluster is running here, no gateway is configured, and auto_start is 'never'",
                hint="set JUPYTER_GPU_URL, or run `jupyter gpu start`",
            )
        why = "starting this machine's own cluster (it runs until `jupyter gpu stop`)"

        def say(step: str) -> None:
            sys.stderr.write(f"{why}: {step} …\n")

        start_local_cluster(say, options=self.settings.start_options)
        target = find_target(self.settings)
        if target is None:
            raise GatewayUnavailableError(
                "the local cluster was started but left no connection file", hint="run `jupyter gpu doctor`"
            )
        return target

    def _texts(self) -> list[str]:
        """The script as one cell, where it is a file of reasonable size."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            path = Path(_script())
            if path.is_file() and path.stat().st_size <= SOURCES_LIMIT_BYTES:
                return [path.read_text()]
        return []


def connect(session: GatewaySession) -> None:
    """Wait until the session is welcome; a gateway that restarts gets the time for that."""
    began = time.monotonic()
    while True:
        try:
            session.connect(_TICK_S)
        except GatewayUnavailableError as error:
            here = session.target.is_loopback and session.target.connection is None and is_refused(error)
            if time.monotonic() - began >= (_REFUSED_HERE_S if here else _CONNECT_S):
                raise session.trouble or session.unanswered(time.monotonic() - began) from None
        else:
            return


def _script() -> str:
    path = getattr(sys.modules["__main__"], "__file__", None)
    return os.path.abspath(path) if path else ""


def _print(events: Sequence[Event]) -> None:
    for event in events:
        if event.kind != "error":  # raised by `result`
            stream = sys.stderr if is_stderr(event) else sys.stdout
            stream.write(text_of(event))
            stream.flush()


def keep_quiet(_events: Sequence[Event]) -> None:
    """Show nothing; output is recorded, and ``logs()`` has it."""
