"""``start --address``: the gateway on a Ray cluster of somebody else. No cluster daemon: Ray restarts the gateway."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil

from .._version import __version__
from ..checks.package import require_extra
from ..client.autostart import Ready
from ..client.discovery import target_of
from ..client.home import Connection, HomePaths
from ..client.rest import GatewayClient
from ..errors import (
    AuthenticationError,
    ClusterError,
    ConflictError,
    GatewayUnavailableError,
    GpuReleaseError,
    OptionError,
)
from ..protocol.config import Deployed, GatewayConfig, Listening, shared_by
from ..store.files import write_atomic
from .daemon import read_deployed
from .launch_spec import runtime_root
from .preflight import begin_store, check_named_environments
from .ray_head import LOOPBACK_ONLY
from .settings import gateway_config
from .start import Say, StartOptions, ensure_token, running_connection, settings_of, start_lock, stop_embedded

#: above the sum of the limits of what is asked there, which say more
_LIMIT_S = 600.0
_CLEAN_UP_S = 60.0
_CONNECT_S = 3.0
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}
_ALL = ("0.0.0.0", "::")


def attach(address: str, *, home: HomePaths, asked: StartOptions, progress: Say) -> Ready:
    """Put the gateway on the Ray cluster at ``address`` and remember how to reach it.

    Raises
    ------
    OptionError
        The gateway could not be reached under this ``host`` and ``port``, or its queues file is malformed.
    ConflictError
        This home has a cluster already, or its gateway there has another host, port or store.
    ClusterError
        Ray is not there, has another version or another Python, or lacks this package; nothing is left there.
    """
    began = time.monotonic()
    home.create()
    with start_lock(home, progress):
        running = running_connection(home)
        if running is not None:
            if not running.embedded and running.ray_address == address:
                asked.refuse_another(running)
                if _answers(running):
                    return Ready(running, started=False)
                found = _put_back(home, running, progress)
                elapsed_s = round(time.monotonic() - began, 3)
                return Ready(running, started=found.created, gpus=found.gpus_total, elapsed_s=elapsed_s)
            raise ConflictError(_in_the_way(running), hint="run `jupyter gpu stop` first")
        require_extra("cluster", "a gateway on a Ray cluster")
        stop_embedded(home)
        folder = asked.store_folder(home)
        store_id = begin_store(home, folder)
        ensure_token(home, progress)
        config = _config(address, home, folder, asked, store_id)
        _check_reachable(address)
        progress(f"putting the gateway on the Ray cluster at {address}")
        deployed = _deploy(home, config, progress)
        connection = _connection(config, deployed)
        home.write_connection(connection)
    return Ready(connection, started=True, gpus=deployed.gpus_total, elapsed_s=round(time.monotonic() - began, 3))


def detach(home: HomePaths, connection: Connection, progress: Say) -> None:
    """Take gateway, agents and leases off the Ray cluster again; its own processes run on."""
    progress(f"taking the gateway off the Ray cluster at {connection.ray_address}")
    config = GatewayConfig(
        home=str(home.root),
        store=connection.store,
        token_file=connection.token_file,
        runtime=connection.runtime,
        ray_address=connection.ray_address,
        cluster=connection.cluster,
        embedded=False,
    )
    ask_ray(home, config, "undeploy")
    home.remove_connection()


def _deploy(home: HomePaths, config: GatewayConfig, progress: Say) -> Deployed:
    try:
        return ask_ray(home, config, "deploy")
    except GpuReleaseError as error:
        if isinstance(error, AuthenticationError):
            raise  # nothing was made
        # what was made before it failed is taken away
        progress("it failed: taking away what is there already")
        with suppress(GpuReleaseError):
            ask_ray(home, config, "undeploy", _CLEAN_UP_S)
        raise


def _answers(attached: Connection) -> bool:
    """Tell if its gateway is there, whatever it says."""
    try:
        with GatewayClient.for_target(target_of(attached)) as gateway:
            gateway.health()
    except GatewayUnavailableError:
        return False
    except GpuReleaseError:
        pass
    return True


def _put_back(home: HomePaths, attached: Connection, progress: Say) -> Deployed:
    """Put the gateway back as it was where its Ray was started anew, or find it where Ray has restarted it.

    Its ledger goes on: what waited in the queue waits, what ran is lost.
    """
    _check_reachable(attached.ray_address)
    progress(
        f"the gateway {attached.url} does not answer: looking for it on Ray, and putting it there anew if it is gone"
    )
    return ask_ray(home, settings_of(attached), "deploy")


def _in_the_way(running: Connection) -> str:
    what = "this machine's own cluster" if running.embedded else f"a gateway on {running.ray_address}"
    return f"{what} is in use already"


def _config(address: str, home: HomePaths, store: Path, asked: StartOptions, store_id: str) -> GatewayConfig:
    ray_host = address.rpartition(":")[0].strip("[]")
    cluster = secrets.token_hex(8)
    config = gateway_config(
        home,
        hosts=[ray_host],
        store=str(store),
        runtime=f"{runtime_root()}/jgr-{cluster[:8]}",
        ray_address=address,
        queues=asked.queues or "",
        **shared_by(Listening, asked),
        store_id=store_id,
        public_url=_public_url(ray_host, asked),
        cluster=cluster,
        embedded=False,
    )
    check_named_environments(config.named_environments)
    return config


def _public_url(ray_host: str, listening: Listening) -> str:
    """Address that clients connect to; empty: host and port as they are."""
    host, port = listening.host, listening.port
    if host in _LOOPBACK:
        if ray_host not in _LOOPBACK | _own_addresses():
            raise OptionError(
                f"the gateway would listen on {host} of {ray_host}, where this machine cannot reach it",
                hint="run this on the head node, or add --host 0.0.0.0 --port 8765",
            )
        return ""
    if not port:
        raise OptionError(f"--host {host} needs a port that clients can know", hint="add --port 8765")
    reachable = ray_host if host in _ALL else host
    scheme = "https" if listening.tls_cert else "http"
    return f"{scheme}://{f'[{reachable}]' if ':' in reachable else reachable}:{port}"


def _check_reachable(address: str) -> None:
    """Say at once that nobody is there; Ray's own clients try for a minute."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
    except OSError as error:
        raise ClusterError(
            f"no Ray cluster answers at {address}: {error.strerror or error}",
            hint="give the address of its GCS (`ray start --head` prints it; the port is 6379 unless chosen)",
        ) from error


def environment_for_ray(address: str) -> dict[str, str]:
    """Ray takes a loopback address for one of the machine's others, unless told that the cluster is on loopback."""
    host, _, port = address.rpartition(":")
    if host not in _LOOPBACK:
        return dict(os.environ)
    for other in _own_addresses() - _LOOPBACK:
        try:
            socket.create_connection((other, int(port)), timeout=_CONNECT_S).close()
        except OSError:
            continue
        return dict(os.environ)
    return {**os.environ, **LOOPBACK_ONLY}


def _own_addresses() -> set[str]:
    return {address.address for addresses in psutil.net_if_addrs().values() for address in addresses}


def ask_ray(
    home: HomePaths,
    config: GatewayConfig,
    action: str,
    limit_s: float = _LIMIT_S,
    environment: dict[str, str] | None = None,
) -> Deployed:
    """Run ``gateway.deploy``, ``upgrade`` or ``undeploy``: drivers that live for this one thing."""
    write_atomic(home.gateway_config, [msgspec.json.encode(config)], durable=False)
    command = [sys.executable, "-m", f"jupyter_gpu_release.gateway.{action}", str(home.gateway_config)]
    try:
        done = subprocess.run(
            command,
            env=environment or environment_for_ray(config.ray_address),
            capture_output=True,
            text=True,
            timeout=limit_s,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise ClusterError(
            f"Ray at {config.ray_address} did not answer within {limit_s:.0f} s",
            hint="check the address (HOST:PORT of the GCS), the network and RAY_AUTH_TOKEN_PATH",
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
        tls_cert=config.tls_cert,
        proxy_url=config.proxy_url,
    )
