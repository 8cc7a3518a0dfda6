"""Reads what this interpreter has installed; what did not change is read once.

``importlib.metadata`` takes seconds for some hundred distributions: it parses their descriptions, too.
"""

from __future__ import annotations

import itertools
import json
import os
import platform
import re
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from packaging.markers import default_environment
from packaging.utils import canonicalize_name

from ..protocol.environments import NAME_PATTERN, OURS, VERSION_PATTERN, Distribution, Installed, Origin
from .editable import EditableFiles, find_editable

#: folders of installed packages, whoever put them on the path
_SITE = frozenset({"site-packages", "dist-packages"})
_SUFFIXES = (".dist-info", ".egg-info")
_FIELD = re.compile(rb"^(Name|Version|Requires-Dist):[ \t]*(.*?)[ \t]*\r?$", re.MULTILINE)
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
_INIT = b"/__init__."
_MODULE_END = re.compile(rb"(?:py|[\w.\-]*so),")
_MODULE = re.compile(rb"\n(\w+)\.(?:py|[\w.\-]*so),")
_EXTENSION = re.compile(rb"\.so(?:\.[\d.]+)?,")
_ONLY_EXTRA = re.compile(r";.*\bextra\s*==")


class _Known(NamedTuple):
    """A distribution as it was when its folder had this time."""

    mtime_ns: int
    distribution: Distribution | None
    editable: EditableFiles | None


class InstalledReader:
    """Answers for one interpreter, from the folders of packages on its path. ``folders``: others than these."""

    def __init__(self, folders: Sequence[str] | None = None) -> None:
        self._given = folders
        self._known: dict[str, _Known] = {}
        self._editables: list[EditableFiles] = []
        self._stamp: object = None
        self._installed: Installed | None = None

    def read(self) -> Installed:
        """Return what is installed now: a look at the folders' times, and at what changed."""
        folders = self._folders()
        if self._installed is None or self._look(folders) != self._stamp:
            before = _stamp(folders)
            self._installed = self._read_all(folders)
            self._stamp = before, self._look(folders)[1]  # what was installed meanwhile is seen by the next look
        return self._installed

    def metadata_folder(self, name: str) -> Path | None:
        """The metadata folder of a distribution that was read; None: there is none."""
        for path, known in self._known.items():
            if known.distribution is not None and known.distribution.name == name:
                return Path(path)
        return None

    def _look(self, folders: Iterable[str]) -> tuple[object, object]:
        return _stamp(folders), [each.stamp() for each in self._editables]

    def _folders(self) -> list[str]:
        if self._given is not None:
            return list(self._given)
        return list(dict.fromkeys(entry for entry in sys.path if os.path.basename(entry.rstrip("/")) in _SITE))

    def _read_all(self, folders: Iterable[str]) -> Installed:
        known: dict[str, _Known] = {}
        found: dict[str, Distribution] = {}
        for path, mtime_ns in _metadata_folders(folders):
            entry = self._known.get(path)
            if entry is None or entry.mtime_ns != mtime_ns or entry.editable is not None:
                entry = _read(path, mtime_ns, entry.editable if entry else None)
            known[path] = entry
            if entry.distribution is not None:  # the first on the path is the one that is imported
                found.setdefault(entry.distribution.name, entry.distribution)
        self._known = known
        self._editables = [each.editable for each in known.values() if each.editable is not None]
        markers = {name: str(value) for name, value in default_environment().items()}
        markers.pop("platform_release", None)  # kernels of one cluster differ, and nothing is required for them
        markers.pop("platform_version", None)
        return Installed.of(platform.python_version(), sysconfig.get_platform(), markers, list(found.values()))


def _stamp(folders: Iterable[str]) -> list[tuple[str, int]]:
    found = []
    for folder in folders:
        try:
            found.append((folder, os.stat(folder).st_mtime_ns))
        except OSError:  # an entry of the path that is not there
            continue
    return found


def _metadata_folders(folders: Iterable[str]) -> Iterable[tuple[str, int]]:
    for folder in folders:
        try:
            with os.scandir(folder) as entries:
                found = [each for each in entries if each.name.endswith(_SUFFIXES)]
        except OSError:
            continue
        for each in sorted(found, key=lambda each: each.name):
            try:
                yield each.path, each.stat().st_mtime_ns
            except OSError:  # it is being removed
                continue


def _read(path: str, mtime_ns: int, before: EditableFiles | None) -> _Known:
    fields = _FIELD.findall(_head(path))
    values = {key: value.decode("utf-8", "replace") for key, value in reversed(fields)}
    name, version = str(canonicalize_name(values.get(b"Name", ""))), values.get(b"Version", "")
    if not (re.match(NAME_PATTERN, name) and re.match(VERSION_PATTERN, version)):
        return _Known(mtime_ns, None, None)  # half installed, or half removed
    record = _read_bytes(f"{path}/RECORD")
    origin, source, digest = _origin(path)
    is_looked_at = origin is Origin.EDITABLE and name != OURS
    editable = find_editable(Path(path), record, source, before) if is_looked_at else None
    requires = [value.decode("utf-8", "replace") for key, value in fields if key == b"Requires-Dist"]
    return _Known(
        mtime_ns,
        Distribution(
            name,
            version,
            origin,
            source,
            digest if editable is None else editable.digest(),
            record.count(b"\n") if editable is None else len(editable.files),
            _is_pure(path, record) if editable is None else editable.is_pure,
            [text for text in requires if not _ONLY_EXTRA.search(text)],
            _imports(record) if editable is None else editable.imports,
        ),
        editable,
    )


def _head(path: str) -> bytes:
    """Metadata without the description, which may hold anything."""
    files = (f"{path}/METADATA",) if path.endswith(".dist-info") else (f"{path}/PKG-INFO", path)
    for file in files:
        text = _read_bytes(file)
        if text:
            return _END_OF_HEAD.split(text, 1)[0]
    return b""


def _read_bytes(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""


def _origin(path: str) -> tuple[Origin, str, str]:
    """Origin, source and digest of the archive."""
    if _read_bytes(f"{path}/INSTALLER").strip() == b"conda":
        return Origin.CONDA, "", ""  # its direct URL is a folder of the machine that built it
    text = _read_bytes(f"{path}/direct_url.json")
    if not text:
        return Origin.INDEX, "", ""
    try:
        facts = json.loads(text)
        return _direct_origin(facts)
    except (ValueError, AttributeError, TypeError):
        return Origin.URL, "", ""


def _direct_origin(facts: dict[str, Any]) -> tuple[Origin, str, str]:
    url = str(facts.get("url", ""))
    archive = facts.get("archive_info")
    if "dir_info" in facts:
        is_editable = facts["dir_info"].get("editable") is True
        return (Origin.EDITABLE if is_editable else Origin.FOLDER), without_credentials(url), ""
    digest = ""
    if archive is not None:
        hashes = archive.get("hashes") or {}
        digest = f"sha256:{hashes['sha256']}" if "sha256" in hashes else str(archive.get("hash", "")).replace("=", ":")
    elif "vcs_info" in facts:
        digest = f"commit:{facts['vcs_info'].get('commit_id', '')}"
    is_file = url.startswith("file:")
    return (Origin.WHEEL if is_file else Origin.URL), without_credentials(url), digest


def without_credentials(url: str) -> str:
    """A URL without user, password and query."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _is_pure(path: str, record: bytes) -> bool:
    wheel = _read_bytes(f"{path}/WHEEL")
    return b"Root-Is-Purelib: false" not in wheel and _EXTENSION.search(record) is None


def _imports(record: bytes) -> list[str]:
    """From a list of files that may have many thousand lines: only those that tell are looked at."""
    pieces = record.split(_INIT)
    packages = {
        before[before.rfind(b"\n") + 1 :].decode("utf-8", "replace")
        for before, after in itertools.pairwise(pieces)
        if _MODULE_END.match(after)
    }
    modules = {module.decode() for module in _MODULE.findall(b"\n" + record)}
    return topmost({name for name in packages if not name.startswith("..")} | modules)


def topmost(names: Iterable[str]) -> list[str]:
    """Those of ``a``, ``a/b``, … that lie in none of the others."""
    found: list[str] = []
    for name in sorted(names, key=lambda name: name.split("/")):
        if not (found and name.startswith(found[-1] + "/")):
            found.append(name)
    return found
