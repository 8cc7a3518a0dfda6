"""The fork server that a cluster's daemon starts beside Ray, before there is an agent: found, looked at, taken over."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import socket
import struct
import sys
from collections.abc import Mapping
from pathlib import Path

from ...host.process_control import ForeignProcess, command_of
from ...host.processes import environment_of

log = logging.getLogger(__name__)
_CREDENTIALS = struct.Struct("3i")
_LIMITS = ("NOFILE", "NPROC", "CORE", "STACK", "MEMLOCK", "AS", "DATA", "FSIZE", "SIGPENDING", "MSGQUEUE")


class EarlyServer(ForeignProcess):
    """A process that is no child of ours and ends with us all the same: it watches the line that we hold."""

    def __init__(self, path: Path, line: socket.socket, pid: int) -> None:
        super().__init__(pid)
        #: socket for orders
        self.path = path.with_suffix(".sock")
        self._line = line

    @classmethod
    def claim(cls, path: str) -> EarlyServer | None:
        """Take it over, if there is one that nobody has: it is found once."""
        line, control = socket.socket(socket.AF_UNIX), Path(f"{path}.ctl")
        line.setblocking(False)
        try:
            line.connect(str(control))
            control.unlink()
            pid, uid, _ = _CREDENTIALS.unpack(line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
            if uid == os.getuid():
                return cls(Path(path), line, pid)
        except OSError:  # there is none, or it has ended
            pass
        line.close()
        return None

    def is_fit(self, environment: Mapping[str, str]) -> bool:
        """Tell if it is what we would start ourselves; then it also has our limits from here on."""
        found = environment_of(self.pid)
        other = sorted(name for name in {*found, *environment} if found.get(name) != environment.get(name))
        program = command_of(self.pid).split(b"\0")[0].decode(errors="replace")
        if other or program != sys.executable:
            log.warning("the fork server that was started early is of no use here: %s", ", ".join(other) or program)
            return False
        self._give_limits()
        return True

    def _give_limits(self) -> None:
        """As if it were our child: Ray has set some for its workers."""
        for name in _LIMITS:
            kind = getattr(resource, f"RLIMIT_{name}")
            with contextlib.suppress(OSError, ValueError):
                resource.prlimit(self.pid, kind, resource.getrlimit(kind))
        with contextlib.suppress(OSError):
            own = Path("/proc/self/oom_score_adj").read_text()
            Path(f"/proc/{self.pid}/oom_score_adj").write_text(own)

    def status_descriptor(self) -> int:
        """A descriptor from which its words are read; to be closed by whoever reads."""
        return os.dup(self._line.fileno())

    def kill(self) -> None:
        """End it now."""
        self._line.close()
        super().kill()
