"""Decides what a notebook's cells need beside the cluster's packages. Pure: records in, a record out.

What differs from the cluster's goes in, and what hangs on it: cluster packages that require it, and those that share a
package with it. What is the cluster's own (``Owned``) stays, and so does what does not go with that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from ..protocol.environments import (
    LACKS,
    OURS,
    Distribution,
    Installed,
    LeftOut,
    Origin,
    Plan,
    PlannedPackage,
    Why,
    minor_of,
    named_by_content,
)
from .owned import Owned, required_by_us
from .requirements import Requirements, same_version, takes
from .shared_packages import SharedPackages

#: their files are the notebook's alone, so no index has them
_OWN_FILES = frozenset({Origin.WHEEL, Origin.URL, Origin.FOLDER, Origin.EDITABLE})
_KINDS = {
    Origin.WHEEL: "a file of this machine",
    Origin.URL: "a URL",
    Origin.FOLDER: "a folder of this machine",
    Origin.EDITABLE: "a folder of this machine, in place,",
}
_TO_INDEX = "build a wheel of it and have the operator put it where the cluster's nodes find it"


def make_plan(
    notebook: Installed,
    cluster: Installed,
    *,
    owned: Iterable[str] = (),
    unavailable: Mapping[str, str] | None = None,
    requests: Sequence[str] = (),
    interpreter: str = "",
) -> Plan:
    """Return the environment for cells of ``notebook`` on ``cluster``.

    Parameters
    ----------
    owned
        The operator's names and patterns of packages that stay the cluster's.
    unavailable
        Packages that could not be had when somebody tried, and the installer's words.
    requests
        Requirements that somebody wrote (``--pip``); their versions are not known yet.
    interpreter
        The operator's name of another Python, of which ``cluster`` tells; empty: it is the cluster's own.
    """
    ours, theirs = minor_of(notebook.python), minor_of(cluster.python)
    if ours != theirs:
        reason = f"the cluster runs Python {cluster.python}, for which the notebook's packages are not made"
        hint = f"use a kernel with Python {theirs}, or have the operator offer Python {ours} (`pythons:`)"
        return _without_python(notebook, cluster, reason, hint)
    plan = _Planner(notebook, cluster, Owned(cluster, owned, interpreter), unavailable or {}).plan(requests)
    if not interpreter:
        return plan
    needed = required_by_us({each.name: each for each in notebook.distributions}, Requirements(notebook.markers))
    for left in plan.left_out:
        if left.name in needed and left.name != OURS:
            return _without_python(notebook, cluster, f"every rank needs {left}", left.hint)
    return named_by_content(msgspec.structs.replace(plan, interpreter=interpreter))


def _without_python(notebook: Installed, cluster: Installed, reason: str, hint: str) -> Plan:
    other = LeftOut("python", notebook.python, cluster.python, Why.PYTHON, reason, hint)
    return Plan(cluster.python, cluster.platform, left_out=[other])


def with_resolved(notebook: Installed, cluster: Installed, versions: Mapping[str, str]) -> Installed:
    """The notebook's packages, and the ``versions`` that were found for a plan's requests in place of its own."""
    known = {each.name: each for each in (*cluster.distributions, *notebook.distributions)}
    found = {each.name: each for each in notebook.distributions}
    for name, version in versions.items():
        before = known.get(name, Distribution(name, version))
        if name not in found or not same_version(before.version, version):
            found[name] = Distribution(name, version, imports=before.imports)
    return Installed.of(notebook.python, notebook.platform, notebook.markers, list(found.values()))


class _Planner:
    """Finds step by step what stays out: each time less goes in, and what hung on it does not either."""

    def __init__(self, notebook: Installed, cluster: Installed, owned: Owned, unavailable: Mapping[str, str]) -> None:
        self._here = {each.name: each for each in notebook.distributions}
        self._there = {each.name: each for each in cluster.distributions}
        self._cluster = cluster
        self._owned = owned
        self._unavailable = unavailable
        self._needs = Requirements(cluster.markers)
        self._needs_here = Requirements(notebook.markers)
        self._shared = SharedPackages([*self._here.values(), *self._there.values()])
        self._left_out: dict[str, LeftOut] = {}

    def plan(self, requests: Sequence[str]) -> Plan:
        """Leave out what has to stay, until the rest goes together."""
        for name in self._here:
            self._leave_out(self._reason_at_once(name))
        while True:
            entering = self._entering()
            conflicts = [left for name in entering if (left := self._conflict(name)) is not None]
            if not conflicts:
                break
            for left in conflicts:
                self._leave_out(left)
        packages = [self._planned(name, reason) for name, reason in sorted(entering.items())]
        known = [package for package in packages if package.version]
        opened = [*requests, *(package.name for package in packages if not package.version)]
        plan = Plan(
            self._cluster.python,
            self._cluster.platform,
            known,
            sorted(filter(self._is_worth_a_word, self._left_out.values()), key=lambda left: left.name),
            opened,
        )
        return named_by_content(plan)

    def _leave_out(self, left: LeftOut | None) -> None:
        if left is not None:
            self._left_out.setdefault(left.name, left)

    def _is_worth_a_word(self, left: LeftOut) -> bool:
        """Of one that is the same in both, or that only the cluster has, cells get what they would have got."""
        return left.name in self._here and self._difference(left.name) != ""

    # ------------------------------------------------------------------------------------- what goes in
    def _entering(self) -> dict[str, str]:
        """Name → why it goes in."""
        entering = {
            name: reason for name in self._here if self._may_enter(name) and (reason := self._difference(name)) != ""
        }
        waiting = list(entering)
        while waiting:
            name = waiting.pop()
            for other, reason in (*self._sharing(name), *self._dependents(name)):
                if other not in entering and self._may_enter(other):
                    entering[other] = reason
                    waiting.append(other)
        return entering

    def _may_enter(self, name: str) -> bool:
        if name in self._left_out or name in self._owned:
            return False
        return name in self._here or not (self._there[name].origin in _OWN_FILES or name in self._unavailable)

    def _difference(self, name: str) -> str:
        here, there = self._here[name], self._there.get(name)
        if there is None:
            return LACKS
        if not same_version(here.version, there.version):
            return f"the cluster has {there.version}"
        return "" if _has_same_files(here, there) else "the cluster's has other files"

    def _dependents(self, name: str) -> Iterator[tuple[str, str]]:
        """Packages of the cluster that require it, and would meet another one than they were installed with."""
        if name in self._there and (self._difference(name) if name in self._here else not self._version(name)):
            for other in self._there.values():
                if name in self._needs.of(other):
                    yield other.name, f"it requires {name}"

    def _sharing(self, name: str) -> Iterator[tuple[str, str]]:
        """Packages that hide a part of this one, or of which it hides a part."""
        for other, package in self._shared.around(name):
            yield other, f"it shares {package} with {name}"
        for other, package in self._shared.instead_of(name):
            if other in self._here:  # one that only the cluster has is replaced as a whole
                yield other, f"it shares {package} with {name}"

    # ------------------------------------------------------------------------------------ what stays out
    def _reason_at_once(self, name: str) -> LeftOut | None:
        here, there = self._here[name], self._there.get(name)
        if not self._difference(name):
            return None
        if name in self._owned:
            has = f"cells get the cluster's {there.version}" if there else "the cluster has none"
            hint = "" if there else f"ask the operator for {name}, or name an environment that has it (`--environment`)"
            return self._left(name, Why.OWNED, f"it is the cluster's to install, and {has}", hint)
        if here.origin in _OWN_FILES and not here.is_pure:
            reason = f"it was installed from {_KINDS[here.origin]} and is compiled, so no node can get it"
            return self._left(name, Why.UNAVAILABLE, reason, _TO_INDEX)
        if here.origin is Origin.EDITABLE and not here.digest:
            reason = "its files cannot be read, or are too many to send along"
            return self._left(name, Why.UNAVAILABLE, reason, _TO_INDEX)
        if name in self._unavailable and not here.is_pure:
            return self._left(name, Why.UNAVAILABLE, self._unavailable[name], _TO_INDEX)
        return self._compiled_against(here)

    def _compiled_against(self, here: Distribution) -> LeftOut | None:
        """Compiled code goes with one version of a GPU library only."""
        if here.is_pure:
            return None
        for name in self._needs_here.of(here):
            if self._owned.has_to_fit(name) and name in self._here and name in self._there:
                mine, theirs = self._here[name].version, self._there[name].version
                if not same_version(mine, theirs):
                    reason = f"its compiled code is made for {name} {mine}, and the cluster has {theirs}"
                    return self._left(here.name, Why.CONFLICT, reason, f"install {name} {theirs} here, and it again")
        return None

    def _conflict(self, name: str) -> LeftOut | None:
        version = self._version(name)
        for other in self._there.values():
            versions = self._needs.of(other).get(name) if other.name in self._owned else None
            if versions is not None and version and not takes(versions, version):
                reason = f"the cluster's {other.name} {other.version} requires {name}{versions}"
                return self._left(name, Why.CONFLICT, reason, f"install one that goes with it: `{name}{versions}`")
        for other_name, package in (*self._shared.around(name), *self._shared.instead_of(name)):
            if other_name in self._there and (other_name in self._owned or other_name in self._left_out):
                reason = f"it shares {package} with {other_name}, of which cells get the cluster's"
                return self._left(name, Why.CONFLICT, reason)
        return None

    def _left(self, name: str, why: Why, reason: str, hint: str = "") -> LeftOut:
        here, there = self._here.get(name), self._there.get(name)
        return LeftOut(name, here.version if here else "", there.version if there else "", why, reason, hint)

    # -------------------------------------------------------------------------------------- what comes out
    def _version(self, name: str) -> str:
        """The notebook's, else the cluster's; empty where that does not go with what the notebook has."""
        if name in self._here:
            return self._here[name].version
        for required, versions in self._needs.of(self._there[name]).items():
            here = self._here.get(required)
            if here is not None and self._may_enter(required) and not takes(versions, here.version):
                return ""
        return self._there[name].version

    def _planned(self, name: str, reason: str) -> PlannedPackage:
        here = self._here.get(name)
        if here is None:
            return PlannedPackage(name, self._version(name), reason)
        if here.origin in _OWN_FILES or name in self._unavailable:
            return PlannedPackage(name, here.version, reason, True, here.origin, here.digest, here.files)
        return PlannedPackage(name, here.version, reason, origin=here.origin)


def _has_same_files(here: Distribution, there: Distribution) -> bool:
    """Of one that is edited, or was built from a folder, the version tells nothing."""
    if Origin.EDITABLE in (here.origin, there.origin):
        return here.origin is there.origin and here.digest != "" and here.digest == there.digest
    if here.origin in _OWN_FILES and there.origin in _OWN_FILES:
        return (here.source, here.digest) == (there.source, there.digest)
    return here.origin not in _OWN_FILES or here.origin is Origin.WHEEL
