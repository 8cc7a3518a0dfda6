"""Exceptions that the notebook keeps: they stay themselves, with the traceback that they have here."""

from __future__ import annotations

import contextlib
import types
from typing import Any


def update(old: Any, new: Any) -> bool | None:
    """Bring an exception to what came back for it; None: it is none."""
    if not isinstance(old, BaseException):
        return None
    if isinstance(old, BaseExceptionGroup):  # of which errors, nobody can change
        return False
    old.args = new.args
    vars(old).clear()
    vars(old).update(vars(new))
    for name in ("__cause__", "__context__"):
        if getattr(old, name) is None and (found := getattr(new, name)) is not None:
            setattr(old, name, found)
    for kind in type(old).__mro__:
        for member in [each for each in vars(kind).values() if isinstance(each, types.MemberDescriptorType)]:
            with contextlib.suppress(AttributeError, TypeError):  # empty, or read-only
                member.__set__(old, member.__get__(new, kind))
    return True
