"""Run folders: made by the kernel (or the gateway), described by a manifest."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ..errors import StoreError
from ..protocol.states import RunState
from .files import SHARED_FOLDER, make_private_folder, make_store_folder, open_plain, write_atomic
from .identity import FILE, check_identity, ensure_identity
from .layout import SAVE_FILE, SCHEMA_VERSION, VALUES_FILE, RunPaths, of_attempt

_READ_BY_GROUP = 0o640


def make_store(store: Path, ident: str = "") -> str:
    """Make the folders of a store; returns its id. Only who begins to use one does that: see :func:`require_store`.

    ``ident``: the id it gets where it has none (a user's store has that of the whole); empty: a new one.
    """
    make_private_folder(store / "runs")
    return ensure_identity(store, ident)


def share_store(store: Path, group: int) -> None:
    """Have ``group`` share a store: what is made there from now on is the group's. Raises :class:`StoreError`."""
    for folder in (store, store / "runs", store / "blobs"):
        make_private_folder(folder)
        _share(folder, group, SHARED_FOLDER)
    identity = store / FILE
    if identity.exists():  # it was made before the store was shared
        _share(identity, group, _READ_BY_GROUP)


def _share(path: Path, group: int, mode: int) -> None:
    try:
        facts = os.stat(path)
        if facts.st_gid != group or facts.st_mode & mode != mode:
            os.chown(path, -1, group)
            os.chmod(path, mode)
    except OSError as error:
        hint = f"as its owner, a member of the group: chgrp {group} {path}; chmod {mode:o} {path}"
        raise StoreError(f"cannot share {path} with group {group}: {error.strerror}", hint=hint) from error


def require_store(store: Path) -> None:
    """Raise :class:`StoreError` when the store is not there (unmounted, renamed), or another one in its place.

    It is never made anew in its place: what is written there would be hidden when it comes back.
    """
    if not os.path.isdir(store / "runs"):
        if os.path.isdir(store) and not os.access(store, os.X_OK):
            hint = "its operator adds your account to the group that shares it"
            raise StoreError(f"Unix user {os.geteuid()} may not enter the store {store}", hint=hint)
        raise StoreError(f"the store {store} is not there", hint="is it mounted?")
    check_identity(store)


def create_run_folder(store: Path, run: str) -> RunPaths:
    """Make the folder of ``run`` (0700) with its ``files/``; fine when it is there already."""
    paths = RunPaths.of(store, run)
    make_store_folder(paths.files)
    return paths


def write_manifest(paths: RunPaths, manifest: dict[str, Any], *, durable: bool) -> None:
    """Replace the manifest (plain JSON, ``schema_version`` added)."""
    document = {"schema_version": SCHEMA_VERSION, **manifest}
    write_atomic(paths.manifest, [msgspec.json.format(msgspec.json.encode(document), indent=1)], durable=durable)


def read_manifest(paths: RunPaths, *, opener: Callable[[Path], int] = open_plain) -> dict[str, Any]:
    """Read the manifest; raises :class:`StoreError` when it is missing, damaged or of a newer version."""
    try:
        with os.fdopen(opener(paths.manifest), "rb") as file:
            document: dict[str, Any] = msgspec.json.decode(file.read(), type=dict)
    except OSError as error:
        raise StoreError(f"cannot read {paths.manifest}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise StoreError(f"{paths.manifest} is damaged: {error}") from error
    version = document.get("schema_version")
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise StoreError(
            f"{paths.manifest} has schema_version {version}, this package reads up to {SCHEMA_VERSION}",
            hint="upgrade jupyter_gpu_release",
        )
    return document


def drop_saves(paths: RunPaths, results: str) -> None:
    """Remove what attempts have left to go on from, once the run is over; ``results``: the file that came of it."""
    for pattern in (SAVE_FILE.format(number="*"), of_attempt(VALUES_FILE, "*"), VALUES_FILE):
        for path in paths.folder.glob(pattern):
            if path.name != results:
                path.unlink(missing_ok=True)


def saved_since(paths: RunPaths) -> float | None:
    """Since when the run's results are being saved, says its manifest (unix seconds); None when they are not."""
    try:
        manifest = read_manifest(paths)
    except StoreError:
        return None
    at_s = manifest.get("gone_at")
    return float(at_s) if manifest.get("state") == RunState.PERSISTING.word and isinstance(at_s, int | float) else None


def explain_collected(paths: RunPaths) -> str:
    """Time and reason of the removal of the run's results, in words; empty when there was none (or nobody can tell)."""
    try:
        manifest = read_manifest(paths)
    except StoreError:
        return ""
    at_s = manifest.get("collected_at")
    if not isinstance(at_s, int | float):
        return ""
    return f"{time.strftime('%Y-%m-%d %H:%M', time.localtime(at_s))}: {manifest.get('collected_because', '')}"


def probe_store(store: Path) -> None:
    """Write, read and remove a small file; raises :class:`StoreError` with path and reason."""
    require_store(store)
    probe = store / f".probe-{id(store):x}"
    write_atomic(probe, [b"probe"], durable=False)
    try:
        if probe.read_bytes() != b"probe":
            raise StoreError(f"{probe} does not read back what was written")
    finally:
        probe.unlink(missing_ok=True)
