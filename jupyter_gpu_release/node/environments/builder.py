"""Builds environments on this node: virtual environments in front of the cluster's own packages, named by content.

Below the root: one folder for each environment that is ready, ``.building-…`` for those that are not, ``cache`` (the
installer's), ``bytecode``, ``locks``. A folder gets its name when all is in it, and nobody writes to it after that.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import re
import secrets
import shutil
import stat
import sys
import textwrap
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from ...environments.installed import InstalledReader
from ...errors import ClusterError, RequestError
from ...protocol.environments import Plan, PlannedPackage, Question, digest_of, environment_digest
from ...units import format_count, format_seconds
from .bytecode import compile_modules, remove_unused
from .installer import Installer, InstallerError
from .pythons import FoundPython

_RECORD = "environment.json"
#: this package, as a rank in another Python finds it
_OURS = Path(__file__).parents[2]
_LOOK_S = 0.05
#: questions to the installer at once, each for one package
_AT_ONCE = 4
#: of the installer's words on one package
_MOST_WORDS = 300
_CAUSE = re.compile(r"cause: |error: |╰─▶ ")
_MARKS = str.maketrans("", "", "×╰─▶│├")


class ShippedWheel(msgspec.Struct, frozen=True):
    """A wheel that the notebook sent along. ``digest``: ``sha256:…``."""

    path: str
    digest: str


class BuiltEnvironment(msgspec.Struct, frozen=True):
    """``environment.json``: what is in an environment. ``records``: distribution → digest of its list of files."""

    schema_version: int
    plan: Plan
    records: dict[str, str]


class UnavailablePackagesError(InstallerError):
    """Some packages cannot be had, the others can. ``packages``: name → the installer's words."""

    def __init__(self, message: str, *, hint: str = "", words: str = "", packages: Mapping[str, str] = {}) -> None:
        super().__init__(message, hint=hint, words=words)
        self.packages = dict(packages)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (self.message, self.hint, self.words, self.packages)


def _rebuild(message: str, hint: str, words: str, packages: dict[str, str]) -> UnavailablePackagesError:
    return UnavailablePackagesError(message, hint=hint, words=words, packages=packages)


class Environments:
    """Those of one node, below ``root``, for all of its processes.

    ``behind``: folders of the packages of the cluster's Python, which is this process's. ``is_closed``: nobody enters
    one but its builder and those who are admitted (:func:`.access_lists.admit`).
    """

    def __init__(self, root: Path, installer: Installer, behind: Sequence[str], *, is_closed: bool = False) -> None:
        self._is_closed = is_closed
        self._root = root
        self._installer = installer
        self._behind = list(behind)

    def find(self, digest: str) -> Path | None:
        """Folder of one that is ready; its interpreter is ``bin/python`` in it."""
        folder = self._root / digest
        return folder if digest and (folder / _RECORD).is_file() else None

    def describe(self, digest: str) -> BuiltEnvironment:
        """Return the record of one that is ready; raises OSError."""
        return msgspec.json.decode((self._root / digest / _RECORD).read_bytes(), type=BuiltEnvironment)

    async def build(
        self, plan: Plan, wheels: Mapping[str, ShippedWheel], limit_s: float, other: FoundPython | None = None
    ) -> Path:
        """Return the folder of ``plan``'s environment, built if it is not there yet: by one process at a time.

        When the task is cancelled or the limit is over, nothing of it is left and no process of it runs.

        Parameters
        ----------
        wheels
            One for each package of the plan that is shipped, by name.
        limit_s
            For all of it, waiting for another process that builds the same included.
        other
            The plan's Python, where that is not the cluster's.

        Raises
        ------
        RequestError
            Its name is not that of its packages: others would get it in place of theirs.
        UnavailablePackagesError
            Some packages cannot be had.
        ClusterError
            It was not ready in time, the disk is full, …: the installer's last words are in it.
        """
        check_name(plan)
        if (ready := self.find(plan.digest)) is not None:
            return ready
        try:
            async with asyncio.timeout(limit_s):
                return await self._build_alone(plan, wheels, other)
        except TimeoutError:
            count = format_count(len(plan.packages), "package")
            raise ClusterError(
                f"the environment of {count} was not ready after {format_seconds(limit_s)}",
                hint="is the index reachable from the nodes (`jupyter gpu doctor`)? `environment_timeout` allows more",
            ) from None
        except OSError as error:
            raise refused(self._root, error) from error

    async def find_unavailable(self, plan: Plan, limit_s: float, other: FoundPython | None = None) -> dict[str, str]:
        """Return those of the plan's packages that cannot be had, with the installer's words; nothing is installed.

        Raises :class:`ClusterError` when none can be had, or nobody can tell.
        """
        lines = {each.name: _line(each, {}) for each in plan.packages if not each.is_shipped}
        folder = self._root / f".checking-{secrets.token_hex(6)}"
        python = other.python if other else sys.executable
        install = ["pip", "install", "--python", python, "--no-deps", "--target", "nowhere"]
        try:
            folder.mkdir(parents=True)
            (folder / "requirements.txt").write_text("".join(f"{line}\n" for line in lines.values()))
            async with asyncio.timeout(limit_s):
                try:
                    await self._installer.call([*install, "--dry-run", "--requirements", "requirements.txt"], folder)
                except InstallerError as error:
                    explained = await self._explained(error, install, lines, folder)
                    if not isinstance(explained, UnavailablePackagesError):
                        raise explained from error
                    return explained.packages
            return {}
        except TimeoutError:
            raise ClusterError(
                f"the nodes' index has not answered within {format_seconds(limit_s)}",
                hint="do the nodes reach the index? JUPYTER_GPU_ENVIRONMENT_INDEX names another",
            ) from None
        except OSError as error:
            raise refused(self._root, error) from error
        finally:
            await _remove_tree(folder)

    def count_fetched(self, plan: Plan) -> int:
        """Count the plan's packages that the installer has: sent along, or in its cache."""
        return sum(each.is_shipped or self._installer.has_fetched(each.name, each.version) for each in plan.packages)

    async def resolve(self, question: Question, limit_s: float, other: FoundPython | None = None) -> dict[str, str]:
        """Return versions for the question's requests and for what these require: name → version.

        Raises :class:`ClusterError`: they do not go together, or not with the cluster's own packages.
        """
        folder = self._root / f".resolving-{secrets.token_hex(6)}"
        try:
            folder.mkdir(parents=True)
            for name in ("requests", "constraints", "excluded", "preferred"):
                (folder / f"{name}.txt").write_text("".join(f"{line}\n" for line in getattr(question, name)))
            arguments = ["pip", "compile", "requests.txt", "--constraints", "constraints.txt"]
            python = other.python if other else sys.executable
            arguments += ["--excludes", "excluded.txt", "--output-file", "preferred.txt", "--python", python]
            async with asyncio.timeout(limit_s):
                await self._installer.call([*arguments, "--no-header", "--no-annotate"], folder)
            return _versions((folder / "preferred.txt").read_text())
        except TimeoutError:
            raise ClusterError(
                f"no versions were found for {', '.join(question.requests)} within {format_seconds(limit_s)}",
                hint="do the nodes reach the index? JUPYTER_GPU_ENVIRONMENT_INDEX names another",
            ) from None
        except OSError as error:
            raise refused(self._root, error) from error
        except InstallerError as error:
            if error.hint:
                raise
            together = "together " if len(question.requests) > 1 else ""
            raise InstallerError(
                f"{', '.join(question.requests)} cannot be had {together}beside the cluster's own packages\n"
                f"{error.message}",
                hint="ask for other versions; the cluster's own stay as they are (`%gpu_env` shows them)",
                words=error.words,
            ) from error
        finally:
            await _remove_tree(folder)

    async def remove_leftovers(self, before_s: float) -> None:
        """Remove what processes that were killed have left: what nobody has touched since then."""
        for folder in self._root.glob(".*-*"):
            with contextlib.suppress(FileNotFoundError):
                if folder.stat().st_mtime < before_s:
                    await _remove_tree(folder)

    async def remove(self, digest: str) -> None:
        """Remove one; who uses it must have ended. It is gone for everybody at once."""
        async with self._locked(digest):
            folder, away = self._root / digest, self._root / f".building-{digest}-{secrets.token_hex(6)}"
            with contextlib.suppress(FileNotFoundError):
                folder.rename(away)
            await _remove_tree(away)

    async def forget(self, packages: Iterable[str]) -> None:
        """Remove these from the installer's cache, and bytecode that no environment has any more."""
        await asyncio.to_thread(remove_unused, self._root / "bytecode")
        if names := sorted(packages):
            await self._installer.call(["cache", "clean", *names], self._root)

    # -------------------------------------------------------------------------------------------- build
    async def _build_alone(self, plan: Plan, wheels: Mapping[str, ShippedWheel], other: FoundPython | None) -> Path:
        async with self._locked(plan.digest) as lock:
            if (ready := self.find(plan.digest)) is not None:
                return ready
            for left in self._root.glob(f".building-{plan.digest}-*"):  # of a process that was killed
                await _remove_tree(left)
            folder = self._root / f".building-{plan.digest}-{secrets.token_hex(6)}"
            try:
                folder.mkdir(mode=0o700)  # what is opened before it is closed stays open
                await self._make(folder, plan, wheels, lock, other)
                folder.rename(self._root / plan.digest)
            finally:
                await _remove_tree(folder)
            return self._root / plan.digest

    @contextlib.asynccontextmanager
    async def _locked(self, digest: str) -> AsyncIterator[int]:
        """One process at a time has it; the installer keeps it, too, if this process is killed meanwhile."""
        locks = self._root / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        lock = os.open(locks / digest, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            while not _take(lock):
                await asyncio.sleep(_LOOK_S)
            yield lock
        finally:
            os.close(lock)

    async def _make(
        self, folder: Path, plan: Plan, wheels: Mapping[str, ShippedWheel], lock: int, other: FoundPython | None
    ) -> None:
        python_below = other.python if other else sys.executable
        # from the first package on the folder's own interpreter is whatever these make of it: nothing of ours starts it
        venv = ["venv", "--python", python_below, "--no-project", "--relocatable", str(folder)]
        await self._installer.call(venv, self._root, keep_open=lock)
        python = folder / "bin" / "python"
        packages = next(folder.glob("lib/python*/site-packages"))
        lines = {each.name: _line(each, wheels) for each in plan.packages}
        (folder / "requirements.txt").write_text("".join(f"{line}\n" for line in lines.values()))
        install = ["pip", "install", "--python", str(python), "--no-deps"]
        try:
            await self._installer.call([*install, "--requirements", "requirements.txt"], folder, keep_open=lock)
        except InstallerError as error:
            elsewhere = ["pip", "install", "--python", python_below, "--no-deps", "--target", "nowhere"]
            raise await self._explained(error, elsewhere, lines, folder) from error
        _check(packages, plan)
        if other:
            (packages / _OURS.name).symlink_to(_OURS)
        (packages / "jupyter_gpu_cluster.pth").write_text(_path_lines(other.behind if other else self._behind))
        await compile_modules(python_below, packages, self._root / "bytecode")
        records = {each.name.removesuffix(".dist-info"): each for each in packages.glob("*.dist-info")}
        built = BuiltEnvironment(
            1, plan, {name: digest_of((each / "RECORD").read_bytes()) for name, each in sorted(records.items())}
        )
        (folder / _RECORD).write_bytes(msgspec.json.encode(built))
        await asyncio.to_thread(_make_read_only, folder)
        folder.chmod(0o500 if self._is_closed else 0o555)

    async def _explained(
        self, error: InstallerError, install: Sequence[str], lines: Mapping[str, str], folder: Path
    ) -> InstallerError:
        """The error with the packages that it is about: those that cannot be had alone either."""
        if error.hint:
            return error
        at_once = asyncio.Semaphore(_AT_ONCE)
        for name, line in lines.items():
            (folder / f"{name}.txt").write_text(line + "\n")

        async def words_on(name: str) -> str:
            async with at_once:
                try:
                    await self._installer.call([*install, "--dry-run", "--requirements", f"{name}.txt"], folder)
                except InstallerError as alone:
                    return _excerpt(alone.words)
            return ""

        async with asyncio.TaskGroup() as group:
            asked = {name: group.create_task(words_on(name)) for name in lines}
        failed = {name: words for name, task in asked.items() if (words := task.result())}
        is_of_all = self._installer.has_index and len(failed) == len(lines) > 1
        if not failed or is_of_all:  # the disk, the network
            count = format_count(len(lines), "package")
            return InstallerError(
                f"the environment of {count} could not be built\n{error.message}",
                hint="`jupyter gpu doctor` looks at the nodes' index and disk; `--environment cluster` needs neither",
                words=error.words,
            )
        return UnavailablePackagesError(
            f"the cluster's nodes cannot get {', '.join(sorted(failed))}\n{error.message}",
            hint="is its name right, and is there a wheel for the nodes' Python and platform? "
            "`--environment cluster` runs the cell without it",
            words=error.words,
            packages=failed,
        )


def check_name(plan: Plan) -> None:
    """Raise :class:`RequestError` for a plan whose name is not that of its packages: it would get those of others."""
    if not plan.digest or plan.requests or plan.digest != environment_digest(plan):
        raise RequestError(
            "an environment has to be named by its packages, whose versions are known",
            hint="let the kernel plan it: %gpu_env",
        )


def refused(root: Path, error: OSError) -> ClusterError:
    """The error of a system that refuses a file below the root."""
    return ClusterError(
        f"cannot build an environment in {root}: {error.strerror or error}",
        hint="make room there, or have the operator choose another folder for environments",
    )


def _excerpt(words: str) -> str:
    """The last cause in one line."""
    cause = _CAUSE.split(words)[-1]
    return textwrap.shorten(cause.translate(_MARKS), _MOST_WORDS, placeholder=" …")


def _take(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _line(package: PlannedPackage, wheels: Mapping[str, ShippedWheel]) -> str:
    if not package.is_shipped:
        return " ".join([f"{package.name}=={package.version}", *(f"--hash={each}" for each in package.hashes)])
    wheel = wheels[package.name]
    return f"{package.name} @ {Path(wheel.path).as_uri()} --hash={wheel.digest}"


def _versions(text: str) -> dict[str, str]:
    pinned = (line.split(";")[0].strip().partition("==") for line in text.splitlines() if "==" in line)
    return {name: version for name, _, version in pinned}


def _check(packages: Path, plan: Plan) -> None:
    """The installer did what it was told, whatever was in its settings."""
    found = {each.name: each.version for each in InstalledReader([str(packages)]).read().distributions}
    wrong = [each.name for each in plan.packages if found.get(each.name) != each.version]
    if wrong:
        raise ClusterError(
            f"the installer made an environment without {', '.join(wrong)} in these versions",
            hint="a setting of uv on the nodes may say so (`UV_…`, uv.toml)",
        )


def _path_lines(folders: Sequence[str]) -> str:
    """Lines of a ``.pth``: these folders come behind, and their own ``.pth`` files count."""
    return "".join(f"import site; site.addsitedir({folder!r})\n" for folder in folders)


def _make_read_only(folder: Path) -> None:
    """Nobody writes to what is in it, and every user who may enter it reads that, whatever the umask."""
    for root, folders, names in os.walk(folder, topdown=False):
        for path in (os.path.join(root, name) for name in (*names, *folders)):
            facts = os.lstat(path)
            if not stat.S_ISLNK(facts.st_mode):
                os.chmod(path, 0o555 if facts.st_mode & stat.S_IXUSR else 0o444)


async def _remove_tree(folder: Path) -> None:
    """Remove it if it is there, read-only or not; also when this task is cancelled meanwhile."""
    await asyncio.shield(asyncio.to_thread(_remove_now, folder))


def _remove_now(folder: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        for root, _, _ in os.walk(folder):
            os.chmod(root, 0o700)
        shutil.rmtree(folder)
