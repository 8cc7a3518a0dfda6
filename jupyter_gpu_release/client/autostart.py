"""Starting this machine's own cluster from another process (kernel, Jupyter server): runs the command line, never Ray.

``python -m jupyter_gpu_release.cli start --progress-json`` prints one JSON record a line: :class:`Progress`
while it works, at last :class:`Ready` or :class:`Failed`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import IO

import msgspec

from ..errors import ClusterError, from_code
from .home import Connection


class Progress(msgspec.Struct, frozen=True, tag_field="kind", tag="progress"):
    """One step, in words for people ("starting Ray"), ``elapsed_s`` after the beginning."""

    text: str
    elapsed_s: float = 0.0


class Ready(msgspec.Struct, frozen=True, tag_field="kind", tag="ready"):
    """The cluster answers. ``started`` false: it ran already and is reused; ``replaced``: the version of its gateway
    before."""

    connection: Connection
    started: bool
    gpus: int = 0
    elapsed_s: float = 0.0
    replaced: str = ""


class Failed(msgspec.Struct, frozen=True, tag_field="kind", tag="failed"):
    """Nothing was started and nothing is left; ``code`` as in errors.py."""

    code: str
    message: str
    hint: str = msgspec.field(default="", name="mend")


StartLine = Progress | Ready | Failed


def start_local_cluster(
    progress: Callable[[str], None], *, options: Sequence[str] = (), environment: dict[str, str] | None = None
) -> Ready:
    """Start the embedded cluster (or find the running one) and call ``progress`` with each step's words.

    Blocks for some seconds; an interrupt (KeyboardInterrupt) ends the attempt and leaves nothing. ``options``
    are those of ``jupyter gpu start``. Raises :class:`GpuReleaseError` with the reason.
    """
    process = subprocess.Popen(
        start_command(options),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **(environment or {})},
        start_new_session=True,
    )
    try:
        return _follow(process, progress)
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate()


def start_command(options: Sequence[str]) -> list[str]:
    """The command that starts it and prints one JSON record a line."""
    return [sys.executable, "-m", "jupyter_gpu_release.cli", "start", "--progress-json", *options]


def read_step(raw: bytes) -> Progress | Ready | None:
    """Read one line of that command; None: something else was printed. Raises the reason when nothing was started."""
    try:
        line: StartLine = msgspec.json.decode(raw, type=StartLine)
    except msgspec.DecodeError:
        return None
    if isinstance(line, Failed):
        raise from_code(line.code, line.message, line.hint)
    return line


def ended_without_word(status: int, said: bytes) -> ClusterError:
    """The error for a start that ended before it said how; ``said``: what it wrote on standard error."""
    last = said.decode(errors="replace").strip()[-400:] or "it said nothing"
    return ClusterError(
        f"the start of the local cluster ended with status {status}: {last}",
        hint="run `jupyter gpu start` in a terminal, then `jupyter gpu doctor`",
    )


def _follow(process: subprocess.Popen[bytes], progress: Callable[[str], None]) -> Ready:
    stdout: IO[bytes] | None = process.stdout
    other = b""
    for raw in stdout or ():
        line = read_step(raw)
        if isinstance(line, Ready):
            return line
        if line is None:
            other = raw
        else:
            progress(line.text)
    said = (process.stderr.read() if process.stderr else b"") or other
    raise ended_without_word(process.wait(), said)
