"""Code of the user, told from that of libraries."""

from __future__ import annotations

import os
from typing import Any


def is_of_the_user(function: Any) -> bool:
    """Tell if it is code of the notebook or of a module of its own, and not of a library."""
    return is_file_of_the_user(getattr(getattr(function, "__code__", None), "co_filename", "<frozen"))


def is_file_of_the_user(file: str) -> bool:
    """Tell if a source file is no library's (of a notebook's cell: what Python calls it)."""
    return not file.startswith(("<frozen", os.path.dirname(os.__file__))) and "site-packages" not in file
