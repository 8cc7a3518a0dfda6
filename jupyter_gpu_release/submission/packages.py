"""Packages of this process that a cell's processes shall find: those that the cluster lacks, or has otherwise.

Asked once for each state of the packages here. Nothing is asked where the cluster has the same.
"""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec

from ..errors import CannotSendError, ClusterError, ConflictError, MissingPackageError, OptionError
from ..protocol.environments import (
    OURS,
    ClusterPackages,
    Distribution,
    Installed,
    LeftOut,
    NamedEnvironment,
    Origin,
    OtherPython,
    PackagesAnswer,
    Plan,
    PlannedPackage,
    Question,
    Versions,
    WheelSent,
    Why,
    minor_of,
    named_by_content,
)
from ..settings.built_in import BUILT_IN
from ..units import format_bytes

if TYPE_CHECKING:
    from ..environments.installed import InstalledReader
    from ..environments.wheels import Wheel
    from ..options.run_options import RunOptions
    from ..protocol.session import Welcome

#: what the cluster has is asked again after this, and after the other where its index did not answer
_KNOWN_S, _TROUBLE_KNOWN_S = 300.0, 3600.0
#: plans until nothing more turns out to be unavailable
_ROUNDS = 4
_MOST_SENT_BYTES: int = BUILT_IN["environment_wheel_bytes"].default


class PackageGateway(Protocol):
    """Questions to the gateway, on the caller's thread; they raise :class:`GpuReleaseError`."""

    def packages(self) -> ClusterPackages:
        """Packages that are installed on the nodes."""

    def check_packages(self, plan: Plan) -> PackagesAnswer:
        """Ask if nodes can get the packages of an environment."""

    def resolve_packages(self, question: Question) -> Versions:
        """Versions of packages that go with the nodes' own."""

    def send_wheel(self, digest: str, content: bytes) -> WheelSent:
        """Send a wheel of this machine's own."""


class CellNeeds(Protocol):
    """Facts about a cell, and the decision for it."""

    imports: list[str]
    packages: list[str]
    environment: Plan | None


OpenGateway = Callable[[], AbstractContextManager[PackageGateway]]


@dataclass(frozen=True)
class CellPackages:
    """Decision for the cells of one state of the notebook. ``plan``: None where there is nothing to build.

    ``provided``: top-level modules of what is in it. ``absent``: those that cells lack, ``otherwise``: those of which
    they get another version, with the reasons. ``left_out``: all of these packages; ``there``: the cluster's versions.
    """

    plan: Plan | None = None
    provided: frozenset[str] = frozenset()
    absent: Mapping[str, LeftOut] = field(default_factory=dict)
    otherwise: Mapping[str, LeftOut] = field(default_factory=dict)
    #: packages that were written down for the cell, whose modules are not known
    is_open: bool = False
    left_out: Sequence[LeftOut] = ()
    there: Mapping[str, str] = field(default_factory=dict)
    #: no node could tell what it can get
    is_unsure: bool = False
    #: why there is no environment for the notebook's Python, though the operator offers one
    python_problem: str = ""

    def left_of(self, imports: Sequence[str]) -> list[str]:
        """Those that the cluster itself has to have."""
        return [] if self.is_open else [name for name in imports if name not in self.provided]


class NotebookPackages:
    """Those of one process. Any thread may ask; one at a time does."""

    def __init__(self, folders: Sequence[str] | None = None) -> None:
        """``folders``: of packages; None: those on this process's path."""
        self._folders = folders
        self._reader: InstalledReader | None = None
        self._lock = threading.Lock()
        #: digest of what is here, and the packages asked for → when it was found, and what
        self._known: dict[tuple[str, str], tuple[float, CellPackages]] = {}
        #: those of which was said that cells get another one
        self._said: set[tuple[str, str]] = set()

    def add_to(
        self, prepared: CellNeeds, options: RunOptions, welcome: Welcome | None, open_gateway: OpenGateway
    ) -> list[str]:
        """Note in ``prepared`` which environment its cell needs; returns what is to be said before it is queued.

        Raises :class:`MissingPackageError` where the cell imports what no node can get, and what the gateway refuses.
        """
        name = "" if options.environment == "auto" else options.environment
        if welcome is None:
            return []
        if name == "cluster" or not (name or options.pip or welcome.packages):
            return self._python_news(welcome.python)
        found = self.find(options.pip, welcome.packages, open_gateway, name)
        needed = [name for name in prepared.imports if name in found.absent]
        if needed:
            left = found.absent[needed[0]]
            raise MissingPackageError(f"the cell imports {needed[0]}, and the cluster lacks it. {left}", hint=left.hint)
        prepared.environment = found.plan
        if found.plan is not None:
            prepared.imports = found.left_of(prepared.imports)
        is_other = found.plan is not None and found.plan.interpreter
        theirs = found.plan.python if found.plan is not None and is_other else welcome.python
        return self._python_news(theirs, found.python_problem) + self._news(prepared, found)

    def _python_news(self, theirs: str, problem: str = "") -> list[str]:
        """Sentence about another minor version of Python, said once."""
        here, there = minor_of(platform.python_version()), minor_of(theirs)
        if here == there or not theirs or ("python", there) in self._said:
            return []
        self._said.add(("python", there))
        cures = (
            f"use a kernel with Python {there}, or define them in the GPU cell; the operator may offer Python {here}"
        )
        return [
            f"the cluster runs Python {there}, this kernel {here}: data travels between them, the notebook's packages "
            f"do not, and functions do not run there ({cures}{problem and f': {problem}'})"
        ]

    def _news(self, prepared: CellNeeds, found: CellPackages) -> list[str]:
        """Packages that the cell may import and gets otherwise than they are here; each is said once."""
        differ = {**found.absent, **found.otherwise}
        left = {differ[name].name: differ[name] for name in prepared.packages if name in differ}
        new = [each for each in left.values() if (each.name, each.notebook) not in self._said]
        self._said |= {(each.name, each.notebook) for each in new}
        return [f"{each} ({each.hint})" if each.hint else str(each) for each in new]

    # -------------------------------------------------------------------------------------------- decide
    def find(self, pip: str, theirs: str, open_gateway: OpenGateway, name: str = "") -> CellPackages:
        """Return the decision for cells with ``--pip`` so. ``theirs``: digest of the cluster's packages.

        ``name``: of an environment of the operator's, in place of the notebook's packages. Raises what the gateway
        refuses of what is written down.
        """
        with self._lock:
            return self._find_named(name, pip, open_gateway) if name else self._find(pip, theirs, open_gateway)

    def _find_named(self, name: str, pip: str, open_gateway: OpenGateway) -> CellPackages:
        known = self._known.get((name, pip))
        if known is None or time.monotonic() - known[0] > _KNOWN_S:
            with open_gateway() as gateway:
                known = self._known[name, pip] = time.monotonic(), named_packages(name, pip, gateway)
        return known[1]

    def _find(self, pip: str, theirs: str, open_gateway: OpenGateway) -> CellPackages:
        if self._reader is None:
            from ..environments.installed import InstalledReader

            self._reader = InstalledReader(self._folders)
        here = self._reader.read()
        if here.digest == theirs and not pip:
            return CellPackages()
        known = self._known.get((here.digest, pip))
        if known is not None and time.monotonic() - known[0] < (_TROUBLE_KNOWN_S if known[1].is_unsure else _KNOWN_S):
            return known[1]
        try:
            with open_gateway() as gateway:
                found = _Decision(here, gateway, self._reader, _requests(pip)).decide()
        except (ClusterError, ConflictError):
            if pip:
                raise
            return CellPackages()  # no node can tell now: the gateway says what is missing
        self._known = {**dict(list(self._known.items())[-8:]), (here.digest, pip): (time.monotonic(), found)}
        return found


def _requests(pip: str) -> list[str]:
    from ..options.requested_packages import read_requests

    return read_requests(pip) if pip else []


def named_packages(name: str, pip: str, gateway: PackageGateway) -> CellPackages:
    """Return what a notebook gets that has the cluster's packages and writes the environment's requirements down, or
    has installed what its lock file says. What of that is the cluster's own stays so.

    Raises :class:`OptionError` where the user is offered none by this name, :class:`MissingPackageError` where it
    cannot be built.
    """
    from ..environments.installed import InstalledReader
    from ..environments.plan import with_resolved
    from ..environments.requirements import unmet

    cluster = gateway.packages()
    known = {each.name: each for each in cluster.named}
    if name not in known:
        offered = ", ".join(["auto", "cluster", *sorted(known)])
        raise OptionError(f"--environment {name}: there is none by this name for you", hint=f"you may use: {offered}")
    named, here, requests = known[name], cluster.installed, _requests(pip)
    other = None
    if named.interpreter:
        other, here = _named_python(named, cluster)
        ours = next((each for each in cluster.installed.distributions if each.name == OURS), None)
        requests = [*named.requirements, *requests, *unmet(ours.requires if ours is not None else (), here)]
    elif named.is_locked:
        here = with_resolved(here, here, dict(each.split("==") for each in named.requirements))
    else:
        requests = [*named.requirements, *requests]
    found = _Decision(here, gateway, InstalledReader([]), requests, named.hashes, other).decide()
    for left in found.left_out:
        if not (named.is_locked and left.why is Why.OWNED):
            raise MissingPackageError(f"--environment {name}: {left}", hint=left.hint)
    return found


def _named_python(named: NamedEnvironment, cluster: ClusterPackages) -> tuple[OtherPython, Installed]:
    for each in cluster.pythons:
        if each.interpreter == named.interpreter and each.installed is not None:
            return each, each.installed
        if each.interpreter == named.interpreter:
            raise MissingPackageError(f"--environment {named.name}: {each.problem}", hint=each.mend)
    raise MissingPackageError(f"--environment {named.name}: no node has told of its Python", hint="try again")


class _Decision:
    """Plans, asks the gateway whether that can be had, and plans again without what cannot."""

    def __init__(
        self,
        here: Installed,
        gateway: PackageGateway,
        reader: InstalledReader,
        requests: list[str],
        hashes: Mapping[str, list[str]] = {},
        other: OtherPython | None = None,
    ) -> None:
        """``other``: the Python to plan for; None: the cluster's, else one of the notebook's version."""
        self._here = here
        self._other = other
        self._hashes = hashes
        self._gateway = gateway
        self._reader = reader
        self._requests = requests
        self._wheels: dict[str, Wheel] = {}
        self._unavailable: dict[str, str] = {}
        self._unsent: dict[str, LeftOut] = {}

    def decide(self) -> CellPackages:
        """Return the decision; raises where packages that somebody wrote down cannot be had."""
        cluster = self._with_other_python(self._gateway.packages())
        for _ in range(_ROUNDS):
            plan = self._plan(cluster)
            if not plan.packages:
                return self._result(plan, cluster)
            answer = self._gateway.check_packages(_bare(plan))
            if answer.problem:
                return self._without(plan, answer.problem, answer.mend, cluster)
            new = answer.unavailable.keys() - self._unavailable.keys()
            self._refuse_written(answer.unavailable)
            if not new:
                for digest in answer.lacking:
                    wheel = next(each for each in self._wheels.values() if each.digest == digest)
                    self._gateway.send_wheel(digest, wheel.content)
                return self._result(plan, cluster)
            self._unavailable |= answer.unavailable
        return self._without(plan, "its index says another thing each time", "", cluster)

    def _with_other_python(self, cluster: ClusterPackages) -> ClusterPackages:
        """Packages that cells find behind an environment: the cluster's, or those of the other Python."""
        minor = minor_of(self._here.python)
        if self._other is None and minor != minor_of(cluster.installed.python):
            fit = (each for each in cluster.pythons if each.is_for_all and each.installed is not None)
            self._other = next(
                (each for each in fit if each.installed and minor_of(each.installed.python) == minor), None
            )
        if self._other is None or self._other.installed is None:
            return cluster
        return msgspec.structs.replace(cluster, installed=self._other.installed)

    def _plan(self, cluster: ClusterPackages) -> Plan:
        from ..environments.plan import make_plan, with_resolved
        from ..environments.resolution import make_question

        here, owned = self._here, cluster.owned
        plan_for = partial(
            make_plan,
            cluster=cluster.installed,
            owned=owned,
            unavailable=self._unavailable,
            interpreter=self._other.interpreter if self._other else "",
        )
        plan = plan_for(here, requests=self._requests)
        if plan.requests:
            found = self._gateway.resolve_packages(make_question(plan, here, cluster.installed, owned))
            if found.problem and self._requests:
                raise ClusterError(found.problem, hint=found.mend)
            if found.problem:  # what requires other versions stays the cluster's
                return self._with_wheels(plan)
            here = self._here = with_resolved(here, cluster.installed, found.versions)
            self._requests = []
            plan = plan_for(here)
        return self._with_wheels(plan)

    def _with_wheels(self, plan: Plan) -> Plan:
        packages = []
        for each in plan.packages:
            packed = self._packed(each) if each.is_shipped else self._with_hashes(each)
            if packed is not None:
                packages.append(packed)
        left = [*plan.left_out, *self._unsent.values()]
        return named_by_content(msgspec.structs.replace(plan, packages=packages, left_out=left, requests=[]))

    def _with_hashes(self, package: PlannedPackage) -> PlannedPackage:
        hashes = self._hashes.get(package.name, [])
        return msgspec.structs.replace(package, hashes=hashes) if hashes else package

    def _packed(self, package: PlannedPackage) -> PlannedPackage | None:
        from ..environments.wheels import pack_wheel

        name = package.name
        metadata = self._reader.metadata_folder(name)
        if name not in self._wheels and name not in self._unsent and metadata is not None:
            source = self._distributions()[name].source if package.origin is Origin.EDITABLE else ""
            try:
                self._wheels[name] = pack_wheel(metadata, name, package.version, source)
            except CannotSendError as error:
                self._unsent[name] = LeftOut(name, package.version, "", Why.UNAVAILABLE, error.message, error.hint)
        if name in self._wheels and sum(len(each.content) for each in self._wheels.values()) > _MOST_SENT_BYTES:
            del self._wheels[name]
            reason = f"it and the notebook's other own packages are more than {format_bytes(_MOST_SENT_BYTES)}"
            hint = "have the operator put a wheel of it where the cluster's nodes find it"
            self._unsent[name] = LeftOut(name, package.version, "", Why.UNAVAILABLE, reason, hint)
        if name not in self._wheels:
            return None
        return msgspec.structs.replace(package, digest=self._wheels[name].digest)

    def _distributions(self) -> dict[str, Distribution]:
        return {each.name: each for each in self._here.distributions}

    def _refuse_written(self, unavailable: Mapping[str, str]) -> None:
        """Raise for what somebody wrote down and is not installed here: it cannot be sent from here either."""
        for name, words in unavailable.items():
            if self._reader.metadata_folder(name) is None:
                raise MissingPackageError(
                    f"the cluster's nodes cannot get {name}: {words}",
                    hint="is its name right, and is there a wheel for the nodes' Python and platform?",
                )

    # ------------------------------------------------------------------------------------------- result
    def _result(self, plan: Plan, packages: ClusterPackages) -> CellPackages:
        here, cluster = self._distributions(), packages.installed
        provided = _tops(here[each.name] for each in plan.packages)
        provided |= _tops(cluster.distributions) if plan.interpreter else set()
        is_open = any(not here[each.name].imports for each in plan.packages)
        there = _tops(cluster.distributions)
        absent: dict[str, LeftOut] = {}
        otherwise: dict[str, LeftOut] = {}
        for left in plan.left_out:
            if left.why is Why.PYTHON:
                absent |= dict.fromkeys(_tops(here.values()) - there, left)
            elif left.name in here and left.name != OURS:
                for top in _tops([here[left.name]]) - provided:
                    (otherwise if top in there else absent)[top] = left
        return CellPackages(
            _bare(plan) if plan.digest else None,
            frozenset(provided),
            absent,
            otherwise,
            is_open,
            [each for each in plan.left_out if each.name != OURS],
            {each.name: each.version for each in cluster.distributions},
            python_problem=self._python_problem(plan, packages),
        )

    def _python_problem(self, plan: Plan, packages: ClusterPackages) -> str:
        refused = [left.reason for left in plan.left_out if left.why is Why.PYTHON and self._other is not None]
        refused += [each.problem for each in packages.pythons if each.is_for_all and each.problem]
        return "; ".join(refused) if not plan.interpreter else ""

    def _without(self, plan: Plan, problem: str, mend: str, cluster: ClusterPackages) -> CellPackages:
        """No environment can be built at all: cells find the cluster's packages, and learn why only if they need more.

        Raises where packages were written down.
        """
        left = [
            LeftOut(each.name, each.version, "", Why.UNAVAILABLE, f"no node can build an environment: {problem}", mend)
            for each in plan.packages
        ]
        bare = msgspec.structs.replace(plan, packages=[], left_out=[*plan.left_out, *left], digest="", interpreter="")
        return replace(self._result(bare, cluster), is_unsure=True)


def _bare(plan: Plan) -> Plan:
    """The part of it that nodes have to know."""
    return Plan(plan.python, plan.platform, plan.packages, digest=plan.digest, interpreter=plan.interpreter)


def _tops(distributions: Iterable[Distribution]) -> set[str]:
    return {name.partition("/")[0] for each in distributions for name in each.imports}
