"""YAML that an operator writes, with the line of each of its parts for what is wrong there."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
import yaml

from ..errors import OptionError

#: anchors can make a short text endless
_MOST_PARTS, _DEEPEST = 200_000, 10
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
            raise OptionError(f"{name}, line {line}: {error.problem}", hint="the file is not YAML") from error
        except yaml.YAMLError as error:
            raise OptionError(f"{name}: {error}", hint="the file is not YAML") from error

    def convert(
        self,
        kind: type[T],
        meant: Callable[[str, str], str] = lambda _path, _field: "",
        patterns: Mapping[str, str] = {},
    ) -> T:
        """Return it as this kind of record; raises :class:`OptionError` with the line.

        ``meant``: the cure for a field that the part at a path does not have. ``patterns``: those of the record's
        texts, in words.
        """
        try:
            return msgspec.convert(self.written, kind)
        except msgspec.ValidationError as error:
            said, path = _split(str(error))
            said = next((words for pattern, words in patterns.items() if said.endswith(repr(pattern))), said)
            unknown = re.fullmatch(r"Object contains unknown field `(.+)`", said)
            if unknown is None:
                raise self.error(said, path) from error
            field = unknown[1]
            hint = meant(path, field)
            raise self.error("there is no such field", f"{path}.{field}".removeprefix("."), hint=hint) from error

    def _read(self, node: yaml.Node, path: str) -> Any:
        self._lines[path] = node.start_mark.line + 1
        self._parts += 1
        if self._parts > _MOST_PARTS or path.count(".") + path.count("[") > _DEEPEST:
            raise self.error("more than such a file can hold", path[:40])
        if isinstance(node, yaml.SequenceNode):
            return [self._read(item, f"{path}[{index}]") for index, item in enumerate(node.value)]
        if not isinstance(node, yaml.MappingNode):
            return yaml.SafeLoader("").construct_object(node)
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


def _split(message: str) -> tuple[str, str]:
    """``Expected `int`, got `str` - at `$.queues[0].max``` → what is wrong, and where."""
    said, _, path = message.partition(" - at `$")
    return said, path.rstrip("`").removeprefix(".")
