"""The magic's line that somebody types in, found in the text around the cursor."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ...options.definitions import OPTIONS, Option
from ...options.sweep_options import SWEEP_OPTIONS
from ...options.typing_position import Cursor, find_cursor, find_setting

#: ``%%gpu_train …``, ``%gpu_logs …``, ``x = %gpu_train …``, and without the percent sign (automagic)
_MAGIC = re.compile(r"\s*(?:[\w.,\[\] ]+=\s*(?=%))?(?P<percent>%{0,2})(?P<name>gpu_[a-z]+)(?=\s)")
#: ``gpu_train = …``, ``gpu_train (…)``: a name of the user's
_PYTHON = tuple("=+*/%^&|<>!.,:()[]")


@dataclass(frozen=True)
class MagicLine:
    """A line of one of our magics: its words before and behind the cursor, and the lines below it."""

    magic: str
    #: ``%%gpu_train``: the lines below are its code
    is_cell: bool
    has_percent: bool
    head: str
    tail: str
    body: str = ""

    @property
    def goes_on_as_python(self) -> bool:
        """Tell if, without a percent sign, the line is an expression or an assignment that begins with a name."""
        return (self.head + self.tail).lstrip().startswith(_PYTHON)

    @property
    def cursor(self) -> Cursor:
        """The place in the options of ``%%gpu_train``, ``%%gpu_sweep`` or ``%gpu_config``."""
        return self._cursor(self.head.lstrip())

    @property
    def cursor_behind_word(self) -> Cursor:
        """The same at the end of the word in which the cursor is, for help on that word."""
        whole = self.head + re.split(r"[\s=]", self.tail, maxsplit=1)[0]
        return self._cursor(whole.lstrip())

    @property
    def options(self) -> Mapping[str, Option]:
        """Options that the magic has."""
        return SWEEP_OPTIONS if self.magic == "gpu_sweep" else OPTIONS

    def _cursor(self, text: str) -> Cursor:
        return find_setting(text) if self.magic == "gpu_config" else find_cursor(text, self.options)


def find_magic_line(text: str, line: int, column: int) -> MagicLine | None:
    """The magic's line with the cursor, which is behind the magic's name; None: the cursor is elsewhere."""
    lines = text.split("\n")
    if line >= len(lines):
        return None
    current = lines[line]
    found = _MAGIC.match(current)
    if found is None or found.end() >= column:
        return None
    head, tail = current[found.end() : column], current[column:]
    is_cell = found["percent"] == "%%"
    body = "\n".join(lines[line + 1 :]) if is_cell else ""
    return MagicLine(found["name"], is_cell, bool(found["percent"]), head, tail, body)
