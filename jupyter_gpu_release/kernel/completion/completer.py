"""Tab and Shift+Tab in a magic's line: what IPython's completer and the kernel's help ask."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from IPython.core.completer import (
    CompletionContext,
    SimpleCompletion,
    SimpleMatcherResult,
    context_matcher,
    provisionalcompleter,
)

from ...client.cluster_facts.facts import ClusterFacts
from ...options.definitions import OPTIONS, Option
from .candidates import Candidate, Candidates, Offer
from .magic_line import MagicLine, find_magic_line

#: before IPython's own matchers, which would offer keywords and files
_FIRST = 1000.0
_PACKAGE = __name__.partition(".")[0]
_UNBROKEN = {ord(" "): "\N{NO-BREAK SPACE}", ord("-"): "\N{NON-BREAKING HYPHEN}"}


class _Silence(Sequence[SimpleCompletion]):
    """No candidates, said with a length of one: IPython lets only who has some silence the other matchers."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, at: Any) -> Any:
        raise IndexError(at)

    def __iter__(self) -> Iterator[SimpleCompletion]:
        return iter(())


class MagicCompleter:
    """Completes our magics' lines in a shell; in a Jupyter kernel it answers for help on options, too."""

    def __init__(self, shell: Any, facts: ClusterFacts, own_runs: Callable[[], Collection[str]]) -> None:
        self._shell = shell
        self._candidates = Candidates(shell, facts, own_runs)
        self._kernel = getattr(shell, "kernel", None)

        @context_matcher(priority=_FIRST, identifier="jupyter_gpu_release.magics")  # type: ignore[untyped-decorator]
        def match(context: CompletionContext) -> SimpleMatcherResult:
            return self._match(context)

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

    def _match(self, context: CompletionContext) -> SimpleMatcherResult:
        line = find_magic_line(context.full_text, context.cursor_line, context.cursor_position)
        if line is None or not self._is_ours(line):
            return SimpleMatcherResult(completions=[], suppress=False)
        offer = self._candidates.offer(line) or self._python(line.cursor.statement)
        if offer is None:
            return SimpleMatcherResult(completions=[], suppress=False)
        return SimpleMatcherResult(
            completions=self._shown(offer) or _Silence(), matched_fragment=offer.typed, suppress=True, ordered=True
        )

    def _shown(self, offer: Offer) -> list[SimpleCompletion]:
        return [SimpleCompletion(each.text, type=self._unbroken(each.about) or "value") for each in offer.candidates]

    def _unbroken(self, text: str) -> str:
        """JupyterLab breaks what stands beside a candidate at blanks and hyphens, over the next ones."""
        return text if self._kernel is None else text.translate(_UNBROKEN)

    def _python(self, statement: str) -> Offer | None:
        """``%gpu_train --gpus 2 model.f``: the code behind the options by itself; with them it is no Python."""
        if not statement:
            return None
        with provisionalcompleter():
            found = list(self._shell.Completer.completions(statement, len(statement)))
        if not found:
            return Offer("")
        start = min(each.start for each in found)
        texts = [Candidate(statement[start : each.start] + each.text, each.type or "") for each in found]
        return Offer(statement[start:], tuple(texts))

    def _is_ours(self, line: MagicLine) -> bool:
        magic = self._shell.magics_manager.magics["line"].get(line.magic)
        if type(getattr(magic, "__self__", None)).__module__.partition(".")[0] != _PACKAGE:
            return False
        if line.has_percent:
            return True
        return bool(self._shell.automagic) and line.magic not in self._shell.user_ns and not line.goes_on_as_python

    def inspect(self, code: str, cursor_pos: int, detail_level: int = 0, omit_sections: Any = ()) -> Any:
        """Answer an ``inspect_request``: on an option or its value its sentence, elsewhere on the line the manual.

        What the kernel answers itself is handed on as it is: it may be awaitable.
        """
        before = code[:cursor_pos]
        line = find_magic_line(code, before.count("\n"), len(before) - before.rfind("\n") - 1)
        if line is None or line.magic not in ("gpu_train", "gpu_config") or not self._is_ours(line):
            return self._inspect(code, cursor_pos, detail_level, omit_sections)
        cursor = line.cursor_behind_word
        option = cursor.option or OPTIONS.get(cursor.typed.lstrip("-").replace("_", "-").lower())
        if option is not None:
            data = {"text/plain": help_of(option, is_setting=line.magic == "gpu_config")}
            return {"status": "ok", "found": True, "data": data, "metadata": {}}
        if cursor.statement and not line.is_cell:
            return self._inspect(code, cursor_pos, detail_level, omit_sections)
        manual = f"%{line.magic}"
        return self._inspect(manual, len(manual), detail_level, omit_sections)


def help_of(option: Option, *, is_setting: bool = False) -> str:
    """The option as it is written, its sentence, and usual values."""
    name = f"{option.name}={option.metavar or 'yes'}" if is_setting else f"--{option.name} {option.metavar}".rstrip()
    usual = f"\n\nFor example: {', '.join(option.values)}" if option.values else ""
    return f"{name}\n\n{option.help.replace('`', '')}{usual}"
