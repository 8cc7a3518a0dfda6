"""Requirements of distributions, as they hold for one interpreter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from ..protocol.environments import Distribution, Installed


class Requirements:
    """``markers``: the interpreter's values of PEP 508's markers."""

    def __init__(self, markers: Mapping[str, str]) -> None:
        self._markers = {**markers, "extra": ""}
        self._known: dict[int, tuple[Distribution, dict[str, SpecifierSet]]] = {}

    def of(self, distribution: Distribution) -> dict[str, SpecifierSet]:
        """Name → versions that it takes."""
        known = self._known.get(id(distribution))
        if known is None:  # it is kept alive with what is known of it
            known = self._known[id(distribution)] = distribution, self._read(distribution)
        return known[1]

    def _read(self, distribution: Distribution) -> dict[str, SpecifierSet]:
        found: dict[str, SpecifierSet] = {}
        for text in distribution.requires:
            requirement = _parsed(text)
            if requirement is not None and self._holds(requirement):
                name = str(canonicalize_name(requirement.name))
                found[name] = found.get(name, SpecifierSet()) & requirement.specifier
        return found

    def _holds(self, requirement: Requirement) -> bool:
        try:
            return requirement.marker is None or requirement.marker.evaluate(self._markers)
        except (KeyError, ValueError):  # a marker that this interpreter did not tell of
            return True


@lru_cache(maxsize=20_000)
def _parsed(text: str) -> Requirement | None:
    try:
        return Requirement(text)
    except InvalidRequirement:  # old packages have some
        return None


def unmet(lines: Iterable[str], there: Installed) -> list[str]:
    """Requirements of these that its packages do not meet."""
    needs = Requirements(there.markers).of(Distribution("all", "0", requires=list(lines)))
    have = {each.name: each.version for each in there.distributions}
    return [
        f"{name}{versions}" for name, versions in needs.items() if not (name in have and takes(versions, have[name]))
    ]


def takes(versions: SpecifierSet, version: str) -> bool:
    """Tell if ``version`` is among these; what is no version is not refused."""
    try:
        return versions.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return True


def same_version(one: str, other: str) -> bool:
    """Tell if both mean the same: ``1.0`` and ``1.0.0`` do; a local part (``+cu121``) counts."""
    try:
        return Version(one) == Version(other)
    except InvalidVersion:
        return one == other
