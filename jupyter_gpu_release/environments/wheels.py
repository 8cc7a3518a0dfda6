"""Makes a wheel of an installed pure-Python distribution: so it gets to nodes that cannot take it from an index.

The same files give the same bytes.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from packaging.utils import canonicalize_name

from ..errors import CannotSendError
from .editable import MOST_BYTES, find_editable

#: of its metadata folder; what tells of this installation, and not of the package, stays
_METADATA = frozenset({"METADATA", "entry_points.txt", "top_level.txt"})
_WHEEL = "Wheel-Version: 1.0\nGenerator: jupyter_gpu_release\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_TIME = (1980, 1, 1, 0, 0, 0)


class Wheel(NamedTuple):
    """A wheel in memory. ``digest``: as pip writes it (``sha256:…``)."""

    file_name: str
    content: bytes
    digest: str


def pack_wheel(metadata: Path, name: str, version: str, source: str = "") -> Wheel:
    """Return a wheel of the distribution whose metadata folder (``….dist-info``) this is.

    Parameters
    ----------
    source
        Its folder, where it is edited in place.

    Raises
    ------
    CannotSendError
        Some of its files cannot be read, or they are too large.
    """
    stem = f"{canonicalize_name(name).replace('-', '_')}-{version.replace('-', '_')}"
    try:
        files = _files(metadata, f"{stem}.data", source)
        return _packed(stem, metadata, files)
    except OSError as error:
        raise CannotSendError(
            f"{name} {version} cannot be sent along: {error.filename or metadata}: {error.strerror}",
            hint=f"install it again here (`pip install --force-reinstall {name}`), or on the cluster",
        ) from error


def _files(metadata: Path, data: str, source: str) -> dict[str, Path]:
    record = (metadata / "RECORD").read_bytes()
    if source:
        return {name: Path(file) for name, file in find_editable(metadata, record, source).files.items()}
    found: dict[str, Path] = {}
    for listed in _listed(record.decode("utf-8", "replace")):
        path = metadata.parent / listed
        if metadata.name in Path(listed).parts or listed.endswith(".pyc") or not path.is_file():
            continue
        inside = listed if not listed.startswith("..") else _outside(path, data)
        if inside:
            found[inside] = path
    return found


def _listed(record: str) -> Iterable[str]:
    return (row[0] for row in csv.reader(io.StringIO(record)) if row)


def _outside(path: Path, data: str) -> str:
    """A data file, by its place below the interpreter's prefix; scripts are made again of the entry points."""
    parts = Path(os.path.normpath(path)).parts
    for folder in ("share", "etc"):
        if folder in parts:
            return "/".join([data, "data", *parts[parts.index(folder) :]])
    return ""


def _packed(stem: str, metadata: Path, files: dict[str, Path]) -> Wheel:
    if sum(path.stat().st_size for path in files.values()) > MOST_BYTES:
        raise CannotSendError(
            f"{stem}: its files are more than {MOST_BYTES >> 20} MiB, too much to send along",
            hint="build a wheel of it and have the operator put it where the cluster's nodes find it",
        )
    info = f"{stem}.dist-info"
    contents = {name: path.read_bytes() for name, path in sorted(files.items())}
    for path in sorted(metadata.iterdir()):
        if path.name in _METADATA:
            contents[f"{info}/{path.name}"] = path.read_bytes()
    contents[f"{info}/WHEEL"] = _WHEEL.encode()
    rows = [f"{_quoted(name)},sha256={_hash(content)},{len(content)}\n" for name, content in contents.items()]
    contents[f"{info}/RECORD"] = "".join([*rows, f"{info}/RECORD,,\n"]).encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        for name, content in contents.items():
            archive.writestr(zipfile.ZipInfo(name, _TIME), content)
    whole = packed.getvalue()
    return Wheel(f"{stem}-py3-none-any.whl", whole, f"sha256:{hashlib.sha256(whole).hexdigest()}")


def _quoted(name: str) -> str:
    return f'"{name}"' if "," in name else name


def _hash(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
