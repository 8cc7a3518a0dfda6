"""State of this machine's own cluster: the folder ``JUPYTER_GPU_HOME`` and its connection file."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ..errors import AuthenticationError, GatewayUnavailableError
from ..store.files import make_private_folder, write_atomic

_DEFAULT = "~/.local/state/jupyter-gpu"


class Connection(msgspec.Struct, frozen=True, omit_defaults=True):
    """Facts for reaching the embedded cluster; they hold no secret (``token_file`` names the file that does)."""

    url: str
    token_file: str
    store: str
    simulated: bool = False
    embedded: bool = True
    cluster: str = ""
    runtime: str = ""
    #: the process that keeps the cluster's processes together, and its creation time (psutil ``create_time``)
    daemon_pid: int = 0
    daemon_created: float = 0.0
    ray_address: str = ""
    ray_version: str = ""
    python: str = ""
    version: str = ""
    #: file of the gateway's own certificate, which clients that can read it trust
    tls_cert: str = ""
    #: address of a proxy before the gateway, for others than this machine
    proxy_url: str = ""
    #: where it was started, if it has a pool of Slurm's: several machines have this home
    host: str = ""
    schema_version: int = 1


class HomePaths:
    """File names below ``JUPYTER_GPU_HOME`` (0700)."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.connection = root / "connection.json"
        self.token = root / "token"
        self.ray_token = root / "ray-token"
        self.ledger = root / "ledger.sqlite"
        self.log = root / "log"
        self.lock = root / "start.lock"
        self.store = root / "store"
        #: results that cannot be written to the store yet
        self.spool = root / "spool"
        self.gateway_config = root / "gateway.json"

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> HomePaths:
        """The home that ``JUPYTER_GPU_HOME`` names, else ``~/.local/state/jupyter-gpu``."""
        named = (os.environ if environment is None else environment).get("JUPYTER_GPU_HOME")
        return cls(Path(named or _DEFAULT).expanduser().absolute())

    def create(self) -> None:
        """Make the folder and its log folder (0700); a folder of ours that others may read is closed to them."""
        make_private_folder(self.root)
        self._make_private()
        make_private_folder(self.log)

    def _make_private(self) -> None:
        facts = self.root.stat()
        # somebody who names ~ or /tmp as the home does not want those closed
        is_shared = facts.st_mode & stat.S_ISVTX or self.root in (Path.home(), Path("/"))
        if facts.st_uid == os.getuid() and facts.st_mode & 0o077 and not is_shared:
            self.root.chmod(0o700)

    def read_connection(self) -> Connection | None:
        """The connection file's content, or None when there is none; raises when it is damaged."""
        try:
            return msgspec.json.decode(self.connection.read_bytes(), type=Connection)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            raise GatewayUnavailableError(
                f"cannot read {self.connection}: {error}", hint="remove it and run `jupyter gpu start`"
            ) from error

    def write_connection(self, connection: Connection) -> None:
        """Replace the connection file in one step (0600)."""
        self.create()
        write_atomic(self.connection, [msgspec.json.format(msgspec.json.encode(connection), indent=1)])

    def remove_connection(self) -> None:
        """Forget the cluster; fine when nothing is there."""
        self.connection.unlink(missing_ok=True)


def write_secret(path: Path, secret: str) -> None:
    """Write a token file (0600) in one step."""
    make_private_folder(path.parent)
    write_atomic(path, [secret.encode() + b"\n"])


def read_secret(path: Path) -> str:
    """Read a token file; refuses one that others may read."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(4096)
    except OSError as error:
        raise AuthenticationError(
            f"cannot read the token file {path}: {error.strerror}", hint="check the path, or set JUPYTER_GPU_TOKEN"
        ) from error
    if stat.S_IMODE(mode) & 0o077:
        raise AuthenticationError(
            f"the token file {path} may be read by others (mode {stat.S_IMODE(mode):04o})", hint=f"chmod 600 {path}"
        )
    secret = content.decode(errors="replace").strip()
    if not secret:
        raise AuthenticationError(f"the token file {path} is empty", hint="run `jupyter gpu start` to make a new one")
    return secret
