"""Warnings that Python shows once in a process are shown once in a notebook, whose GPU cells are many processes."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from typing import Any

#: module, text, category, line
Shown = tuple[str, str, str, int]


class OnceWarnings:
    """Leaves out what an earlier GPU cell has shown, and notes what this one shows."""

    def __init__(self, shown_before: Iterable[Shown]) -> None:
        self._before: set[Any] = set(map(tuple, shown_before))
        self._show = getattr(warnings, "_showwarnmsg_impl", None)
        #: for the notebook
        self.shown: list[Shown] = []

    def begin(self) -> None:
        """Begin to watch (a filter that records warnings, or the user's own way to show them, goes before)."""
        if self._show is not None:
            warnings._showwarnmsg_impl = self._on_warning  # type: ignore[attr-defined]

    def end(self) -> None:
        """Leave it as it was."""
        if self._show is not None:
            warnings._showwarnmsg_impl = self._show  # type: ignore[attr-defined]

    def _on_warning(self, message: Any) -> None:
        which = _once_only(str(message.message), message.category, message.lineno)
        if which in self._before:
            self._before.discard(which)  # it is in a registry of this process now
            return
        if which is not None:
            self.shown.append(which)
        if self._show is not None:
            self._show(message)


def _once_only(text: str, category: type[Warning], line: int) -> Shown | None:
    """Key by which the warning is known again; None: its filter shows it always, so that no registry has it."""
    kind = f"{category.__module__}.{category.__qualname__}"
    if (text, category) in warnings.onceregistry:  # type: ignore[attr-defined]
        return "", text, kind, 0
    for name, module in list(sys.modules.items()):
        registry = getattr(module, "__dict__", {}).get("__warningregistry__")
        if isinstance(registry, dict) and ((text, category, line) in registry or (text, category, 0) in registry):
            return name, text, kind, line
    return None
