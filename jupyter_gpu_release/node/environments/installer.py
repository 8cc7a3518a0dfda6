"""Calls the installer (uv): in a process group of its own, with the operator's settings, without secrets in its words.

What it is told of indexes, proxies and certificates is the operator's: this process's own ``UV_…`` variables and the
:class:`Sources`. It gets them in its environment: other users of the machine can read the arguments of a process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from ...environments.installer import find_installer
from ...errors import ClusterError
from ...host import process_control
from ...host.child_process import child_process

#: of this process's environment, by their beginnings
_PASSED = (
    process_control.CLUSTER_MARKER,
    process_control.NODE_MARKER,
    "UV_",
    "SSL_",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "NETRC",
    "HOME",
    "PATH",
    "LANG",
    "LC_",
)
_USER = re.compile(r"(?<=://)[^/@\s]+@")
_QUERY = re.compile(r"(://[^\s?#]+)[?#][^\s'\"`)]*")
_MOST_WORDS = 4000
#: the installer's words on what no other package would change, what that means, and what to do about it
_CAUSES = (
    (
        re.compile("No space left on device|Disk quota exceeded"),
        "the node's disk for environments is full",
        "make room there, or have the operator choose another folder for environments",
    ),
    (
        re.compile(r"error sending request|client error \(Connect\)|operation timed out"),
        "the node's index does not answer",
        "`jupyter gpu doctor` looks whether nodes reach it; `--environment cluster` needs no index",
    ),
    (
        re.compile("Hash mismatch"),
        "a wheel is not the one that was announced: its hash differs",
        "run the cell again; if that does not help, the index, or a proxy before it, has changed the file",
    ),
)
#: from its end on request to a kill
_END_S = 2.0


class Sources(msgspec.Struct, frozen=True, omit_defaults=True):
    """Places that wheels come from, as the operator says. Empty: as this process's environment says.

    ``index``: URL. ``find_links``: folders or pages of wheels. ``offline``: there is no index.
    """

    index: str = ""
    find_links: list[str] = msgspec.field(default_factory=list)
    offline: bool = False
    source_builds: bool = False


class InstallerError(ClusterError):
    """The installer refused; the message ends in its own last words. ``words``: these alone.

    It has a hint where the reason is known, and is none of the packages' availability.
    """

    def __init__(self, message: str, *, hint: str = "", words: str = "") -> None:
        super().__init__(message, hint=hint)
        self.words = words

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.message, self.hint, self.words)


def _rebuild(message: str, hint: str, words: str) -> InstallerError:
    return InstallerError(message, hint=hint, words=words)


class Installer:
    """One node's uv. ``cache``: its folder, on the filesystem of the environments: files of packages are hard links."""

    def __init__(self, cache: Path, sources: Sources, environ: Mapping[str, str] | None = None) -> None:
        self._cache = cache
        self._sources = sources
        self._environ = dict(os.environ if environ is None else environ)

    @property
    def has_index(self) -> bool:
        """Tell if packages come from an index, which may be out of reach."""
        return not self._sources.offline

    def has_fetched(self, name: str, version: str) -> bool:
        """Tell if this version is unpacked in the cache, whoever needed it."""
        found = self._cache.glob(f"wheels-*/**/{name}/*{version}-*")
        return any(path.suffix != ".msgpack" for path in found)  # that is its metadata

    async def call(self, arguments: Sequence[str], folder: Path, *, keep_open: int | None = None) -> str:
        """Return what uv writes, called in ``folder``.

        ``keep_open``: a descriptor that lives as long as the process does: a lock of ours outlives us with it.
        Raises :class:`InstallerError`; when the task is cancelled, the process has ended before this returns.
        """
        command = [find_installer(), *arguments, *(self._switches if arguments[0] == "pip" else ())]
        ended = await run_program(command, folder, self._variables(), keep_open=keep_open)
        if ended.status:
            raise self._error(ended.words, ended.status)
        return ended.output

    @property
    def pythons(self) -> Path:
        """Folder of the Pythons that it has fetched."""
        return Path(self._variables()["UV_PYTHON_INSTALL_DIR"])

    @property
    def marks(self) -> dict[str, str]:
        """Variables by which processes of this node are found when their agent was killed."""
        marks = (process_control.CLUSTER_MARKER, process_control.NODE_MARKER)
        return {name: self._environ[name] for name in marks if name in self._environ}

    def _variables(self) -> dict[str, str]:
        found = {name: value for name, value in self._environ.items() if name.upper().startswith(_PASSED)}
        for name in ("UV_PYTHON", "UV_COMPILE_BYTECODE"):  # the second would start the packages' own code
            found.pop(name, None)
        found |= {
            "UV_CACHE_DIR": str(self._cache),
            "UV_LINK_MODE": "hardlink",
            "UV_PYTHON_DOWNLOADS": "manual",  # where it is told to
            "UV_PYTHON_INSTALL_BIN": "0",  # not into the user's ~/.local/bin
            "UV_NO_PROGRESS": "1",
            "NO_COLOR": "1",
        }
        found.setdefault("UV_PYTHON_INSTALL_DIR", str(self._cache.with_name("pythons")))
        if "UV_CONFIG_FILE" not in found:
            found["UV_NO_CONFIG"] = "1"
        if self._sources.index:
            found["UV_DEFAULT_INDEX"] = self._sources.index
        if self._sources.find_links:
            found["UV_FIND_LINKS"] = ",".join(self._sources.find_links)
        return found

    @property
    def _switches(self) -> list[str]:
        no_index = ["--no-index"] if self._sources.offline else []
        return no_index if self._sources.source_builds else [*no_index, "--no-build"]

    def _error(self, words: str, status: int) -> InstallerError:
        said = without_secrets(words.strip())[-_MOST_WORDS:] or f"it ended with status {status} and said nothing"
        found = ((f"{cause}\n", hint) for known, cause, hint in _CAUSES if known.search(said))
        cause, hint = next(found, ("", ""))
        return InstallerError(f"{cause}the installer says:\n{said}", hint=hint, words=said)


def without_secrets(text: str) -> str:
    """The text without users, passwords and queries of URLs."""
    return _QUERY.sub(r"\1", _USER.sub("", text))


class Ended(NamedTuple):
    """A process that has ended: its status, and what it wrote to standard output and error."""

    status: int
    output: str
    words: str


async def run_program(
    command: Sequence[str],
    folder: Path,
    environ: Mapping[str, str],
    *,
    said: bytes | None = None,
    keep_open: int | None = None,
) -> Ended:
    """Run a command in a process group of its own, and tell it ``said``; raises OSError where there is no such program.

    When the task is cancelled, the process has ended before this returns, with all that it has started.
    """
    options = {
        "stdin": DEVNULL if said is None else PIPE,
        "stdout": PIPE,
        "stderr": PIPE,
        "cwd": folder,
        "env": environ,
        "pass_fds": () if keep_open is None else (keep_open,),
        "start_new_session": True,
    }
    async with child_process(tuple(command), _end, **options) as process:
        output, words = await process.communicate(said)
    return Ended(process.returncode or 0, output.decode(errors="replace"), words.decode(errors="replace"))


async def _end(process: Process) -> None:
    """End it with all that it has started; it has time to tidy up."""
    if process.returncode is not None:
        return
    try:
        await _signal(process, signal.SIGTERM)
    finally:  # also where the agent ends meanwhile, and cancels this, too
        await _signal(process, signal.SIGKILL)


async def _signal(process: Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _END_S)
