"""Files of a run's folder, as a save knows them: their lengths. Set back when the run goes on from it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path


def file_lengths(folder: Path) -> dict[str, int]:
    """Path below ``folder`` → length."""
    found: dict[str, int] = {}
    for root, _folders, names in os.walk(folder):
        for name in names:
            path = os.path.join(root, name)
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                found[os.path.relpath(path, folder)] = os.lstat(path).st_size
    return found


def set_back(folder: Path, lengths: Mapping[str, int]) -> None:
    """Cut files to these lengths, and remove those that have none. What is shorter stays so."""
    for name, length in file_lengths(folder).items():
        path = folder / name
        if name not in lengths:
            path.unlink(missing_ok=True)
        elif length > lengths[name] and not path.is_symlink():
            os.truncate(path, lengths[name])
