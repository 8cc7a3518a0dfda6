"""Launch spec of one cluster, for its daemon: written by ``jupyter gpu start`` into the runtime folder (0600)."""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from ..client.home import HomePaths
from ..protocol.config import ClusterSettings
from ..settings.table import VARIABLES
from ..store.files import write_atomic
from .processes import PLAN_FILE

LOOPBACK = "127.0.0.1"


class LaunchSpec(ClusterSettings, frozen=True, omit_defaults=True):
    """One embedded cluster: where its files are, how many GPUs it has."""

    home: str
    #: short local folder (``/tmp/jgr-<8 hex>``, 0700) for sockets and Ray's files
    runtime: str
    store: str
    gpus: int
    cpus: int = 1
    #: where Ray listens
    address: str = LOOPBACK
    #: id of its node, which Ray is told
    node: str = ""
    #: the daemon's process, written by itself
    daemon_pid: int = 0
    #: ``host:port`` of the GCS, written once the cluster is ready
    ray_address: str = ""

    @property
    def paths(self) -> HomePaths:
        """The home folder's file names."""
        return HomePaths(Path(self.home))

    @property
    def ray_folder(self) -> str:
        """Ray's temp folder; its socket paths must stay below 107 bytes."""
        return f"{self.runtime}/ray"

    @property
    def head_memory(self) -> Path:
        """Folder of what Ray keeps of the head of a pool."""
        return Path(self.runtime) / "head"

    @property
    def outlives_head(self) -> bool:
        """Tell if its nodes wait for a head that is lost."""
        return self.slurm is not None and bool(self.ray_address) and self.head_memory.is_dir()

    @property
    def ray_token_file(self) -> str:
        """File with Ray's own token."""
        return str(self.paths.ray_token)

    @property
    def stand_in_folder(self) -> Path:
        """Folder on the ``PYTHONPATH`` of Ray's processes, see ``ray_head``."""
        return Path(self.runtime) / "path"

    def write(self) -> None:
        """Write the plan into its runtime folder."""
        path = Path(self.runtime) / PLAN_FILE
        write_atomic(path, [msgspec.json.format(msgspec.json.encode(self), indent=1)], durable=False)


def make_runtime_folder() -> Path:
    """A new private folder with a short path, whatever ``TMPDIR`` says."""
    while True:
        folder = Path(runtime_root()) / f"jgr-{secrets.token_hex(4)}"
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            continue
        return folder


def read_plans(home: HomePaths | None = None) -> Iterator[LaunchSpec]:
    """Plans of this user's clusters, running or dead; with ``home`` only those of that home."""
    for folder in sorted(Path(runtime_root()).glob("jgr-*")):
        plan = _read_plan(folder)
        if plan is not None and (home is None or Path(plan.home) == home.root):
            yield plan


def _read_plan(folder: Path) -> LaunchSpec | None:
    try:
        facts = folder.lstat()
        if facts.st_uid != os.getuid() or not stat.S_ISDIR(facts.st_mode):
            return None
        plan = msgspec.json.decode((folder / PLAN_FILE).read_bytes(), type=LaunchSpec)
    except (OSError, msgspec.MsgspecError):
        return None
    return plan if Path(plan.runtime) == folder else None


def runtime_root() -> str:
    """Parent of the runtime folders: ``JUPYTER_GPU_RUNTIME``, else ``/tmp`` (paths of sockets end at 107 bytes)."""
    named = os.environ.get(VARIABLES["runtime"].variable, "")
    return named or ("/tmp" if Path("/tmp").is_dir() else tempfile.gettempdir())
