"""A plain script that launches functions, from outside."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any


class Script:
    """A script's process; ``facts`` are what it printed as JSON on its last line."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def end(self, limit_s: float = 200) -> tuple[Any, str]:
        """What it found out, and its stderr; it must end well."""
        out, err = self.process.communicate(timeout=limit_s)
        assert self.process.returncode == 0, err
        return json.loads(out.splitlines()[-1]), err

    def line(self) -> str:
        """The next line that it prints."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


StartScript = Callable[[str], Script]
