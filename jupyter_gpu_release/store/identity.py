"""Identity of the store at a path: ``<store>/store.json``, written when the store is made.

A folder under a mount point looks like a store while the filesystem is away, when somebody once made ``runs/`` there.
What is written to it would be hidden when the filesystem comes back. So each process that writes knows the id of the
store that it means, and looks before it writes.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from pathlib import Path

import msgspec

from ..errors import StoreError
from .files import read_plain, write_atomic

FILE = "store.json"
_VERSION = 1
#: store's path → id of the store that this process means by it. Of the process, not an argument: every write below the
#: path is checked, also by code that is only given the path of a file
_expected: dict[str, str] = {}
#: store's path → the id that was read there last, and what ``stat`` said of the file
_read: dict[str, tuple[str, tuple[int, ...]]] = {}


class StoreIdentity(msgspec.Struct, frozen=True):
    """The file's content. ``created_at``: unix seconds."""

    schema_version: int
    id: str
    created_at: float


def read_identity(store: Path) -> str:
    """The id of the store at this path; empty where no file says one (or an empty file, which accepts any).

    Raises :class:`StoreError` for a file that cannot be read, is damaged or of a newer version.
    """
    path = store / FILE
    try:
        raw = read_plain(path)
        found = msgspec.json.decode(raw, type=StoreIdentity) if raw.strip() else None
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise StoreError(
            f"cannot read {path}: {error.strerror}", hint="check the filesystem, and who owns it"
        ) from error
    except msgspec.MsgspecError as error:
        hint = f"bring it back from a backup; `: > '{path}'` takes what lies there as it is"
        raise StoreError(f"{path} is damaged: {error}", hint=hint) from error
    if found is None:
        return ""
    if found.schema_version > _VERSION:
        text = f"{path} has schema_version {found.schema_version}, this package reads up to {_VERSION}"
        raise StoreError(text, hint="upgrade jupyter_gpu_release")
    return found.id


def ensure_identity(store: Path, ident: str = "") -> str:
    """The id of the store at this path, given to it now where it has none (``ident``, or a new one).

    Raises :class:`StoreError`.
    """
    known = read_identity(store)
    if known:
        return known
    path, made = store / FILE, StoreIdentity(_VERSION, ident or secrets.token_hex(8), time.time())
    with contextlib.suppress(OSError):  # one that is empty
        if path.stat().st_size == 0:
            path.unlink()
    temp = path.with_name(f".{FILE}.{made.id}")
    try:
        write_atomic(temp, [msgspec.json.format(msgspec.json.encode(made), indent=1), b"\n"])
        try:
            os.link(temp, path)  # the first of several gateways gives the name
        except FileExistsError:
            return read_identity(store)
        except OSError:  # a filesystem without links
            os.replace(temp, path)
    finally:
        with contextlib.suppress(OSError):
            temp.unlink(missing_ok=True)
    return made.id


def expect_store(store: Path, ident: str) -> None:
    """Let this process mean, from now on, the store ``ident`` by this path (empty: whichever is there)."""
    if ident:
        _expected[str(store)] = ident
    else:
        _expected.pop(str(store), None)


def check_identity(store: Path, wanted: str = "") -> None:
    """Raise :class:`StoreError` when another store lies there than ``wanted`` (else: than this process means)."""
    wanted = wanted or _expected.get(str(store), "")
    if not wanted:
        return
    stamp = _stamp(store)
    if stamp and _read.get(str(store)) == (wanted, stamp):  # the same file, unchanged: one look instead of five
        return
    found = read_identity(store)
    _read[str(store)] = found, stamp
    if found != wanted:
        what = f"is another store ({FILE} says {found})" if found else f"is not the store (it has no {FILE})"
        raise StoreError(f"what lies at {store} {what}: nothing is written there", hint=hint_of(store))


def _stamp(store: Path) -> tuple[int, ...]:
    """Tells the file from any other and from what it was before; empty where there is none."""
    try:
        seen = os.stat(store / FILE)
    except OSError:
        return ()
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns


def hint_of(store: Path) -> str:
    """Advice for when another store lies there, or none."""
    accept = f"`: > '{store / FILE}'`, then `jupyter gpu stop` and `start`"
    return f"is it mounted? To begin anew with what lies there: {accept}"
