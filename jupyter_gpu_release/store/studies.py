"""Studies of sweeps that have a name, or are driven on the cluster: their files, and removing them."""

from __future__ import annotations

import contextlib
import stat
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from ..errors import StoreError

_KIND = ".journal"


@dataclass(frozen=True)
class StoredStudy:
    """One study. ``used_at``: when it was last written or opened."""

    path: Path
    user: str
    name: str
    bytes: int
    used_at: float


def study_path(store: Path, user: str, name: str) -> Path:
    """The file of a user's study of that name: Optuna's journal."""
    return store / "studies" / quote(user, safe="") / f"{quote(name, safe='')[:200]}{_KIND}"


def list_studies(store: Path) -> list[StoredStudy]:
    """All studies in a store; links are none."""
    found, root = [], store / "studies"
    for path in () if root.is_symlink() else root.glob(f"*/*{_KIND}"):
        folder = path.parent
        if not folder.is_symlink():
            with contextlib.suppress(OSError):  # somebody else removes it, or may
                facts = path.lstat()
                if stat.S_ISREG(facts.st_mode):
                    name = unquote(path.name.removesuffix(_KIND))
                    found.append(StoredStudy(path, unquote(folder.name), name, facts.st_size, facts.st_mtime))
    return found


def remove_study(study: StoredStudy) -> bool:
    """Remove it with what Optuna's lock has left; False: somebody has used it since. Raises :class:`StoreError`."""
    try:
        if study.path.lstat().st_mtime != study.used_at:
            return False
        study.path.unlink()
        for lock in study.path.parent.glob(f"{study.path.name}.lock*"):
            lock.unlink(missing_ok=True)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StoreError(
            f"cannot remove study {study.name}: {error.strerror}", hint=f"check owner and rights of {study.path}"
        ) from error
    with contextlib.suppress(OSError):  # it has others
        study.path.parent.rmdir()
    return True
