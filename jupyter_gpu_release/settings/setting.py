"""One setting: its default, unit, bounds and sentence, and how it is read from text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import msgspec

from ..errors import OptionError
from ..units import format_bytes, format_seconds, parse_bytes, parse_seconds

_NUMBER = re.compile(r"[0-9]{1,6}(\.[0-9]+)?")


class Unit(StrEnum):
    """Kind of a value; its word stands in errors, as in "not a duration"."""

    SECONDS = "a duration"
    BYTES = "a size"
    COUNT = "a whole number"
    NUMBER = "a number"
    TEXT = "a text"
    #: texts with commas between them
    LIST = "a list"
    #: a flag without a value
    YES = "yes"


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting. The table (``settings/table.py``) says where it is written."""

    help: str
    default: Any = ""
    unit: Unit = Unit.TEXT
    #: the default in words, where it is no value ("a free one")
    otherwise: str = ""
    least: float | None = None
    most: float | None = None
    #: all values that there are
    choices: tuple[str, ...] = ()
    #: form of a text, or of each text of a list
    pattern: str = ""
    #: word for such a value in errors; empty: that of the unit
    noun: str = ""
    #: a value as it may be written, for errors and helps
    example: str = ""
    metavar: str = ""
    #: environment variable
    variable: str = ""
    #: of flags: those of one group exclude each other; a word has no dashes
    group: str = ""
    is_word: bool = False
    #: it, or another one of its group, has to be given
    required: bool = False
    #: it may be given several times, or with several values
    many: Literal["", "append", "extend"] = ""
    #: why nobody can change it; empty: it can be changed
    fixed: str = ""

    def read(self, text: str, where: str) -> Any:
        """Read a value that was written at ``where`` (``--port ``, ``JUPYTER_GPU_SPOOL=``); raises OptionError."""
        written = text.strip()
        if self.unit is Unit.LIST:
            return [self._checked(word, where) for part in written.split(",") if (word := part.strip())]
        return self._checked(written, where)

    def given(self, environment: Mapping[str, str]) -> Any:
        """Read the variable of an environment; the default where it is not set, or empty."""
        text = environment.get(self.variable, "")
        return self.read(text, f"{self.variable}=") if text.strip() else self.default

    def _checked(self, text: str, where: str) -> Any:
        value = self._value(text)
        if value is None or not self.allows(value):
            example = self.example or next(iter(self.choices), "")
            raise OptionError(f"{where}{text}: not {self.form}", hint=f"write {where}{example}" if example else "")
        return value

    def _value(self, text: str) -> Any:
        """The value that a text means; None: it means none."""
        if self.unit is Unit.COUNT:
            return int(text) if text.isdecimal() and len(text) <= 6 else None
        if self.unit is Unit.NUMBER:
            return float(text) if _NUMBER.fullmatch(text) else None
        if self.unit in (Unit.SECONDS, Unit.BYTES):
            return self._measured(text)
        allowed = text in self.choices if self.choices else re.fullmatch(self.pattern or ".*", text, re.DOTALL)
        return text if allowed else None

    def _measured(self, text: str) -> float | None:
        if text == "0":
            return 0
        try:
            return parse_seconds(text, option="") if self.unit is Unit.SECONDS else parse_bytes(text, option="")
        except OptionError:
            return None

    def allows(self, value: Any) -> bool:
        """Tell if a number is within the bounds."""
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    @property
    def form(self) -> str:
        """The word for its values, with their bounds: "a number of at least 1"."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        return " ".join(filter(None, (self.noun or self.unit.value, self.bounds)))

    @property
    def bounds(self) -> str:
        """Its bounds in words; empty: none but being no less than nothing."""
        least, most = self.least, self.most
        if most is not None:
            return f"from {self.in_words(least or 0)} to {self.in_words(most)}"
        return f"of at least {self.in_words(least)}" if least else ""

    def in_words(self, value: Any) -> str:
        """A value with its unit."""
        if self.unit is Unit.SECONDS:
            return format_seconds(value) if value else "0"
        if self.unit is Unit.BYTES:
            return format_bytes(value) if value else "0"
        if isinstance(value, list | tuple):
            return ", ".join(str(each) for each in value)
        return f"{value:g}" if isinstance(value, float) else str(value)

    @property
    def default_in_words(self) -> str:
        """Its default, as people say it; empty where there is none."""
        return self.otherwise or ("" if self.default is None else self.in_words(self.default))


def trait(setting: Setting) -> dict[str, Any]:
    """Arguments for the class of traitlets that a setting's trait has."""
    bounds = {name: value for name, value in (("min", setting.least), ("max", setting.most)) if value is not None}
    known = {"values": list(setting.choices)} if setting.choices else {}
    default = list(setting.default) if setting.unit is Unit.LIST else setting.default
    return {"default_value": default, "help": setting.help, **bounds, **known}


def read_text(path: Path, where: str, hint: str) -> str:
    """Read a file that a setting names; raises :class:`OptionError` with ``where`` and the reason."""
    try:
        return path.expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text in UTF-8"
        raise OptionError(f"{where}: cannot read {path}: {reason}", hint=hint) from error
