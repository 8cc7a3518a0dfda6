"""Start, find, stop the local cluster."""

from __future__ import annotations

import fcntl
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from ..checks.package import require_extra
from ..client.autostart import Ready, read_step
from ..client.home import Connection, HomePaths, read_secret, write_secret
from ..errors import AuthenticationError, ClusterError, ConflictError, GatewayUnavailableError, ImpossibleAskError
from ..host.environment import for_cluster
from ..host.gpus import Nvml
from ..host.process_control import CLUSTER_MARKER, is_gone
from ..protocol.config import GatewayConfig, Listening, shared_by
from ..settings.built_in import BUILT_IN
from ..settings.table import RELEASE
from ..units import format_count
from .launch_spec import LOOPBACK, LaunchSpec, make_runtime_folder, read_plans
from .preflight import (
    address_for_others,
    begin_store,
    check_host,
    check_listening,
    check_named_environments,
    read_queues,
)
from .processes import PLAN_FILE, cluster_processes, daemon_alive, keeps_results, remove_folder, sweep
from .settings import gateway_config
from .slurm_pool import check_jobs, end_jobs, head_address, read_pool


class StartOptions(Listening, frozen=True, kw_only=True):
    """The options of ``start``; None and the defaults of :class:`.Listening` leave it open."""

    gpus: int | None = None
    simulated: int | None = msgspec.field(default=None, name="simulated_gpus")
    store: str | None = None
    queues: str | None = None
    slurm: str | None = None

    @classmethod
    def read(cls, flags: Mapping[str, Any]) -> StartOptions:
        """Make them of the command line's flags, with whole paths; raises :class:`OptionError` for what cannot be.

        With ``address`` the gateway reads the queues file on another machine: what is not here may be there.
        """
        asked = msgspec.convert(flags, cls)
        for name in ("tls_cert", "tls_key", "queues"):
            if path := getattr(asked, name):
                asked = msgspec.structs.replace(asked, **{name: str(Path(path).expanduser().absolute())})
        asked = msgspec.structs.replace(asked, proxy_url=asked.proxy_url.rstrip("/"))
        check_listening(asked, allow_plain_text=flags.get("allow_plain_text", False))
        address: str = flags.get("address") or ""
        own_name = address.rpartition(":")[0].strip("[]") or socket.gethostname()
        asked = msgspec.structs.replace(asked, proxy_url=address_for_others(asked, own_name))
        if asked.queues and (Path(asked.queues).exists() or not address):
            read_queues(Path(asked.queues))  # a mistake in it is said before anything starts
        return asked

    def store_folder(self, home: HomePaths) -> Path:
        """Root of the store: what was asked for, else what the environment names, else one in the home."""
        named = self.store or os.environ.get(RELEASE["store"].variable) or home.store
        return Path(named).expanduser().absolute()

    def refuse_another(self, running: Connection) -> None:
        """Raise :class:`ConflictError` when the running cluster is not what was asked for in so many words."""
        for what in self._differences(running):
            raise ConflictError(
                f"a cluster with {what} runs already", hint="to change that: `jupyter gpu stop`, then start it anew"
            )

    def _differences(self, running: Connection) -> Iterator[str]:
        real_or_not = None if self.gpus is None and self.simulated is None else self.simulated is not None
        kind = "simulated GPU" if running.simulated else "real GPU"
        if real_or_not is not None and running.embedded and real_or_not != running.simulated:
            yield f"{kind}s"
        if self.store is not None and Path(self.store).absolute() != Path(running.store):
            yield f"the store {running.store}"
        if not running.embedded:
            yield from self._other_place(running, settings_of(running))
            return
        plan = next((plan for plan in read_plans() if plan.runtime == running.runtime), None)
        if plan is None:
            return
        if self.slurm is not None and read_pool(self.slurm) != plan.slurm:
            yield "another pool of Slurm's" if plan.slurm is not None else "no pool of Slurm's"
        if (self.simulated if self.gpus is None else self.gpus) not in (None, plan.gpus):
            yield format_count(plan.gpus, kind)
        yield from self._other_place(running, plan)

    def _other_place(self, running: Connection, served: LaunchSpec | GatewayConfig) -> Iterator[str]:
        if self.host not in (Listening().host, served.host):
            yield f"a gateway that listens on {served.host} alone"
        if self.port not in (0, served.port):
            yield f"its gateway at {running.url}"
        if self.queues not in (None, served.queues):
            yield f"the queues file {served.queues}" if served.queues else "no queues file"
        if self.tls_cert not in ("", served.tls_cert):
            yield f"the certificate {served.tls_cert}" if served.tls_cert else "a gateway without TLS"
        if self.proxy_url not in ("", served.proxy_url):
            yield f"the proxy {served.proxy_url}" if served.proxy_url else "a gateway without --proxy-url"


def settings_of(attached: Connection) -> GatewayConfig:
    """Read what the gateway was started with, from the file beside its token."""
    home = HomePaths(Path(attached.token_file).parent)
    try:
        return msgspec.json.decode(home.gateway_config.read_bytes(), type=GatewayConfig)
    except (OSError, msgspec.MsgspecError) as error:
        raise ClusterError(
            f"cannot read what the running gateway was started with: {error}", hint="run `jupyter gpu stop` first"
        ) from error


_STOP_LIMIT_S = 12.0
_LOCK_LIMIT_S = 180.0

Say = Callable[[str], None]


class StopReport(msgspec.Struct, frozen=True):
    """Counts of what ``stop`` ended: clusters, processes (the daemon counts too); ``jobs``: words on Slurm's jobs."""

    clusters: int = 0
    processes: int = 0
    jobs: tuple[str, ...] = ()


def start_embedded(*, home: HomePaths, asked: StartOptions, progress: Say) -> Ready:
    """Start the cluster, or find the running one (``started`` false). ``progress`` gets each step in words.

    Raises
    ------
    ImpossibleAskError, OptionError
        More real GPUs than there are; a host that is none of this machine's.
    ConflictError
        A cluster of another shape runs already.
    ClusterError, StoreError
        Packages of a cluster are not installed here. Nothing was started and nothing is left.
    """
    home.create()
    refuse_elsewhere(home)
    with start_lock(home, progress) as lock_fd:
        running = running_connection(home)
        if running is not None:
            asked.refuse_another(running)
            return Ready(running, started=False)
        require_extra("cluster", "a cluster on this machine")
        plan = _without_head(home, asked)
        if plan is None:
            _clear_dead(home, progress)
            plan = _plan(home, asked, progress)
        else:
            progress("this home's pool has lost its head, and goes on with a new one")
            _end_head(plan)
            plan = msgspec.structs.replace(plan, node=secrets.token_hex(28), daemon_pid=0)
        return _launch(plan, lock_fd, progress)


def _without_head(home: HomePaths, asked: StartOptions) -> LaunchSpec | None:
    """The pool of ``home`` whose nodes wait for another head; raises :class:`ConflictError` if another is asked for."""
    connection = readable_connection(home)
    for plan in read_plans(home):
        if connection is not None and plan.runtime == connection.runtime and plan.outlives_head:
            asked.refuse_another(connection)
            return plan
    return None


def running_connection(home: HomePaths) -> Connection | None:
    """The connection of a cluster whose daemon lives (or that is attached), else None."""
    connection = readable_connection(home)
    if connection is None or not connection.embedded:
        return connection
    return connection if daemon_alive(connection.daemon_pid, connection.cluster) else None


def stop_embedded(home: HomePaths) -> StopReport:
    """End every cluster of ``home``, also one whose daemon is dead; doing it twice is fine.

    Raises :class:`ConflictError`: its cluster is on another machine.
    """
    refuse_elsewhere(home)
    clusters, processes = 0, 0
    jobs: list[str] = []
    connection = readable_connection(home)
    plans = list(read_plans(home))
    found = {plan.cluster: (plan.daemon_pid, plan.runtime) for plan in plans}
    if connection is not None and connection.embedded:
        found.setdefault(connection.cluster, (connection.daemon_pid, connection.runtime))
    for cluster, (daemon_pid, runtime) in found.items():
        ended = _end_cluster(cluster, daemon_pid, runtime)
        if any(plan.cluster == cluster and plan.slurm is not None for plan in plans):
            end_jobs(cluster, jobs.append)
        processes += ended
        clusters += ended > 0
    _daemons[:] = [daemon for daemon in _daemons if daemon.poll() is None]
    if connection is None or connection.embedded:
        home.remove_connection()
    return StopReport(clusters, processes, tuple(jobs))


def refuse_elsewhere(home: HomePaths) -> None:
    """Raise :class:`ConflictError` if another machine has this home's cluster: from here its processes are not seen."""
    connection = readable_connection(home)
    if connection is not None and connection.host not in ("", socket.gethostname()):
        raise ConflictError(
            f"the cluster of this home was started on {connection.host}",
            hint=f"go on there; if that machine is gone for good, remove {home.connection}",
        )


def readable_connection(home: HomePaths) -> Connection | None:
    """The connection file's content; a damaged one is as good as none, start and stop put it right."""
    try:
        return home.read_connection()
    except GatewayUnavailableError:
        return None


def _plan(home: HomePaths, asked: StartOptions, progress: Say) -> LaunchSpec:
    config = gateway_config(home, store="", runtime="", ray_address="")  # a mistake is said before anything starts
    check_named_environments(config.named_environments)
    check_host(asked.host)
    pool = read_pool(asked.slurm) if asked.slurm else None
    if pool is None:
        count, is_simulated = choose_gpus(asked.gpus, asked.simulated)
        address = LOOPBACK
    else:
        count, is_simulated = 0, pool.simulated_gpus
        check_jobs(pool, home)
        address = head_address(pool, progress)
    folder = asked.store_folder(home)
    store_id = begin_store(home, folder)
    ensure_token(home, progress)
    write_secret(home.ray_token, secrets.token_urlsafe(32))
    return LaunchSpec(
        cluster=secrets.token_hex(8),
        node=secrets.token_hex(28),
        home=str(home.root),
        runtime=str(make_runtime_folder()),
        store=str(folder),
        store_id=store_id,
        gpus=count,
        simulated=is_simulated,
        cpus=len(os.sched_getaffinity(0)) if pool is None else 0,
        address=address,
        slurm=pool,
        queues=asked.queues or "",
        **shared_by(Listening, asked),
    )


def choose_gpus(gpus: int | None, simulated: int | None) -> tuple[int, bool]:
    """Number of GPUs that the cluster gets, and whether they are simulated; raises :class:`ImpossibleAskError`."""
    if simulated is not None:
        return simulated, True
    with closing(Nvml()) as nvml:
        reading = nvml.read()
    real = usable_gpus(len(reading.gpus))
    if gpus is None:
        return (real, False) if real else (BUILT_IN["simulated_gpus"].default, True)
    if gpus > real:
        why = f" ({reading.problem})" if reading.problem else ""
        raise ImpossibleAskError(
            f"--gpus {gpus}: this machine has {real} usable NVIDIA GPUs{why}",
            hint=f"ask for at most {real}, or use --simulated-gpus {gpus}" if real else f"use --simulated-gpus {gpus}",
        )
    return gpus, False


def usable_gpus(count: int) -> int:
    """Number of a machine's GPUs that this user's ``CUDA_VISIBLE_DEVICES`` leaves."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return count
    named = [entry for entry in visible.split(",") if entry.strip() and entry.strip() not in ("-1", "NoDevFiles")]
    if count and all(entry.strip().startswith("MIG-") for entry in named):  # several of one GPU
        return len(named)
    return min(count, len(named))


def ensure_token(home: HomePaths, progress: Say) -> None:
    """Make the gateway's token, unless there is one that nobody else could read."""
    try:
        read_secret(home.token)
    except AuthenticationError as error:
        if home.token.exists():
            progress(f"making a new gateway token: {error.message}")
        write_secret(home.token, secrets.token_urlsafe(32))


#: children that outlive whoever started them; kept, so that nobody takes one for forgotten (``ResourceWarning``)
_daemons: list[subprocess.Popen[bytes]] = []


def _launch(plan: LaunchSpec, lock_fd: int, progress: Say) -> Ready:
    read_fd, write_fd = os.pipe()
    try:
        daemon = _spawn_daemon(plan, write_fd, lock_fd)
    except OSError as error:
        os.close(read_fd)
        remove_folder(plan.runtime)
        raise ClusterError(f"cannot start a process: {error.strerror}") from error
    finally:
        os.close(write_fd)
    ready = False
    try:
        result = _follow(read_fd, plan, progress)
        ready = True
        _daemons.append(daemon)
        return result
    finally:
        if not ready:
            if plan.outlives_head:
                _end_head(msgspec.structs.replace(plan, daemon_pid=daemon.pid))
            else:
                _end_cluster(plan.cluster, daemon.pid, plan.runtime)
            daemon.wait()


def _spawn_daemon(plan: LaunchSpec, write_fd: int, lock_fd: int) -> subprocess.Popen[bytes]:
    plan.write()
    environment = for_cluster(os.environ) | {CLUSTER_MARKER: plan.cluster}
    command = [sys.executable, "-m", "jupyter_gpu_release.local_cluster.daemon", f"{plan.runtime}/{PLAN_FILE}"]
    with (plan.paths.log / "cluster-daemon.log").open("ab") as log:
        return subprocess.Popen(
            [*command, str(write_fd), str(lock_fd)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env=environment,
            pass_fds=(write_fd, lock_fd),
            start_new_session=True,
        )


def _follow(read_fd: int, plan: LaunchSpec, progress: Say) -> Ready:
    with os.fdopen(read_fd, "rb") as lines:
        for raw in lines:
            line = read_step(raw)
            if isinstance(line, Ready):
                return line
            if line is not None:
                progress(line.text)
    raise ClusterError("the start was stopped", hint=f"see {plan.paths.log / 'cluster-daemon.log'}, then start again")


def _clear_dead(home: HomePaths, progress: Say) -> None:
    """End what a cluster left whose daemon is dead (killed, or the machine was restarted)."""
    report = stop_embedded(home)
    for line in report.jobs:
        progress(line)
    if report.processes:
        progress(f"ended {report.processes} processes that an earlier cluster left behind")


def _end_head(plan: LaunchSpec) -> None:
    """End what is left of a pool's head, as if it had lost its power: its nodes go on waiting."""
    if daemon_alive(plan.daemon_pid, plan.cluster):
        os.kill(plan.daemon_pid, signal.SIGKILL)
    sweep(plan.cluster, plan.daemon_pid, plan.runtime, head_only=True)


def _end_cluster(cluster: str, daemon_pid: int, runtime: str) -> int:
    """End one cluster; returns the number of processes that it had."""
    count = len(cluster_processes(cluster, daemon_pid, runtime))
    if daemon_alive(daemon_pid, cluster):
        os.kill(daemon_pid, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_LIMIT_S
        while not is_gone(daemon_pid) and (time.monotonic() < deadline or keeps_results(cluster)):
            time.sleep(0.02)
    sweep(cluster, daemon_pid, runtime)
    folder = Path(runtime)
    if folder.name.startswith("jgr-"):
        remove_folder(folder)
    return count


@contextmanager
def start_lock(home: HomePaths, progress: Say) -> Iterator[int]:
    """Hold the start lock; waits for another start to end (its daemon holds the lock until it is ready)."""
    descriptor = os.open(home.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _acquire(descriptor, progress)
        yield descriptor
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, progress: Say) -> None:
    deadline = time.monotonic() + _LOCK_LIMIT_S
    told = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not told:
                progress("waiting for another start")
                told = True
        if time.monotonic() > deadline:
            raise ClusterError(
                f"another start has been going on for {_LOCK_LIMIT_S:.0f} s", hint="run `jupyter gpu stop` first"
            )
        time.sleep(0.05)
