"""``environments.yaml``: environments that the operator has named, and who is offered them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated

import msgspec
import yaml
from packaging.requirements import InvalidRequirement, Requirement

from ..errors import OptionError
from ..protocol.environments import ENVIRONMENT_PATTERN, Interpreter, NamedEnvironment
from .lock_files import is_lock, read_lock

#: what `--environment` means by itself
RESERVED = frozenset({"auto", "cluster", "kernel"})


class _Spec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(max_length=64, pattern=ENVIRONMENT_PATTERN)]
    #: lines, a file of lines, or a lock file
    requirements: list[str] | str = []
    users: list[str] | None = None
    #: version of another Python, or the path of its interpreter
    python: Interpreter = ""
    #: folder of a virtual or conda environment that all nodes see
    path: Annotated[str, msgspec.Meta(pattern=r"^(/[^\x00-\x1f]*)?\Z")] = ""


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
    """Read the file, and the files that it names; raises :class:`OptionError`."""
    try:
        found = msgspec.convert(yaml.safe_load(_text(path)), _File)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise OptionError(
            f"{path}: {' '.join(str(error).split())}", hint="docs/operate/environments.md shows such a file"
        ) from error
    if found.schema_version != 1:
        raise OptionError(f"{path}: schema_version {found.schema_version}", hint="write schema_version: 1")
    names = [each.name for each in found.environments]
    for name in names:
        if name in RESERVED or names.count(name) > 1:
            why = "is a word of `--environment` itself" if name in RESERVED else "is there twice"
            raise OptionError(f"{path}: the name {name} {why}", hint="take another name")
    offered = [OfferedEnvironment(_named(path, each), each.users) for each in found.environments]
    return Offers(offered, [each for each in found.pythons if each])


def _named(path: Path, spec: _Spec) -> NamedEnvironment:
    other = spec.path or spec.python
    is_locked = isinstance(spec.requirements, str) and is_lock(spec.requirements)
    if (spec.path and spec.python) or (other and is_locked):
        raise OptionError(
            f"{path}: {spec.name}: `python`, `path` and a lock file do not go together",
            hint="a folder has its Python, and a lock file is read for the cluster's: write one of them",
        )
    if isinstance(spec.requirements, str) and is_locked:
        place = path.parent / spec.requirements
        locked = read_lock(place, _text(place))
        pins = [f"{name}=={version}" for name, version in locked.versions.items()]
        return NamedEnvironment(spec.name, [_checked(place, spec.name, pin) for pin in pins], True, locked.hashes)
    return NamedEnvironment(spec.name, _requirements(path, spec), interpreter=other)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text in UTF-8"
        raise OptionError(f"{path}: {reason}", hint="the gateway has to be able to read it") from error


def _requirements(path: Path, spec: _Spec) -> list[str]:
    if isinstance(spec.requirements, str):
        path = path.parent / spec.requirements
        written = [line.partition("#")[0].strip() for line in _text(path).splitlines()]
    else:
        written = spec.requirements
    return [_checked(path, spec.name, line) for line in written if line]


def _checked(path: Path, name: str, line: str) -> str:
    try:
        requirement = Requirement(line)
    except InvalidRequirement:
        requirement = None
    if requirement is None or requirement.url:
        raise OptionError(
            f"{path}: {name}: {line[:80]!r} is not a package's name and versions",
            hint="write lines such as einops==0.8.1; options, URLs and hashes have no place there",
        )
    return str(requirement)
