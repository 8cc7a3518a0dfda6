"""Packages that this node would give a cell: the distributions behind its imports, and what those require."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import platform
import sys
import threading
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

from blake3 import blake3
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from ...protocol.lineage import ABSENT, Environment
from ..installed_packages import folders_stamp

#: an operator's name for the image that this node runs
IMAGE_VARIABLE = "JUPYTER_GPU_IMAGE"
_MOST_FILES = 5000
_MOST_BYTES = 64 << 20


class Packages:
    """Answers from what is installed now; what does not change is looked up once. For threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stamp: object = None
        self._by_import: Mapping[str, list[str]] = {}
        self._closures: dict[str, dict[str, str]] = {}

    def environment(self, imports: Iterable[str]) -> Environment:
        """Return what top-level ``imports`` mean here, with the versions of everything that they require."""
        versions: dict[str, str] = {}
        files: dict[str, str | None] = {}
        with self._lock:
            self._refresh()
            for name in sorted(set(imports) - sys.stdlib_module_names):
                distributions = self._by_import.get(name, [])
                for each in distributions:
                    versions |= self._closure(canonicalize_name(each))
                if not distributions or any(map(_is_editable, distributions)):  # a version does not tell what is in it
                    files[name] = _digest_of_files(name)
        known = {name: digest for name, digest in files.items() if digest is not None}
        return Environment(
            platform.python_version(),
            platform.platform(),
            os.environ.get(IMAGE_VARIABLE, ""),
            dict(sorted((versions | known).items())),
            [name for name in files if name not in known],
        )

    def _refresh(self) -> None:
        stamp = folders_stamp()
        if stamp != self._stamp:
            importlib.invalidate_caches()
            self._by_import = metadata.packages_distributions()
            self._closures.clear()
            self._stamp = stamp

    def _closure(self, name: str) -> dict[str, str]:
        """Versions of a distribution and of all that it requires and is here."""
        if name not in self._closures:
            found: dict[str, str] = {}
            waiting = [name]
            while waiting:
                each = waiting.pop()
                if each not in found:
                    distribution = _find(each)
                    if distribution is not None:
                        found[each] = distribution.version
                        waiting += _required_by(distribution)
            self._closures[name] = found
        return self._closures[name]


def _find(name: str) -> metadata.Distribution | None:
    try:
        return metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None


def _required_by(distribution: metadata.Distribution) -> list[str]:
    names: list[str] = []
    for text in distribution.requires or []:
        try:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                names.append(canonicalize_name(requirement.name))
        except (InvalidRequirement, ValueError):
            continue
    return names


def _is_editable(name: str) -> bool:
    distribution = _find(name)
    text = distribution.read_text("direct_url.json") if distribution is not None else None
    try:
        return bool(text) and bool(json.loads(text or "{}").get("dir_info", {}).get("editable"))
    except ValueError:
        return True


def _digest_of_files(name: str) -> str | None:
    """A package without a distribution, or one that is edited in place: the digest of its files; None: not known."""
    try:
        spec = importlib.util.find_spec(_top(name))
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None:
        return ABSENT
    if spec.origin in ("built-in", "frozen"):
        return spec.origin
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    files = [Path(spec.origin)] if not folders and spec.origin else sorted(_files_below(folders))
    if not files or len(files) > _MOST_FILES:
        return None
    return _digest(files)


def _files_below(folders: list[Path]) -> list[Path]:
    return [
        path for folder in folders for path in folder.rglob("*") if "__pycache__" not in path.parts and path.is_file()
    ]


def _digest(files: list[Path]) -> str | None:
    digest, size = blake3(), 0
    for path in files:
        try:
            data = path.read_bytes()
        except OSError:
            return None
        size += len(data)
        if size > _MOST_BYTES:
            return None
        digest.update(f"{path.name}:{len(data)};".encode() + data)
    return f"files:{digest.hexdigest()}"


def missing_packages(names: list[str]) -> list[str]:
    """Return the top-level packages of ``names`` that are not installed here."""
    importlib.invalidate_caches()
    return [name for name in names if not _is_importable(name)]


def _is_importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(_top(name)) is not None
    except (ImportError, ValueError, AttributeError):
        return False


def _top(name: str) -> str:
    """``find_spec`` of ``a.b`` imports ``a``: no code of a user's choice runs in the agent."""
    return name.partition(".")[0]
