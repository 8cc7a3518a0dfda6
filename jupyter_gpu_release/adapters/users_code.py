"""Code of the user, told from that of libraries."""

from __future__ import annotations

import os
import sys
from typing import Any


def is_of_the_user(function: Any) -> bool:
    """Tell if it is code of the notebook or of a module of its own, and not of a library."""
    return is_file_of_the_user(getattr(getattr(function, "__code__", None), "co_filename", "<frozen"))


def is_file_of_the_user(file: str) -> bool:
    """Tell if a source file is no library's (of a notebook's cell: what Python calls it)."""
    return not file.startswith(("<frozen", os.path.dirname(os.__file__))) and "site-packages" not in file


def is_class_of_the_user(kind: type) -> bool:
    """Tell if a class is the notebook's, or of a module of its own."""
    module = getattr(kind, "__module__", None)
    file = getattr(sys.modules.get(str(module)), "__file__", None)
    return module == "__main__" or is_file_of_the_user(file or "<frozen")
