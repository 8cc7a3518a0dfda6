"""Stores of their own for several users below one root, and root's processes that act for them.

``<root>/users/<uid>`` is that user's alone. What lies there, or anywhere below the root, root's processes touch with
the file-system identity of its owner only (``setfsuid``, of the thread): so a link leads nowhere that the owner could
not go, and a file server that gives root no rights is no obstacle. A spool has the same folders.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import platform
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from ..errors import StoreError
from .layout import USERS_FOLDER as FOLDER

T = TypeVar("T")
_ENTER_ONLY, _ANYBODY = 0o711, 0o1777
#: the call itself: glibc's function would change all threads of the process
_SETGROUPS = {"x86_64": 116, "aarch64": 159}.get(platform.machine())
#: roots below which this process acts for the owners. Of the process, not an argument: it holds for every path below
_roots: set[str] = set()


def separate_users(root: Path) -> None:
    """Act for the owners of what lies below this root from now on; raises :class:`StoreError` where that is unknown."""
    if _SETGROUPS is None:
        raise StoreError(f"cells cannot run as their owners on {platform.machine()}", hint="choose another store mode")
    _roots.add(str(root))


def own_folder(root: Path, uid: int) -> Path:
    """The folder of one user."""
    return root / FOLDER / str(uid)


def own_folders(root: Path) -> list[tuple[int, Path]]:
    """All users with a folder of their own below a root, and the folders."""
    try:
        names = os.listdir(root / FOLDER)
    except OSError:
        return []
    return sorted((int(name), root / FOLDER / name) for name in names if name.isdecimal() and int(name))


def owner_of(path: Path) -> int | None:
    """The user in whose folder a path lies, by its name; None for any other."""
    found = _place_of(path)
    return found[1] if found is not None else None


def _place_of(path: Path) -> tuple[Path, int | None] | None:
    """The root above a path, and the user in whose folder it lies."""
    for folder in (path, *path.parents) if _roots else ():
        if str(folder) in _roots:
            parts = path.relative_to(folder).parts
            own = len(parts) > 1 and parts[0] == FOLDER and parts[1].isdecimal()
            return folder, int(parts[1]) if own else None
    return None


@contextlib.contextmanager
def acting_for(path: Path) -> Iterator[None]:
    """Have the file-system identity of whoever owns the folder that ``path`` lies in; of this thread, without awaiting.

    Raises :class:`StoreError` for a folder that is another user's than its name says, and where it is not there.
    """
    found = _place_of(path)
    if found is None or os.geteuid():
        yield
        return
    root, uid = found
    folder = root if uid is None else own_folder(root, uid)
    try:
        facts = os.stat(folder, follow_symlinks=False)
    except OSError as error:
        raise StoreError(f"cannot enter {folder}: {error.strerror}", hint="is the store mounted?") from error
    if uid is not None and facts.st_uid != uid:
        raise StoreError(f"{folder} belongs to user {facts.st_uid}: not used", hint="remove it by hand")
    with file_identity(facts.st_uid, facts.st_gid):
        yield


def acting(path: Path, work: Callable[..., T]) -> Callable[..., T]:
    """``work``, done as :func:`acting_for`."""
    if not _roots:
        return work

    @functools.wraps(work)
    def do(*arguments: object) -> T:
        with acting_for(path):
            return work(*arguments)

    return do


@contextlib.contextmanager
def file_identity(uid: int, gid: int, groups: Sequence[int] = ()) -> Iterator[None]:
    """Have these rights at files, in this thread and those that it begins meanwhile; raises OSError. For root only."""
    if uid == 0:
        yield
        return
    before = os.getgroups()
    try:
        _set_groups([gid, *groups])
        _set_file_ids(uid, gid)
        yield
    finally:
        _set_file_ids(0, 0)
        _set_groups(before)


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _set_file_ids(uid: int, gid: int) -> None:
    libc = _libc()
    libc.setfsgid(gid)
    libc.setfsuid(uid)
    if (libc.setfsuid(-1), libc.setfsgid(-1)) != (uid, gid):
        raise PermissionError(1, f"cannot act for user {uid}")


def _set_groups(groups: Sequence[int]) -> None:
    wanted = (ctypes.c_uint * len(groups))(*groups)
    if _libc().syscall(_SETGROUPS, len(groups), wanted):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def open_to_users(root: Path) -> None:
    """Have a folder for each user's own below the root, which they may pass; raises :class:`StoreError`.

    Where the root is not root's own (a file server gives that no rights), each user makes their own.
    """
    folder = root / FOLDER
    closed = [str(above) for above in root.parents if not above.stat().st_mode & 0o001]
    if closed:
        raise StoreError(
            f"users cannot come to their folders in {root}: only some may enter {', '.join(closed)}",
            hint="name another folder: `start --store`, JUPYTER_GPU_SPOOL",
        )
    try:
        with acting_for(root):
            folder.mkdir(exist_ok=True)
            is_roots = os.stat(root).st_uid == 0
            for path, mode in ((root, _ENTER_ONLY), (folder, _ENTER_ONLY if is_roots else _ANYBODY)):
                if os.stat(path).st_mode & 0o7777 != mode:
                    path.chmod(mode)
    except OSError as error:
        raise StoreError(
            f"cannot make {folder}: {error.strerror}",
            hint=f"install -d -m 711 -o OWNER {root}, for a user who may write there",
        ) from error


def make_own_folder(root: Path, uid: int, gid: int) -> Path:
    """The folder of one user, made if it is not there; raises :class:`StoreError`."""
    folder = own_folder(root, uid)
    try:
        if not folder.is_dir():
            _make_own(root, folder, uid, gid)
    except OSError as error:
        raise StoreError(
            f"cannot make {folder}: {error.strerror}", hint=f"install -d -m 700 -o {uid} {folder}"
        ) from error
    return folder


def _make_own(root: Path, folder: Path, uid: int, gid: int) -> None:
    if os.stat(root).st_uid:
        with file_identity(uid, gid):
            folder.mkdir(mode=0o700, exist_ok=True)
        return
    made = folder.with_name(f".{folder.name}.{os.getpid()}")
    made.mkdir(mode=0o700, exist_ok=True)
    os.chown(made, uid, gid)
    with contextlib.suppress(FileExistsError):
        os.rename(made, folder)  # seen only once it is theirs
