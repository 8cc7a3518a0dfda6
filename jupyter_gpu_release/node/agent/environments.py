"""Environments of one node: builds them, starts the fork servers in them, removes what nobody has used for long."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import secrets
import shutil
import socket
import stat
import sys
import time
from collections import Counter
from pathlib import Path

import msgspec

from ...environments.installed import InstalledReader
from ...environments.installer import find_installer
from ...environments.owned import Owned
from ...errors import ClusterError, GpuReleaseError, RequestError
from ...host import process_control
from ...host.access_lists import admit, admitted
from ...protocol.config import UnixUser
from ...protocol.environments import (
    BuildReport,
    ClusterPackages,
    EnvironmentRow,
    Installed,
    OtherPython,
    PackagesAnswer,
    Plan,
    PlannedPackage,
    Question,
    Versions,
)
from ...protocol.node import AgentConfig, PythonTry
from ...protocol.wire import encode
from ...units import format_bytes, format_seconds
from ..environments.builder import Environments, ShippedWheel, check_name, refused
from ..environments.installer import Installer, Sources
from ..environments.pythons import FoundPython, Pythons
from ..run_packages import remove_left_packages
from .fork_servers import ForkServers

log = logging.getLogger(__name__)
#: for the index to say what it has
_CHECK_S = 60.0
#: between looks for what nobody uses
_COLLECT_S = 3600.0
#: environments on a node's disk: an editable package that is being edited makes many
_MOST_KEPT = 100
#: for an index to answer `doctor` about a package that every index has
_ANSWER_S, _ASKED_FOR = 3.0, "pip"
#: for another Python to say which it is, when `doctor` asks
_PYTHON_S = 8.0
#: for one to be there when a kernel asks, and until one that could not be had is looked for again
_PATIENCE_S, _TROUBLE_KNOWN_S = 5.0, 600.0
_LEAST_FREE_BYTES = 1 << 30
#: for a rank to have its lock on packages of its own
_JUST_MADE_S = 60.0
#: for fork servers that no rank is left of to end
_ENDS_S = 10.0
#: below the root: what nobody but the agent looks into
_OWN_FOLDERS = ("bytecode", "cache", "locks", "pythons")
_ENTER_ONLY = 0o711
_SITE = frozenset({"site-packages", "dist-packages"})


def default_folder() -> str:
    """Folder for nodes whose operator named none: a local one, where large files may lie."""
    return f"/var/tmp/jupyter-gpu-environments-{os.getuid()}"


class NodeEnvironments:
    """Answers the agent's calls about environments; all on its event loop.

    ``base``: the fork servers in the cluster's own Python.
    """

    def __init__(self, config: AgentConfig, node: str, base: ForkServers) -> None:
        self._config = config
        self._node = node
        self._base = base
        #: whose cells' processes may enter them: we are root then, and start nothing of what is in them
        self._as_owners = config.as_owners
        self._root = Path(config.environments or default_folder())
        index = config.environment_index
        self._refuses_sources = config.environment_source_builds == "allowed" and os.geteuid() == 0
        sources = Sources(
            index="" if index == "none" else index,
            find_links=config.environment_wheels,
            offline=index == "none",
            source_builds=config.environment_source_builds == "allowed" and not self._refuses_sources,
        )
        behind = list(dict.fromkeys(entry for entry in sys.path if os.path.basename(entry.rstrip("/")) in _SITE))
        markers = {process_control.CLUSTER_MARKER: config.cluster, process_control.NODE_MARKER: node}
        installer = Installer(self._root / "cache", sources, {**os.environ, **markers})
        self._built = Environments(self._root, installer, behind, is_closed=self._as_owners)
        self._pythons = Pythons(installer, self._root, only_roots=self._as_owners)
        #: other Python → when it was looked for, and what was found; one may have to be fetched
        self._looks: dict[str, tuple[float, asyncio.Task[OtherPython]]] = {}
        self._reader = InstalledReader(behind)
        #: what is installed; empty: it is not known, or nothing is built here
        self.packages = ""
        self._builds: dict[str, asyncio.Task[None]] = {}
        #: digest and whose they are → fork servers, the latest used last
        self._servers: dict[tuple[str, bytes], ForkServers] = {}
        #: digest and fork servers whose last ranks have not ended yet
        self._leaving: list[tuple[str, ForkServers]] = []

    # --------------------------------------------------------------------------------------- what is there
    async def installed(self) -> Installed:
        """Packages in the cluster's Python, read in a thread."""
        return await asyncio.to_thread(self._reader.read)

    async def packages_with(self, pythons: list[str]) -> ClusterPackages:
        """Packages in the cluster's Python and in these others; never raises."""
        others = await asyncio.gather(*(self._look_at(each) for each in pythons))
        return ClusterPackages(await self.installed(), pythons=list(others))

    async def _look_at(self, python: str) -> OtherPython:
        """It as it is now. To fetch one takes long: that goes on, and kernels do not wait for it."""
        began_s, look = self._looks.get(python, (float("-inf"), None))
        is_old = time.monotonic() - began_s > _TROUBLE_KNOWN_S
        if look is None or (look.done() and (is_old or not look.result().problem)):
            look = asyncio.create_task(self._find_out(python))
            self._looks[python] = time.monotonic(), look
        await asyncio.wait([look], timeout=_PATIENCE_S)
        if look.done():
            return look.result()
        said = f"Python {python} is not there yet: the nodes look for it, or fetch it"
        return OtherPython(python, problem=said, mend="try again in some minutes")

    async def _find_out(self, python: str) -> OtherPython:
        try:
            async with asyncio.timeout(self._config.environment_timeout_s):
                found = await self._other(python)
                return OtherPython(python, await asyncio.to_thread(found.installed) if found else None)
        except GpuReleaseError as error:
            return OtherPython(python, problem=error.message, mend=error.hint)
        except TimeoutError:
            return OtherPython(python, problem=f"the nodes have not found Python {python} in time", mend="try again")

    async def _other(self, python: str) -> FoundPython | None:
        """The Python of an environment; None: the cluster's. Raises :class:`ClusterError`."""
        if not python:
            return None
        self._claim_root()
        return await self._pythons.find(python)

    async def look(self) -> None:
        """See what is installed now, where that matters."""
        if self._config.max_environments:
            self.packages = (await self.installed()).digest

    async def check(self, plan: Plan) -> PackagesAnswer:
        """Tell if the plan's packages can be had; never raises."""
        try:
            if self._find(plan.digest) is not None:
                return PackagesAnswer(is_ready=True)
            find_installer()
            other = await self._other(plan.interpreter)
            return PackagesAnswer(unavailable=await self._built.find_unavailable(plan, _CHECK_S, other))
        except GpuReleaseError as error:
            return PackagesAnswer(problem=error.message, mend=error.hint)

    async def resolve(self, question: Question) -> Versions:
        """Versions for the question's requests; never raises."""
        try:
            find_installer()
            self._claim_root()
            other = await self._other(question.interpreter)
            return Versions(await self._built.resolve(question, _CHECK_S, other))
        except GpuReleaseError as error:
            return Versions(problem=error.message, mend=error.hint)

    async def find_problem(self) -> str | None:
        """Reason why none can be built here now: no installer, folder, room or index; None: none is to be built."""
        if not self._config.max_environments:
            return None
        try:
            find_installer()
            self._claim_root()
            free_bytes = shutil.disk_usage(self._root).free
            if free_bytes < _LEAST_FREE_BYTES:
                raise ClusterError(
                    f"{self._root} has {format_bytes(free_bytes)} free",
                    hint="make room there, or name another folder in JUPYTER_GPU_ENVIRONMENTS",
                )
            if self._as_owners:
                self._check_lists()
            if self._config.environment_index != "none":
                await self._built.resolve(Question([_ASKED_FOR], [], [], []), _ANSWER_S)
            if self._refuses_sources:
                raise ClusterError(
                    "nothing is built from its source: the node agent is root, and the packages' own code would be",
                    hint="run the Ray nodes as another user, or put wheels where JUPYTER_GPU_ENVIRONMENT_WHEELS says",
                )
        except GpuReleaseError as error:
            return str(error)
        return ""

    async def try_pythons(self, pythons: list[str]) -> list[PythonTry]:
        """Look for these others, as ``doctor`` asks; nothing is fetched. Never raises."""
        if not self._config.max_environments:
            return []
        return list(await asyncio.gather(*map(self._try_python, pythons)))

    async def _try_python(self, python: str) -> PythonTry:
        try:
            self._claim_root()
            async with asyncio.timeout(_PYTHON_S):
                return PythonTry(python, (await self._pythons.look(python)).version)
        except GpuReleaseError as error:
            _, look = self._looks.get(python, (0.0, None))
            tried = look.result() if look is not None and look.done() else None
            if tried is not None and tried.problem:  # what came of fetching it
                return PythonTry(python, problem=tried.problem, mend=tried.mend)
            return PythonTry(python, problem=error.message, mend=error.hint)
        except TimeoutError:
            said = f"Python {python} has not answered within {format_seconds(_PYTHON_S)}"
            return PythonTry(python, problem=said, mend="is the disk that it lies on well?")

    async def owned_versions(self, patterns: list[str]) -> dict[str, str]:
        """Versions of GPU libraries, and of what ``patterns`` name: all nodes should have the same."""
        installed = await self.installed()
        owned = Owned(installed, patterns)
        return {each.name: each.version for each in installed.distributions if owned.has_to_fit(each.name)}

    # -------------------------------------------------------------------------------------------- build
    async def build(self, plan: Plan, wheels: list[bytes], owner: UnixUser | None = None) -> BuildReport:
        """Build it if it is not there, and have its fork server ready; never raises.

        ``owner``: as whom that runs, where cells run as their owners; nobody's: there is none then.
        """
        began_s = time.monotonic()
        try:
            if not self._config.max_environments:
                raise RequestError("this cluster builds no environments", hint="write --environment cluster")
            check_name(plan)
            is_there = self._find(plan.digest) is not None
            if not is_there:
                task = self._builds.get(plan.digest)
                if task is None:
                    task = self._builds[plan.digest] = asyncio.create_task(self._build(plan, wheels))
                    task.add_done_callback(lambda done: self._forget_build(plan.digest, done))
                await asyncio.wait({task})
                if task.cancelled():
                    return BuildReport(problem="its build was ended, since nobody waited for it any more")
                task.result()
            if owner is not None:
                self._admit(plan.digest, owner)
            if owner is not None or not self._as_owners:
                await self.servers_of(plan.digest, owner).current_server()
        except (GpuReleaseError, OSError) as error:
            known = refused(self._root, error) if isinstance(error, OSError) else error
            log.warning("environment %s: %s", plan.digest[:8], known)
            return BuildReport(problem=known.message, hint=known.hint)
        return BuildReport(0.0 if is_there else time.monotonic() - began_s)

    async def _build(self, plan: Plan, wheels: list[bytes]) -> None:
        find_installer()
        shipped = [each for each in plan.packages if each.is_shipped]
        found = {f"sha256:{hashlib.sha256(wheel).hexdigest()}": wheel for wheel in wheels}
        missing = [each.name for each in shipped if each.digest not in found]
        if missing:
            raise RequestError(
                f"the notebook has not sent its {', '.join(missing)} along", hint="run the cell again: that sends it"
            )
        folder = self._root / f".wheels-{plan.digest}-{secrets.token_hex(6)}"
        try:
            paths = await asyncio.to_thread(_write_wheels, folder, shipped, found)
            other = await self._other(plan.interpreter)
            await self._built.build(plan, paths, self._config.environment_timeout_s, other)
        finally:
            await asyncio.to_thread(_remove_flat, folder)

    async def count_fetched(self, plan: Plan) -> int:
        """Count the plan's packages that the installer has in its cache."""
        return await asyncio.to_thread(self._built.count_fetched, plan)

    async def stop_build(self, digest: str) -> None:
        """End a build; returns when nothing of it is left."""
        task = self._builds.pop(digest, None)  # whoever asks from now on gets another one
        if task is not None:
            task.cancel()
            await asyncio.wait({task})

    def _forget_build(self, digest: str, task: asyncio.Task[None]) -> None:
        if self._builds.get(digest) is task:
            del self._builds[digest]

    def _find(self, digest: str) -> Path | None:
        """Folder of one that is ready. In a root that others could have made, none is; raises :class:`ClusterError`."""
        self._claim_root()
        return self._built.find(digest)

    def _check_lists(self) -> None:
        try:
            admitted(self._root)
        except OSError as error:
            raise _without_lists(self._root, error) from error

    def _admit(self, digest: str, owner: UnixUser) -> None:
        """Let an owner read what is there for content that the owner could name; raises :class:`ClusterError`.

        On the event loop: a list is read, then written.
        """
        try:
            admit(self._root / digest, owner.uid)
        except OSError as error:
            raise _without_lists(self._root, error) from error

    def _claim_root(self) -> None:
        """Make sure that nobody else can put packages there; raises :class:`ClusterError`."""
        try:
            if not self._root.exists():
                self._root.mkdir(mode=0o700, parents=True)
            facts = os.lstat(self._root)
        except OSError as error:
            raise ClusterError(
                f"the folder for environments {self._root} cannot be made: {error.strerror}",
                hint="the operator names another one in JUPYTER_GPU_ENVIRONMENTS",
            ) from error
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o022:
            raise ClusterError(
                f"the folder for environments {self._root} is another user's, or others may write to it",
                hint="the operator removes it, or names another one in JUPYTER_GPU_ENVIRONMENTS",
            )
        for name in _OWN_FOLDERS:
            (self._root / name).mkdir(mode=0o700, exist_ok=True)
        if self._as_owners:
            self._open_to_owners()

    def _open_to_owners(self) -> None:
        """Owners pass the root, and a Python that was fetched; they list neither. Raises :class:`ClusterError`."""
        for folder in (self._root, self._root / "pythons"):
            if folder.stat().st_mode & 0o777 != _ENTER_ONLY:
                folder.chmod(_ENTER_ONLY)
        closed = next((str(above) for above in self._root.parents if not above.stat().st_mode & 0o001), "")
        if closed:
            raise ClusterError(
                f"users cannot come to environments in {self._root}: only some may enter {closed}",
                hint="the operator names another folder in JUPYTER_GPU_ENVIRONMENTS",
            )

    # ------------------------------------------------------------------------------------------ fork servers
    def servers_of(self, digest: str, owner: UnixUser | None = None) -> ForkServers:
        """The fork servers in an environment; without one those in the cluster's Python.

        ``owner``: whose they are, where cells run as their owners. Who has other groups or limits now has others.
        Raises :class:`ClusterError` when the environment is not there.
        """
        if not digest:
            return self._base
        if self._as_owners and owner is None:
            raise ClusterError("the order names no owner for the cell to run as", hint="report it, please")
        folder = self._find(digest)
        if folder is None:
            raise ClusterError(f"environment {digest[:8]} is not on this node", hint="run the cell again")
        with contextlib.suppress(OSError):  # its last use
            os.utime(self._root / "locks" / digest)
        key = digest, encode(owner)
        servers = self._servers.pop(key, None)
        if servers is None:
            self._make_room()
            config = _without_prepared(self._config)
            servers = ForkServers(config, self._node, environment=folder, owner=owner)
        self._servers[key] = servers
        return servers

    def standing_servers(self, digest: str, owner: UnixUser | None = None) -> ForkServers:
        """The same for a run that has its GPUs: where none stands it gives them back, and waits until one does.

        One is started then. Raises :class:`ClusterError` then, and when the environment is not there.
        """
        servers = self.servers_of(digest, owner)
        if not servers.is_standing:  # it made room for others, or was killed
            servers.start_soon()
            where = f"environment {digest[:8]}" if digest else f"{socket.gethostname()}"
            raise ClusterError(
                f"{where} has no process yet that cells are forked from", hint="the run waits until it has one"
            )
        return servers

    @property
    def memory_bytes(self) -> list[int]:
        """Memory of each environment's fork servers, those included that end with their last rank."""
        held = (servers.memory_bytes for servers in (*self._servers.values(), *(left for _, left in self._leaving)))
        return [each for each in held if each]

    def _make_room(self) -> None:
        while len(self._servers) >= max(1, self._config.max_environments):
            key = next(iter(self._servers))
            self._leaving.append((key[0], self._servers.pop(key)))
        for _, servers in self._leaving:  # a run that was on its way may have started one more
            servers.retire_all()
        self._leaving = [(digest, servers) for digest, servers in self._leaving if servers.has_processes]

    def kill_all(self) -> None:
        """End every fork server and every build now."""
        for task in (*self._builds.values(), *(look for _, look in self._looks.values())):
            task.cancel()
        for servers in (self._base, *self._servers.values(), *(servers for _, servers in self._leaving)):
            servers.kill_all()

    # ---------------------------------------------------------------------------------------------- end
    async def collect_forever(self) -> None:
        """Remove again and again what nobody has used for ``environment_retention_s``."""
        while True:
            await asyncio.sleep(min(_COLLECT_S, self._config.environment_retention_s))
            await asyncio.to_thread(remove_left_packages, time.time() - _JUST_MADE_S)
            with contextlib.suppress(OSError, ClusterError):
                await self.collect(time.time())

    async def collect(self, now_s: float) -> list[str]:
        """Remove those, and those beyond the most that are kept; returns their digests.

        One with a fork server that runs is in use.
        """
        await self._built.remove_leftovers(now_s - self._config.environment_timeout_s - _CHECK_S)
        await asyncio.to_thread(self._pythons.remove_leftovers)
        ready = await asyncio.to_thread(self._read_ready)
        oldest_s = now_s - self._config.environment_retention_s
        due = [row for place, row in enumerate(ready) if row.used_at < oldest_s or place >= _MOST_KEPT]
        removed = [row for row in due if await self.remove(row.digest, row.used_at)]
        digests = [row.digest for row in removed]
        if removed:
            log.info("environments %s have gone: nobody has used them for long", ", ".join(digests))
            kept = {each.name for row in ready if row not in removed for each in row.packages if not each.is_shipped}
            await self._built.forget({each.name for row in removed for each in row.packages} - kept)
        return digests

    async def remove(self, digest: str, used_at: float = float("inf")) -> bool:
        """Remove one; False: it is in use, was used after ``used_at``, or is not here. Raises :class:`ClusterError`."""
        self._leaving = [each for each in self._leaving if each[1].has_processes]
        is_used = digest in self._builds or any(digest == each for each, _ in self._leaving)
        if is_used or self._find(digest) is None or self._used_at(digest) > used_at:
            return False
        if not await self._has_let_go(digest):
            return False
        await self._built.remove(digest)
        return True

    def _used_at(self, digest: str) -> float:
        """Time of its last use; raises OSError."""
        return (self._root / "locks" / digest).stat().st_mtime

    async def list_environments(self) -> list[EnvironmentRow]:
        """List those that are ready, the latest used first."""
        ready = await asyncio.to_thread(self._read_ready)
        memory = Counter[str]()
        for (digest, _), servers in self._servers.items():
            memory[digest] += servers.memory_bytes
        return [
            msgspec.structs.replace(each, is_warm=each.digest in memory, memory_bytes=memory[each.digest])
            for each in ready
        ]

    def _read_ready(self) -> list[EnvironmentRow]:
        rows: list[EnvironmentRow] = []
        try:
            self._claim_root()
        except ClusterError:  # others may have made what is there
            return rows
        for lock in (self._root / "locks").glob("*"):
            with contextlib.suppress(OSError):  # not built, or removed meanwhile
                plan = self._built.describe(lock.name).plan
                row = EnvironmentRow(
                    lock.name, socket.gethostname(), plan.python, plan.packages, self._used_at(lock.name)
                )
                rows.append(row)
        return sorted(rows, key=lambda row: -row.used_at)

    async def _has_let_go(self, digest: str) -> bool:
        """Tell if its fork servers, of all owners, have ended at our word."""
        mine = {key: servers for key, servers in self._servers.items() if key[0] == digest}
        for servers in mine.values():
            servers.retire_all()
        until_s = time.monotonic() + _ENDS_S
        while any(servers.has_processes for servers in mine.values()) and time.monotonic() < until_s:
            await asyncio.sleep(0.02)
        for key, servers in mine.items():
            if self._servers.get(key) is servers and not servers.has_processes:
                del self._servers[key]
        return not any(key[0] == digest for key in self._servers)


def _without_lists(root: Path, error: OSError) -> ClusterError:
    return ClusterError(
        f"the filesystem of {root} keeps no access lists (ACLs), by which owners enter their environments only: "
        f"{error.strerror}",
        hint="the operator names a folder on another one in JUPYTER_GPU_ENVIRONMENTS",
    )


def _without_prepared(config: AgentConfig) -> AgentConfig:
    """Each environment's fork servers would have as many again."""
    return msgspec.structs.replace(config, max_prepared=0)


def _write_wheels(folder: Path, shipped: list[PlannedPackage], found: dict[str, bytes]) -> dict[str, ShippedWheel]:
    """Files for the installer, which checks their digests; it reads name and version off their names."""
    folder.mkdir(mode=0o700, exist_ok=True)
    paths = {}
    for each in shipped:
        path = folder / f"{each.name.replace('-', '_')}-{each.version.replace('-', '_')}-py3-none-any.whl"
        path.write_bytes(found[each.digest])
        paths[each.name] = ShippedWheel(str(path), each.digest)
    return paths


def _remove_flat(folder: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
