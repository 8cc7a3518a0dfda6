"""Tab and Shift+Tab in a magic's line: what IPython's completer and the kernel's help ask."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, provisionalcompleter

from ...client.cluster_facts import ClusterFacts
from ...options.definitions import Option
from ...presentation.plain_text import without_backticks
from .candidates import Candidate, Candidates, Offer
from .magic_line import MagicLine, find_magic_line

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
    """Candidates and help for our magics' lines in a shell."""

    def __init__(self, shell: Any, facts: ClusterFacts, own_runs: Callable[[], Collection[str]]) -> None:
        self._shell = shell
        self._candidates = Candidates(shell, facts, own_runs)
        self._is_in_kernel = getattr(shell, "kernel", None) is not None

    def match(self, context: CompletionContext) -> SimpleMatcherResult | None:
        """Give the candidates at the cursor; None where it is in no line of ours, or in one's Python."""
        line = find_magic_line(context.full_text, context.cursor_line, context.cursor_position)
        if line is None or not self._is_ours(line):
            return None
        offer = self._candidates.offer(line) or self._python(line.cursor.statement)
        if offer is None:
            return None
        return SimpleMatcherResult(
            completions=self._shown(offer) or _Silence(), matched_fragment=offer.typed, suppress=True, ordered=True
        )

    def _shown(self, offer: Offer) -> list[SimpleCompletion]:
        return [SimpleCompletion(each.text, type=self._unbroken(each.about) or "value") for each in offer.candidates]

    def _unbroken(self, text: str) -> str:
        """JupyterLab breaks what stands beside a candidate at blanks and hyphens, over the next ones."""
        return text.translate(_UNBROKEN) if self._is_in_kernel else text

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
        magics = self._shell.magics_manager.magics
        magic = magics["line"].get(line.magic) or magics["cell"].get(line.magic)
        if type(getattr(magic, "__self__", None)).__module__.partition(".")[0] != _PACKAGE:
            return False
        if line.has_percent:
            return True
        return bool(self._shell.automagic) and line.magic not in self._shell.user_ns and not line.goes_on_as_python

    def help_at(self, code: str, cursor_pos: int) -> dict[str, Any] | str | None:
        """Give the kernel's reply for the option or value at the cursor: its sentence.

        Elsewhere in our lines: the magic whose manual is the answer. None where the kernel itself has to answer.
        """
        before = code[:cursor_pos]
        line = find_magic_line(code, before.count("\n"), len(before) - before.rfind("\n") - 1)
        if line is None or line.magic not in ("gpu_train", "gpu_sweep", "gpu_config") or not self._is_ours(line):
            return None
        cursor = line.cursor_behind_word
        option = cursor.option or line.options.get(cursor.typed.lstrip("-").replace("_", "-").lower())
        if option is not None:
            data = {"text/plain": help_of(option, is_setting=line.magic == "gpu_config")}
            return {"status": "ok", "found": True, "data": data, "metadata": {}}
        if cursor.statement and not line.is_cell:
            return None
        return f"%%{line.magic}" if line.magic == "gpu_sweep" else f"%{line.magic}"


def help_of(option: Option, *, is_setting: bool = False) -> str:
    """The option as it is written, its sentence, and usual values."""
    name = f"{option.name}={option.metavar or 'yes'}" if is_setting else f"--{option.name} {option.metavar}".rstrip()
    usual = f"\n\nFor example: {', '.join(option.values)}" if option.values else ""
    return f"{name}\n\n{without_backticks(option.help)}{usual}"
