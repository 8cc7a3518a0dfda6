"""``start --address``: the gateway on a Ray cluster that somebody else runs. No keeper: Ray restarts the gateway."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from .. import __version__
from ..client.autostart import Ready
from ..client.home import Connection, HomePaths
from ..core.config import Deployed, GatewayConfig
from ..errors import ClusterError, ConflictError
from ..storage.atomic import write_atomic
from ..storage.runs import probe_store
from .embedded import Say, ensure_token, running_connection, start_lock, stop_embedded
from .gateway_settings import grace_from_environment, preload_from_environment
from .keeper import read_deployed

_LIMIT_S = 180.0


def attach(address: str, *, home: HomePaths, store: str | None, host: str, port: int, progress: Say) -> Ready:
    """Put the gateway on the Ray cluster at ``address`` and remember how to reach it.

    Raises
    ------
    ConflictError
        This home has a cluster already.
    ClusterError
        Ray is not there, has another version or another Python, or lacks this package; nothing is left there.
    """
    began = time.monotonic()
    home.create()
    with start_lock(home, progress):
        running = running_connection(home)
        if running is not None:
            if not running.embedded and running.ray_address == address:
                return Ready(running, started=False)
            raise ConflictError(_in_the_way(running), mend="run `jupyter gpu stop` first")
        stop_embedded(home)
        folder = Path(store or os.environ.get("JUPYTER_GPU_STORE") or home.store).expanduser().absolute()
        probe_store(folder)
        ensure_token(home, progress)
        progress(f"connecting to Ray at {address}")
        config = _config(address, home, folder, host, port)
        deployed = _deploy(home, config, [])
        home.write_connection(_connection(config, deployed))
        connection = home.read_connection()
    if connection is None:
        raise ClusterError(f"{home.connection} vanished", mend="start again")
    return Ready(connection, started=True, gpus=deployed.gpus_total, elapsed_s=time.monotonic() - began)


def detach(home: HomePaths, connection: Connection, progress: Say) -> None:
    """Take gateway, agents and leases off the Ray cluster again; its own processes run on."""
    progress(f"taking the gateway off the Ray cluster at {connection.ray_address}")
    config = _config(connection.ray_address, home, Path(connection.store), "127.0.0.1", 0)
    _deploy(home, config, ["--remove"])
    home.remove_connection()


def _in_the_way(running: Connection) -> str:
    what = "this machine's own cluster" if running.embedded else f"a gateway on {running.ray_address}"
    return f"{what} is in use already"


def _config(address: str, home: HomePaths, store: Path, host: str, port: int) -> GatewayConfig:
    cluster = secrets.token_hex(8)
    return GatewayConfig(
        home=str(home.root),
        store=str(store),
        token_file=str(home.token),
        runtime=f"/tmp/jgr-{cluster[:8]}",
        ray_address=address,
        host=host,
        port=port,
        cluster=cluster,
        embedded=False,
        preload=preload_from_environment(),
        reconnect_grace_s=grace_from_environment(),
    )


def _deploy(home: HomePaths, config: GatewayConfig, options: list[str]) -> Deployed:
    write_atomic(home.gateway_config, [msgspec.json.encode(config)], durable=False)
    command = [sys.executable, "-m", "jupyter_gpu_release.broker.deploy", str(home.gateway_config), *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise ClusterError(
            f"Ray at {config.ray_address} did not answer within {_LIMIT_S:.0f} s",
            mend="check the address (HOST:PORT of the GCS), the network and RAY_AUTH_TOKEN_PATH",
        ) from None
    return read_deployed(done.stdout, done.stderr, done.returncode)


def _connection(config: GatewayConfig, deployed: Deployed) -> Connection:
    return Connection(
        url=deployed.url,
        token_file=config.token_file,
        store=config.store,
        embedded=False,
        cluster=config.cluster,
        runtime=config.runtime,
        ray_address=config.ray_address,
        ray_version=deployed.ray_version,
        python=deployed.python,
        version=__version__,
    )
