"""Launching from a plain script: no kernel, no IPython; the script's ``__main__`` is the namespace."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import threading
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from ..analysis.device_choices import DeviceHistory
from ..analysis.sources import OF_FILE, SOURCES_LIMIT_BYTES
from ..client.config import GpuRelease, check_may_start, find_target, load_settings, start_own
from ..client.discovery import Target, is_alive
from ..client.session import GatewaySession, connect
from ..options.definitions import Written, from_mapping, overlay
from ..options.run_options import RunOptions, build_options
from ..presentation.plain_text import is_stderr, text_of
from ..protocol.cell import CellSource
from ..protocol.events import Event
from ..serialization.rebuild import NamespaceInfo
from ..submission.capture import CapturedInputs, InputCapture
from ..submission.location import CellLocation
from .executor import FunctionExecutor, Show, keep_quiet


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
        check_may_start(self.settings)
        why = "starting this machine's own cluster (it runs until `jupyter gpu stop`)"

        def say(step: str) -> None:
            sys.stderr.write(f"{why}: {step} …\n")

        return start_own(self.settings, say)

    def _texts(self) -> list[str]:
        """The script as one cell, where it is a file of reasonable size."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            path = Path(_script())
            if path.is_file() and path.stat().st_size <= SOURCES_LIMIT_BYTES:
                return [path.read_text()]
        return []


def _script() -> str:
    path = getattr(sys.modules["__main__"], "__file__", None)
    return os.path.abspath(path) if path else ""


def _print(events: Sequence[Event]) -> None:
    for event in events:
        if event.kind != "error":  # raised by `result`
            stream = sys.stderr if is_stderr(event) else sys.stdout
            stream.write(text_of(event))
            stream.flush()
