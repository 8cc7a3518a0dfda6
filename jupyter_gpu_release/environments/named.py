"""``environments.yaml``: environments that the operator has named, and who is offered them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from packaging.requirements import InvalidRequirement, Requirement

from ..errors import OptionError
from ..protocol.environments import ENVIRONMENT_PATTERN, INTERPRETER_PATTERN, Interpreter, NamedEnvironment
from ..settings.yaml_document import YamlDocument
from .lock_files import is_lock, read_lock

_HINT = "`jupyter gpu docs operate/environments` shows such a file"
#: what `--environment` means by itself
RESERVED = frozenset({"auto", "cluster", "kernel"})
_FOLDER_PATTERN = r"^(/[^\x00-\x1f]*)?\Z"
_IN_WORDS = {
    ENVIRONMENT_PATTERN: "a name has small letters, digits, `.`, `_` and `-`, and begins with a letter or digit",
    INTERPRETER_PATTERN: "a Python is a version (3.12) or the absolute path of its interpreter",
    _FOLDER_PATTERN: "a folder is an absolute path",
}


class _Spec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(max_length=64, pattern=ENVIRONMENT_PATTERN)]
    #: lines, a file of lines, or a lock file
    requirements: list[str] | str = []
    users: list[str] | None = None
    #: version of another Python, or the path of its interpreter
    python: Interpreter = ""
    #: folder of a virtual or conda environment that all nodes see
    path: Annotated[str, msgspec.Meta(pattern=_FOLDER_PATTERN)] = ""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema_version: int
    environments: list[_Spec] = []
    #: others than the cluster's, for kernels of these versions
    pythons: list[Interpreter] = []


class OfferedEnvironment(msgspec.Struct, frozen=True):
    """A named environment. ``users``: names, and ``@group`` of the queues file; None: everybody."""

    environment: NamedEnvironment
    users: list[str] | None

    def is_for(self, user: str, groups: Mapping[str, Collection[str]]) -> bool:
        """Tell if it is offered to a user."""
        if self.users is None or user in self.users:
            return True
        return any(user in groups.get(name[1:], ()) for name in self.users if name.startswith("@"))


class Offers(msgspec.Struct, frozen=True):
    """Content of the file. ``pythons``: for every kernel of the same version."""

    environments: list[OfferedEnvironment] = []
    pythons: list[str] = []


def read_environments(path: Path) -> Offers:
    """Read the file, and the files that it names; raises :class:`OptionError` with the line of a mistake."""
    document = YamlDocument(_text(path), str(path), _HINT)
    found = document.convert(_File, patterns=_IN_WORDS)
    if found.schema_version != 1:
        error = f"schema_version {found.schema_version}: this version reads 1"
        raise document.error(error, "schema_version", hint="write schema_version: 1")
    names = [each.name for each in found.environments]
    for index, name in enumerate(names):
        if name in RESERVED or name in names[:index]:
            why = "is a word of `--environment` itself" if name in RESERVED else "is there twice"
            raise document.error(f"the name {name} {why}", f"environments[{index}].name", hint="take another name")
    offered = [
        OfferedEnvironment(_Reader(path, document, f"environments[{index}]").read(each), each.users)
        for index, each in enumerate(found.environments)
    ]
    return Offers(offered, [each for each in found.pythons if each])


class _Reader:
    """Turns one environment as it is written into one to be offered; every refusal names the line."""

    def __init__(self, path: Path, document: YamlDocument, place: str) -> None:
        self._path = path
        self._document = document
        self._place = place

    def read(self, spec: _Spec) -> NamedEnvironment:
        other = spec.path or spec.python
        is_locked = isinstance(spec.requirements, str) and is_lock(spec.requirements)
        if (spec.path and spec.python) or (other and is_locked):
            raise self._document.error(
                "`python`, `path` and a lock file do not go together",
                self._place,
                hint="a folder has its Python, and a lock file is read for the cluster's: write one of them",
            )
        if isinstance(spec.requirements, list):
            lines = [(line.strip(), index) for index, line in enumerate(spec.requirements)]
            pins = [self._checked(line, index) for line, index in lines if line]
            return NamedEnvironment(spec.name, pins, interpreter=other)
        place = self._path.parent / spec.requirements
        text = self._text_of(place)
        if is_locked:
            locked = read_lock(place, text)
            pins = [_requirement(f"{name}=={version}", str(place)) for name, version in locked.versions.items()]
            return NamedEnvironment(spec.name, pins, True, locked.hashes)
        numbered = ((line.partition("#")[0].strip(), number) for number, line in enumerate(text.splitlines(), 1))
        pins = [_requirement(line, f"{place}, line {number}") for line, number in numbered if line]
        return NamedEnvironment(spec.name, pins, interpreter=other)

    def _text_of(self, place: Path) -> str:
        try:
            return _text(place)
        except OptionError as error:
            raise self._document.error(error.message, f"{self._place}.requirements", hint=error.hint) from error

    def _checked(self, line: str, index: int) -> str:
        try:
            return _requirement(line, "")
        except OptionError as error:
            path = f"{self._place}.requirements[{index}]"
            raise self._document.error(error.message, path, hint=error.hint) from error


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text in UTF-8"
        raise OptionError(f"{path}: {reason}", hint="the gateway has to be able to read it") from error


def _requirement(line: str, place: str) -> str:
    """The line as a requirement; raises :class:`OptionError`, which repeats no URL: it may hold a password."""
    try:
        requirement = Requirement(line)
    except InvalidRequirement:
        requirement = None
    if requirement is None or requirement.url:
        shown = "a URL or a path" if "/" in line or "@" in line else repr(line[:80])
        raise OptionError(
            f"{place and f'{place}: '}{shown} is not a package's name and versions",
            hint="write lines such as einops==0.8.1; options, URLs and hashes have no place there",
        )
    return str(requirement)
