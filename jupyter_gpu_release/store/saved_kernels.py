"""Variables of kernels that the idle policy has ended: where they are, and when they go."""

from __future__ import annotations

import contextlib
import stat
from pathlib import Path

from ..settings.built_in import BUILT_IN
from .files import make_store_folder

KEPT_S: float = BUILT_IN["saved_kernels_kept_s"].default


def saved_kernel_path(store: Path, kernel: str) -> Path:
    """Path for the variables of a kernel; its folder is there. Raises :class:`StoreError`."""
    folder = store / "saved"
    make_store_folder(folder)
    return folder / f"{kernel}.pkl"


def sweep_saved_kernels(store: Path, now_s: float, *, dry_run: bool = False) -> int:
    """Remove what is older than it is kept, whole or left by a kernel that died; returns the bytes."""
    folder, freed = store / "saved", 0
    for path in () if folder.is_symlink() else folder.glob("*.pkl*"):
        with contextlib.suppress(OSError):  # somebody else removes it, or may
            facts = path.lstat()
            if stat.S_ISREG(facts.st_mode) and facts.st_mtime < now_s - KEPT_S:
                if not dry_run:
                    path.unlink()
                freed += facts.st_size
    return freed
