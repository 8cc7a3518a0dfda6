"""Distributions that install into one package: on a path with several folders one of them hides the other's part.

Parts of a namespace package (a folder without ``__init__.py``) do not hide each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from ..protocol.environments import Distribution

#: many projects install theirs by mistake; nobody imports them
_MISTAKES = frozenset({"tests", "test", "docs", "examples", "scripts", "benchmarks"})


class SharedPackages:
    """Answers by name for these distributions, the notebook's and the cluster's."""

    def __init__(self, distributions: Iterable[Distribution]) -> None:
        self._packages: dict[str, set[str]] = defaultdict(set)
        #: package → distributions that have it, or something in it, as their topmost
        self._at: dict[str, set[str]] = defaultdict(set)
        self._below: dict[str, set[str]] = defaultdict(set)
        for each in distributions:
            for package in set(each.imports) - _MISTAKES:
                self._packages[each.name].add(package)
                self._at[package].add(each.name)
                for parent in _parents(package):
                    self._below[parent].add(each.name)

    def around(self, name: str) -> Iterator[tuple[str, str]]:
        """Others that have a package inside of one of this one's, or around it; and that package's topmost name."""
        for package in sorted(self._packages.get(name, ())):
            others = set(self._below.get(package, ()))
            for parent in _parents(package):
                others |= self._at.get(parent, set())
            for other in sorted(others - {name}):
                yield other, package.partition("/")[0]

    def instead_of(self, name: str) -> Iterator[tuple[str, str]]:
        """Others that have the same package."""
        for package in sorted(self._packages.get(name, ())):
            for other in sorted(self._at[package] - {name}):
                yield other, package.replace("/", ".")


def _parents(package: str) -> Iterator[str]:
    while "/" in package:
        package = package.rpartition("/")[0]
        yield package
