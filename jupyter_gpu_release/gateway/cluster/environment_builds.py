"""Has nodes build the environments of runs before these are queued: no GPU is held meanwhile.

Runs that need the same one share its build; it ends when none of them waits for it any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import math
import os
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from ...errors import ClusterError, ConflictError, GpuReleaseError, RequestError
from ...protocol.config import UnixUser
from ...protocol.environments import (
    BuildProgress,
    BuildReport,
    ClusterPackages,
    EnvironmentBuilt,
    EnvironmentRow,
    EnvironmentsDocument,
    NamedEnvironment,
    PackagesAnswer,
    Plan,
    Question,
    Versions,
    WheelSent,
)
from ...protocol.rest import DOCUMENT_VERSION
from ...settings.built_in import BUILT_IN
from ...units import format_bytes
from .nodes import Node, NodeTable

log = logging.getLogger(__name__)
#: for an environment's fork server, beyond the build
_FORK_S = 150.0
#: of wheels that notebooks have sent: what was used least of late goes first
_MOST_WHEEL_BYTES = 2 << 30
_MOST_PACKAGES: int = BUILT_IN["environment_packages"].default
_MOST_SENT_BYTES: int = BUILT_IN["environment_wheel_bytes"].default
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}\Z")


class EnvironmentBuilds:
    """Knows which node has which environment, and keeps the wheels that notebooks have sent.

    ``folder``: for these wheels, on the gateway's own disk. ``retention_s``: after its last use one goes. ``owner_of``:
    finds a user's account, where cells run as their owners: a node has an environment for each of them then.
    """

    def __init__(
        self,
        nodes: NodeTable,
        folder: Path,
        owned: Sequence[str],
        timeout_s: float,
        retention_s: float,
        owner_of: Callable[[str], Awaitable[UnixUser | None]] | None = None,
    ) -> None:
        self._owner_of = owner_of
        self._nodes = nodes
        self._folder = folder
        self._owned = list(owned)
        self._limit_s = timeout_s + _FORK_S
        self._retention_s = retention_s
        #: (node, life of its agent, digest, for whom) → when it was last found or used there
        self._there: dict[tuple[str, str, str, str], float] = {}
        #: (node, digest, for whom) → its build
        self._building: dict[tuple[str, str, str], asyncio.Future[BuildReport]] = {}
        #: (node, digest) → runs that wait for it
        self._waiting: Counter[tuple[str, str]] = Counter()

    # ---------------------------------------------------------------------------------------- questions
    @property
    def digest(self) -> str:
        """Digest of what is installed on the nodes: on most of them, where they differ. Empty: none builds any."""
        return self._packages_of(self.able())

    def able(self) -> list[Node]:
        """Nodes that build environments."""
        return [node for node in self._nodes.ready() if node.info is not None and node.info.packages]

    @staticmethod
    def _packages_of(nodes: Iterable[Node]) -> str:
        counted = Counter(node.info.packages for node in nodes if node.info is not None)
        return max(sorted(counted), key=lambda digest: counted[digest], default="")

    def _asked(self) -> Node:
        able = self.able()
        digest = self._packages_of(able)
        for node in able:
            if node.info is not None and node.info.packages == digest:
                return node
        raise ConflictError(
            "no node of the cluster builds environments now", hint="`jupyter gpu doctor` says why of each node"
        )

    async def packages(self, named: Sequence[NamedEnvironment], pythons: Sequence[str]) -> ClusterPackages:
        """Packages of the nodes, also in other Pythons: for all kernels, and of what is ``named``.

        Raises :class:`ConflictError` where none builds environments.
        """
        others = dict.fromkeys([*pythons, *(each.interpreter for each in named if each.interpreter)])
        found = await self._nodes.agent(self._asked().node).installed_packages(list(others))
        known = [msgspec.structs.replace(each, is_for_all=each.interpreter in pythons) for each in found.pythons]
        return msgspec.structs.replace(found, owned=self._owned, named=list(named), pythons=known)

    async def check(self, plan: Plan) -> PackagesAnswer:
        """Tell if the packages can be had, and which wheels are to be sent.

        Raises :class:`ClusterError`, and :class:`RequestError` when they are too many.
        """
        check_size(plan)
        answer = await self._nodes.agent(self._asked().node).check_environment(plan)
        shipped = [each.digest for each in plan.packages if each.is_shipped]
        lacking = [digest for digest in shipped if not self._wheel(digest).is_file()]
        return PackagesAnswer(answer.is_ready, answer.unavailable, lacking, answer.problem, answer.mend)

    async def resolve(self, question: Question) -> Versions:
        """Versions for its requests; raises :class:`ClusterError`."""
        return await self._nodes.agent(self._asked().node).resolve_packages(question)

    async def list_all(self) -> EnvironmentsDocument:
        """Environments of all nodes that build some, by their digests."""
        nodes = self.able()
        rows: list[EnvironmentRow] = []
        problems: list[str] = []
        asked = (self._nodes.agent(node.node).list_environments() for node in nodes)
        for node, found in zip(nodes, await asyncio.gather(*asked, return_exceptions=True), strict=True):
            if isinstance(found, ClusterError):
                problems.append(f"{node.host}: {found.message}")
            elif isinstance(found, BaseException):
                raise found
            else:
                rows += [msgspec.structs.replace(row, host=node.host) for row in found]
        return EnvironmentsDocument(DOCUMENT_VERSION, sorted(rows, key=lambda row: (row.digest, row.host)), problems)

    async def build_everywhere(self, plan: Plan) -> EnvironmentBuilt:
        """Build it on all nodes that build some; raises :class:`ClusterError` with the installer's words, and
        :class:`RequestError` when its packages are too many.
        """
        check_size(plan)
        nodes = self.lacking(self.able(), plan, "")
        reports = await self.build(nodes, plan, "")
        for node, report in zip(nodes, reports, strict=True):
            if report.problem:
                raise ClusterError(f"{node.host}: {report.problem}", hint=report.hint)
        return EnvironmentBuilt([node.host for node in nodes], max((each.seconds for each in reports), default=0.0))

    async def progress(self, plan: Plan) -> BuildProgress:
        """How far the nodes are that build it now."""
        building = [node for node in self.able() if (node.node, plan.digest, "") in self._building]
        return BuildProgress(await self.count_fetched(building, plan))

    async def remove(self, beginning: str) -> EnvironmentsDocument:
        """Remove those whose digests begin so, where nobody uses them; returns what is left of them.

        Raises :class:`RequestError` when there are none, or several that differ.
        """
        found = [row for row in (await self.list_all()).environments if row.digest.startswith(beginning)]
        digests = {row.digest for row in found}
        if len(digests) != 1:
            which = ", ".join(sorted(digest[:12] for digest in digests)) or "none"
            raise RequestError(
                f"{beginning}: one environment is to be removed, and {which} begin so",
                hint="`jupyter gpu environments list` shows all",
            )
        (digest,) = digests
        self._there = {key: at_s for key, at_s in self._there.items() if key[2] != digest}
        for node in self.able():
            with contextlib.suppress(ClusterError):  # what is left there is said
                await self._nodes.agent(node.node).remove_environment(digest)
        left = await self.list_all()
        rows = [row for row in left.environments if row.digest == digest]
        return msgspec.structs.replace(left, environments=rows)

    async def collect(self, now_s: float, *, dry_run: bool) -> list[str]:
        """Remove what nobody has used on a node for the retention, as nodes do hourly; returns the digests.

        ``dry_run``: of what would go.
        """
        gone = set()
        for node in self.able():
            agent = self._nodes.agent(node.node)
            with contextlib.suppress(ClusterError):  # it does so by itself later
                for row in await agent.list_environments():
                    is_due = row.used_at < now_s - self._retention_s and not row.is_warm
                    if is_due and (dry_run or await agent.remove_environment(row.digest)):
                        gone.add(row.digest)
        return sorted(gone)

    # ------------------------------------------------------------------------------------------- wheels
    def _wheel(self, digest: str) -> Path:
        if _DIGEST.match(digest) is None:
            raise RequestError(f"{digest[:80]!r} is not the digest of a wheel", hint="write sha256:<64 hex digits>")
        return self._folder / digest.removeprefix("sha256:")

    def keep_wheel(self, digest: str, content: bytes) -> WheelSent:
        """Keep a wheel, in a thread; older ones that nobody has used for long go."""
        path = self._wheel(digest)
        if f"sha256:{hashlib.sha256(content).hexdigest()}" != digest:
            raise RequestError("the wheel is not the one that its digest tells", hint="send it again")
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._collect_wheels(time.time())
        partial = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
        try:
            partial.write_bytes(content)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
        return WheelSent(digest, len(content))

    def _collect_wheels(self, now_s: float) -> None:
        kept_bytes = 0
        for used_at, size, path in sorted(_facts(self._folder), reverse=True):
            kept_bytes += size
            if now_s - used_at > self._retention_s or kept_bytes > _MOST_WHEEL_BYTES:
                path.unlink(missing_ok=True)

    def _read_wheels(self, plan: Plan) -> list[bytes]:
        wheels = (self._wheel(each.digest) for each in plan.packages if each.is_shipped)
        there = [path for path in wheels if path.is_file()]  # the node says which is missing
        size, most = sum(path.stat().st_size for path in there), _MOST_SENT_BYTES
        if size > most:
            raise RequestError(
                f"the notebook's own packages are {format_bytes(size)}, and {format_bytes(most)} may be sent",
                hint="have the operator put wheels of the large ones where the nodes find them",
            )
        for path in there:
            os.utime(path)
        return [path.read_bytes() for path in there]

    # -------------------------------------------------------------------------------------------- builds
    def is_building(self, node: str) -> bool:
        """Tell if the node builds one now."""
        return any(name == node for name, *_ in self._building)

    def _key(self, node: Node, plan: Plan, user: str) -> tuple[str, str, str, str]:
        life = node.info.incarnation if node.info is not None else ""
        return node.node, life, plan.digest, self._for_whom(user)

    def _for_whom(self, user: str) -> str:
        return user if self._owner_of is not None else ""

    def lacking(self, nodes: Iterable[Node], plan: Plan, user: str) -> list[Node]:
        """Nodes of these that may have to build it, for cells of ``user``: a node keeps one for the retention after its
        last use.
        """
        return [node for node in nodes if self._there.get(self._key(node, plan, user), -math.inf) < self._known_s]

    @property
    def _known_s(self) -> float:
        """The moment before which what was found may be gone."""
        return time.monotonic() - self._retention_s / 2

    def note_use(self, nodes: Iterable[Node], plan: Plan, user: str, *, is_there: bool) -> None:
        """A run has begun in it on these nodes, or could not: then they are asked before the next one."""
        for node in nodes:
            if is_there:
                self._there[self._key(node, plan, user)] = time.monotonic()
            else:
                self._there.pop(self._key(node, plan, user), None)

    def nodes_without(self, plan: Plan | None, user: str) -> list[str]:
        """Nodes that a run of ``user`` with this plan may not start on yet."""
        return [] if plan is None else [node.node for node in self.lacking(self._nodes.alive(), plan, user)]

    def known(self, plan: Plan, user: str) -> dict[str, float]:
        """Nodes that have it, and when each was last seen to."""
        nodes = self._nodes.alive()
        lacking = self.lacking(nodes, plan, user)
        return {node.node: self._there[self._key(node, plan, user)] for node in nodes if node not in lacking}

    async def count_fetched(self, nodes: Iterable[Node], plan: Plan) -> int | None:
        """Packages that each of these nodes has fetched at least; None: one does not say."""
        counts = (self._nodes.agent(node.node).count_fetched(plan) for node in nodes)
        try:
            return min(await asyncio.gather(*counts), default=None)
        except ClusterError:
            return None

    async def build(self, nodes: Sequence[Node], plan: Plan, user: str) -> list[BuildReport]:
        """Return when each of them has it for cells of ``user`` (empty: it is there), or has failed: a report of each.

        When it is cancelled, what nobody waits for ends.
        """
        return await asyncio.gather(*(self._build_on(node, plan, user) for node in nodes))

    async def _build_on(self, node: Node, plan: Plan, user: str) -> BuildReport:
        key, shared = (node.node, plan.digest, self._for_whom(user)), (node.node, plan.digest)
        building = self._building.get(key)
        if building is None:
            building = self._building[key] = asyncio.ensure_future(self._ask(node, plan, user))
            building.add_done_callback(lambda done: self._forget(key, done))
        self._waiting[shared] += 1  # the node builds it once for all
        try:
            return await asyncio.shield(building)
        finally:
            self._waiting[shared] -= 1
            if not self._waiting[shared]:
                del self._waiting[shared]
                if not building.done():
                    self._forget(key, building)  # whoever needs it from now on has it built anew
                    await self._stop(node, plan.digest)

    def _forget(self, key: tuple[str, str, str], building: asyncio.Future[BuildReport]) -> None:
        if self._building.get(key) is building:
            del self._building[key]

    async def _ask(self, node: Node, plan: Plan, user: str) -> BuildReport:
        try:
            owner = await self._owner_of(user) if self._owner_of is not None and user else None
            wheels = await asyncio.to_thread(self._read_wheels, plan)
            report = await self._nodes.agent(node.node).build_environment(plan, wheels, owner, self._limit_s)
        except GpuReleaseError as error:
            return BuildReport(problem=error.message, hint=error.hint)
        except OSError as error:
            return BuildReport(problem=f"the gateway's wheels cannot be read: {error}")
        if not report.problem:
            self._there = {key: at_s for key, at_s in self._there.items() if at_s >= self._known_s}
            self._there[self._key(node, plan, user)] = time.monotonic()
        return report

    async def _stop(self, node: Node, digest: str) -> None:
        with contextlib.suppress(ClusterError):  # it ends at its limit
            await self._nodes.agent(node.node).stop_build(digest)


def check_size(plan: Plan) -> None:
    """Raise :class:`RequestError` for more packages than an environment may have."""
    if len(plan.packages) > _MOST_PACKAGES:
        raise RequestError(
            f"an environment has at most {_MOST_PACKAGES} packages, and this one would have {len(plan.packages)}",
            hint="`--environment cluster` takes the cluster's own; the operator installs there what all need",
        )


def _facts(folder: Path) -> Iterator[tuple[float, int, Path]]:
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            facts = path.stat()
            yield facts.st_mtime, facts.st_size, path
