"""YAML that an operator writes, with the line of each of its parts for what is wrong there."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

import msgspec
import yaml

from ..errors import OptionError

#: anchors can make a short text endless
_MOST_PARTS, _DEEPEST = 200_000, 10
#: of msgspec and YAML
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "nothing",
    "date": "a date",
    "datetime": "a date",
}
T = TypeVar("T")


class YamlDocument:
    """A YAML text, and the line of each of its parts. Raises :class:`OptionError` for what is no YAML.

    ``name``: of the file. ``hint``: the cure for mistakes that name none.
    """

    def __init__(self, text: str, name: str, hint: str) -> None:
        self._name = name
        self._hint = hint
        self._parts = 0
        self._lines: dict[str, int] = {}
        try:
            node = yaml.compose(text, Loader=yaml.SafeLoader)
            self.written = {} if node is None else self._read(node, "")
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise OptionError(f"{name}, line {line}: not YAML: {error.problem}", hint=hint) from error
        except yaml.YAMLError as error:
            raise OptionError(f"{name}: not YAML: {' '.join(str(error).split())}", hint=hint) from error

    def convert(self, kind: type[T], patterns: Mapping[str, str] = {}) -> T:
        """Return it as this kind of record; raises :class:`OptionError` with the line.

        ``patterns``: those of the record's texts, in words.
        """
        try:
            return msgspec.convert(self.written, kind)
        except msgspec.ValidationError as error:
            said, path = _split(str(error))
            if words := next((words for pattern, words in patterns.items() if said.endswith(repr(pattern))), ""):
                raise self.error(words, path) from error
            if unknown := re.fullmatch(r"Object contains unknown field `(.+)`", said):
                hint, below = meant(unknown[1], _fields_at(kind, path)), f"{path}.{unknown[1]}".removeprefix(".")
                raise self.error("there is no such field", below, hint=hint) from error
            if missing := re.fullmatch(r"Object missing required field `(.+)`", said):
                raise self.error(f"the field {missing[1]} is missing", path) from error
            is_text = re.fullmatch(r"Expected `str.*`, got `(int|float|bool|date|datetime)`", said)
            raise self.error(_in_words(said), path, hint="write it in quotes" if is_text else "") from error

    def _read(self, node: yaml.Node, path: str) -> Any:
        self._lines[path] = node.start_mark.line + 1
        self._parts += 1
        if self._parts > _MOST_PARTS or path.count(".") + path.count("[") > _DEEPEST:
            raise self.error("more than such a file can hold", path[:40])
        if isinstance(node, yaml.SequenceNode):
            return [self._read(item, f"{path}[{index}]") for index, item in enumerate(node.value)]
        if not isinstance(node, yaml.MappingNode):
            try:
                return yaml.SafeLoader("").construct_object(node)
            except (
                ValueError,
                KeyError,
                AttributeError,
            ) as error:  # PyYAML's own, of a date, or of a tag such as !!int
                raise self.error(f"{node.value}: there is no such value", path) from error
        found: dict[Any, Any] = {}
        for key, value in node.value:
            name = str(key.value)
            below = f"{path}.{name}".removeprefix(".")
            if name in found:
                raise self.error(f"{name} stands there twice", below, line=key.start_mark.line + 1)
            found[name] = self._read(value, below)
            self._lines[below] = key.start_mark.line + 1
        return found

    def error(self, message: str, path: str, *, line: int | None = None, hint: str = "") -> OptionError:
        """Make an error for a path (``queues[0].max``), with its line, or that of the nearest part around it."""
        around = path
        while around and around not in self._lines:
            around = re.sub(r"(\.?[^.\[\]]+|\[[^\]]*\])$", "", around)
        where = line or self._lines.get(around, 1)
        place = f"{path}: " if path else ""
        return OptionError(f"{self._name}, line {where}: {place}{message}", hint=hint or self._hint)


def meant(word: str, known: Collection[str]) -> str:
    """The cure for a word that is none of these."""
    near = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {near[0]}?" if near else f"there is: {', '.join(known) or 'none'}"


def _split(message: str) -> tuple[str, str]:
    """``Expected `int`, got `str` - at `$.queues[0].max``` → what is wrong, and where."""
    said, _, path = message.partition(" - at `$")
    return said, path.rstrip("`").removeprefix(".")


def _in_words(said: str) -> str:
    """``Expected `int | null`, got `str``` → expected a whole number or nothing, it is a text."""
    said = re.sub(
        r"`([a-z]+(?: \| [a-z]+)*)`", lambda kinds: " or ".join(_KINDS.get(k, k) for k in kinds[1].split(" | ")), said
    )
    return said[:1].lower() + said[1:].replace(", got ", ", it is ")


def _fields_at(kind: type[Any], path: str) -> list[str]:
    """The fields that the part of a record at a path may have."""
    at: list[Any] = [msgspec.inspect.type_info(kind)]
    for name in filter(None, re.sub(r"\[[^\]]*\]", ".[", path).split(".")):
        found = [_below(each, name) for each in at]
        at = [one for each in found for one in getattr(each, "types", (each,))]
    return [field.encode_name for each in at for field in getattr(each, "fields", ())]


def _below(kind: Any, name: str) -> Any:
    """The kind of a part by its name; ``[``: of items."""
    fields = (field.type for field in getattr(kind, "fields", ()) if field.encode_name == name)
    items = getattr(kind, "item_type", getattr(kind, "value_type", None)) if name == "[" else None
    return next(fields, items)
