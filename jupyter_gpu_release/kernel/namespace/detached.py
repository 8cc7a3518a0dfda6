"""Tensors that came home without their computation graph: what PyTorch's words about it mean here."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any

_CAME_DETACHED = re.compile(r"`(\w+)` came back detached")
_RIDDLE = "does not require grad and does not have a grad_fn"
_MOST_NAMED = 3


class DetachedResults:
    """Adds a sentence to the error of a ``backward()`` on such a tensor, in plain cells as well."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._came: dict[str, Any] = {}

    def add_notes(self, notes: Iterable[str]) -> None:
        """Take in the notes of a run whose names are bound."""
        names = [found[1] for found in map(_CAME_DETACHED.match, notes) if found]
        self._came |= {name: self._shell.user_ns.get(name) for name in names}
        if self._came and not self._shell.custom_exceptions:  # else the user has a handler
            self._shell.set_custom_exc((RuntimeError,), self._show)

    def end(self) -> None:
        """Take the handler back."""
        if self._came and self._shell.custom_exceptions == (RuntimeError,):
            self._shell.set_custom_exc((), None)
        self._came = {}

    def hint(self, error: str, among: Collection[str] | None = None) -> str:
        """A sentence about PyTorch's text ``error``, or nothing."""
        space = self._shell.user_ns
        self._came = {name: value for name, value in self._came.items() if space.get(name) is value}
        names = [f"`{name}`" for name in self._came if among is None or name in among]
        if _RIDDLE not in error or not names:
            return ""
        came = f"{', '.join(names[:_MOST_NAMED])} came back from a GPU cell without the graph that computed"
        return f"{came} {'it' if len(names) == 1 else 'them'}: call backward() in the cell that computes the loss"

    def _show(
        self, shell: Any, etype: type[BaseException], value: BaseException, tb: Any, tb_offset: Any = None
    ) -> None:
        """Show it as IPython shows any error, with our sentence below it."""
        hint = self.hint(str(value))
        if hint:
            value.add_note(hint)
        shell.showtraceback((etype, value, tb), tb_offset=tb_offset, running_compiled_code=True)
