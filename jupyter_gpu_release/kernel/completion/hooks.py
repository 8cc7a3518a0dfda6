"""Tab and Shift+Tab in a shell, led to our completer; it is imported at the first one that may be about our magics."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from IPython.core.completer import CompletionContext, SimpleMatcherResult, context_matcher

if TYPE_CHECKING:
    from .completer import MagicCompleter

#: before IPython's own matchers, which would offer keywords and files
_FIRST = 1000.0
#: all our magics' names begin so
_OURS = "gpu_"


class CompletionHooks:
    """Our matcher in a shell's completer; in a Jupyter kernel our answers for help on options, too.

    ``make`` is called once, at the first text that has the beginning of our names.
    """

    def __init__(self, shell: Any, make: Callable[[], MagicCompleter]) -> None:
        self._shell = shell
        self._make = make
        self._kernel = getattr(shell, "kernel", None)

        @context_matcher(priority=_FIRST, identifier="jupyter_gpu_release.magics")  # type: ignore[untyped-decorator]
        def match(context: CompletionContext) -> SimpleMatcherResult:
            found = self._completer.match(context) if _OURS in context.full_text else None
            return SimpleMatcherResult(completions=[], suppress=False) if found is None else found

        self._matcher = match
        shell.Completer.custom_matchers.append(match)
        if self._kernel is not None:
            self._inspect = self._kernel.do_inspect
            self._kernel.do_inspect = self.inspect

    def end(self) -> None:
        """Take both out again."""
        with contextlib.suppress(ValueError):  # the user has set the list anew
            self._shell.Completer.custom_matchers.remove(self._matcher)
        if self._kernel is not None and self._kernel.__dict__.get("do_inspect") == self.inspect:
            del self._kernel.do_inspect

    def inspect(self, code: str, cursor_pos: int, detail_level: int = 0, omit_sections: Any = ()) -> Any:
        """Answer an ``inspect_request``: in our lines as the completer says, elsewhere as the kernel does.

        What the kernel answers itself is handed on as it is: it may be awaitable.
        """
        about: str | dict[str, Any] | None = self._completer.help_at(code, cursor_pos) if _OURS in code else None
        if isinstance(about, dict):
            return about
        if about is not None:
            code, cursor_pos = about, len(about)
        return self._inspect(code, cursor_pos, detail_level, omit_sections)

    @cached_property
    def _completer(self) -> MagicCompleter:
        return self._make()
