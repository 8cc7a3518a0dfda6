"""What all tests share: the session's cluster, homes of their own, and the check that nothing is left behind."""

from __future__ import annotations

import contextlib
import gc
import os
import secrets
import signal
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import metered
import psutil
import pytest
from jupyter_client.connect import LocalPortCache
from outcomes import OPTION, OutcomesPlugin
from ports import free_port
from skips import SkipsFail
from soak import SoakOnly

from jupyter_gpu_release.client.autostart import Ready
from jupyter_gpu_release.client.home import HomePaths
from jupyter_gpu_release.host.process_control import is_gone
from jupyter_gpu_release.local_cluster.processes import marker_of
from jupyter_gpu_release.local_cluster.start import StartOptions, start_embedded, stop_embedded

_SESSION_VARIABLE = "JUPYTER_GPU_TEST_SESSION"
_SESSION = secrets.token_hex(8)
os.environ[_SESSION_VARIABLE] = _SESSION
for _name in ("JUPYTER_GPU_URL", "JUPYTER_GPU_TOKEN", "JUPYTER_GPU_STORE", "JUPYTER_GPU_HOME", "JUPYTER_GPU_CLUSTER"):
    os.environ.pop(_name, None)

# several processes train on few cores here: OpenMP's threads that wait would burn what the others need (twice the time)
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

#: runtime folders of this session alone: others may be testing on this machine, too
_RUNTIME = Path(tempfile.mkdtemp(prefix="jt-", dir="/tmp"))
os.environ["JUPYTER_GPU_RUNTIME"] = str(_RUNTIME)

_GONE_WITHIN_S = 90.0
#: between two looks of `until`, at first and later
_LOOK_S, _LOOK_LATER_S = 0.02, 0.1
#: who inherits orphans: init, and the runner's process above this one
_REAPERS = (1, int(os.environ.get(metered.VARIABLE, "1")))

# how long an example takes says more of the machine than of the code
hypothesis.settings.register_profile("ours", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("ours")


@pytest.fixture(scope="session", autouse=True)
def _ports_of_kernels() -> Iterator[None]:
    """Kernels listen where no client's socket is: one may take the port that Jupyter chose before the kernel does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalPortCache, "find_available_port", lambda self, ip: free_port())
        yield


class Shared:
    """What session fixtures started: it outlives the modules. Recorded by the hook below."""

    def __init__(self) -> None:
        self.clusters: set[str] = set()
        self.processes: set[int] = set()
        self.folders: set[Path] = set()

    def has(self, process: psutil.Process) -> bool:
        """Tell if a session fixture's process, or its descendant, or of its cluster."""
        if marker_of(process.pid) in self.clusters:
            return True
        return bool({process.pid, *(parent.pid for parent in process.parents())} & self.processes)


_shared = Shared()


class Recorder:
    """Remembers which processes and folders session fixtures make.

    A plugin, not a hook of this file: hooks of a conftest below the root are not called for session fixtures.
    """

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        """Compare before and after the fixture's set-up."""
        if fixturedef.scope != "session":
            return (yield)
        processes, folders = set(psutil.pids()), set(_folders())
        try:
            return (yield)
        finally:
            new = {pid for pid in psutil.pids() if pid not in processes and _is_marked(pid)}
            _shared.processes |= new
            _shared.clusters |= {marker for pid in new if (marker := marker_of(pid))}
            _shared.folders |= set(_folders()) - folders


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--outcomes FILE``: for ``tests/harness/side_by_side.py``."""
    parser.addoption(OPTION, type=Path, help="write what passed and what failed into this file")


def pytest_configure(config: pytest.Config) -> None:
    """Register the recorder; a run that is told to end (``timeout``, CI) tears its fixtures down."""
    config.pluginmanager.register(Recorder())
    SkipsFail.register(config)
    config.pluginmanager.register(SoakOnly())
    if outcomes := config.getoption(OPTION):
        config.pluginmanager.register(OutcomesPlugin(outcomes))
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` ignores it, for all that tests start too
    signal.signal(signal.SIGTERM, lambda number, frame: pytest.exit("SIGTERM", returncode=143))


def pytest_unconfigure() -> None:
    """Remove this session's folder, unless something was left in it."""
    with contextlib.suppress(OSError):
        _RUNTIME.rmdir()


class Leftovers:
    """Processes and runtime folders that came since it was made; ``shared``: what may stay."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._processes = set(psutil.pids())
        self._folders = set(_folders())

    def wait_gone(self) -> list[str]:
        """What is still there after a while, in words."""
        deadline = time.monotonic() + _GONE_WITHIN_S
        while (left := self._look()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return left

    def _look(self) -> list[str]:
        left = []
        for process in psutil.process_iter():
            if process.pid in self._processes or process.pid == os.getpid() or is_gone(process.pid):
                continue
            if _is_orphan_of_ray(process) or (_is_marked(process.pid) and not self._is_shared(process)):
                left.append(f"process {_describe(process)}")
        return left + [f"folder {folder}" for folder in _folders() if self._is_garbage(folder)]

    def _is_shared(self, process: psutil.Process) -> bool:
        try:
            return self._shared.has(process)
        except psutil.Error:
            return True  # gone meanwhile

    def _is_garbage(self, folder: Path) -> bool:
        return folder not in self._folders | self._shared.folders


def _is_marked(pid: int) -> bool:
    """Started, however indirectly, by this test session."""
    return f"{_SESSION_VARIABLE}={_SESSION}".encode() in _read(pid, "environ").split(b"\0")


def _is_orphan_of_ray(process: psutil.Process) -> bool:
    """Ray's Python processes overwrite their environment: these lost their raylet and log into our folder."""
    try:
        title = process.cmdline()[:1]
        return process.ppid() in _REAPERS and title != [] and title[0].startswith("ray::") and _writes_here(process.pid)
    except psutil.Error:
        return False


def _writes_here(pid: int) -> bool:
    with contextlib.suppress(OSError):
        files = [os.readlink(file) for file in Path(f"/proc/{pid}/fd").iterdir()]
        return any(file.startswith(f"{_RUNTIME}/") for file in files)
    return False


@pytest.fixture(scope="session", autouse=True)
def _nothing_left_at_the_end() -> Iterator[None]:
    leftovers = Leftovers(Shared())
    gc.freeze()  # all that is imported: the collections below are quick without it
    yield
    gc.collect()
    left = leftovers.wait_gone()
    assert not left, "the test session left behind:\n" + "\n".join(left)


@pytest.fixture(scope="module", autouse=True)
def _nothing_left_by_this_module(_nothing_left_at_the_end: None) -> Iterator[None]:
    leftovers = Leftovers(_shared)
    yield
    gc.collect()  # what it has not closed fails this module, not one that runs later
    left = leftovers.wait_gone()
    assert not left, "this module left behind:\n" + "\n".join(left)


@pytest.fixture(scope="session")
def preload() -> str:
    """Libraries that the session's cluster loads before cells run; empty: its own choice. Some need no torch."""
    return ""


@pytest.fixture(scope="session")
def cluster(preload: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ready]:
    """An embedded cluster with 4 simulated GPUs for the whole session; do not stop or break it."""
    home = HomePaths(tmp_path_factory.mktemp("home"))
    try:
        with pytest.MonkeyPatch.context() as patch:
            if preload:
                patch.setenv("JUPYTER_GPU_PRELOAD", preload)
            ready = start_embedded(home=home, asked=StartOptions(simulated=4), progress=print)
        yield ready
    finally:
        stop_embedded(home)


@pytest.fixture
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HomePaths]:
    """A home of this test's own, named by ``JUPYTER_GPU_HOME``; what was started in it ends with the test."""
    home = HomePaths(tmp_path / "home")
    monkeypatch.setenv("JUPYTER_GPU_HOME", str(home.root))
    monkeypatch.setenv("JUPYTER_GPU_PRELOAD", "numpy")  # loading torch is a third of what a cluster's start costs
    yield home
    stop_embedded(home)


def _folders() -> list[Path]:
    return [folder for folder in _RUNTIME.glob("jgr-*") if folder.is_dir()]


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _describe(process: psutil.Process) -> str:
    try:
        return f"{process.pid} (parent {process.ppid()}): {' '.join(process.cmdline())[:150]}"
    except psutil.Error:
        return str(process.pid)


def _holds(condition: Callable[[], object], *, is_last: bool) -> bool:
    try:
        return bool(condition())
    except Exception:
        if is_last:
            raise
        return False


UntilTrue = Callable[[Callable[[], object], str], None]


@pytest.fixture(scope="session")
def until() -> UntilTrue:
    """``until(condition, "what is waited for", limit_s=150)``: waits for it, and fails when it does not come.

    A condition that raises does not hold yet: the file, process or row that it looks at may come, or go, meanwhile.
    The pauses grow: to look costs up to 30 ms of CPU, which whoever is waited for has not then.
    """

    def wait(condition: Callable[[], object], what: str, limit_s: float = 150) -> None:
        began_s, waited_s = time.monotonic(), 0.0
        while not _holds(condition, is_last=waited_s > limit_s):
            assert waited_s <= limit_s, f"waited {limit_s:g} s for: {what}"
            time.sleep(min(max(_LOOK_S, waited_s / 20), _LOOK_LATER_S))
            waited_s = time.monotonic() - began_s

    return wait
