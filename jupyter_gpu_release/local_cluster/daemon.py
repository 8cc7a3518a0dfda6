"""The cluster daemon: one detached process that starts Ray and the gateway, watches their processes and ends them.

``python -m jupyter_gpu_release.local_cluster.daemon PLAN.json REPORT_FD LOCK_FD``. It is a session leader and a child
subreaper, so whatever the cluster leaves behind becomes its child. It reports to the starter through a pipe
(the records of ``client.autostart``) and holds the start lock until the cluster answers.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

import msgspec
import psutil

from .._version import __version__
from ..client.autostart import Failed, Progress, Ready, StartLine
from ..client.home import Connection
from ..errors import ClusterError, GpuReleaseError, from_code
from ..host.process_control import become_subreaper
from ..protocol.config import ClusterSettings, Deployed, GatewayConfig, StartedRay, shared_by
from ..store.files import write_atomic
from .launch_spec import LaunchSpec
from .processes import reap_children, remove_folder, sweep
from .ray_head import (
    begin_fork_server,
    head_command,
    head_environment,
    ray_environment,
    read_import,
    reserve_port,
    write_stand_in,
)
from .settings import gateway_config
from .slurm_pool import end_jobs

#: without these two there is no Ray; the others are restarted by Ray or not needed
_VITAL = ("gcs_server", "raylet")
_RAY_START_LIMIT_S = 90.0
_DEPLOY_LIMIT_S = 120.0
_END_LIMIT_S = 10.0
#: between two looks at what is being loaded
_LOOK_S = 0.2
_GATEWAY_STEP = "starting the gateway and the node agent"


class _Stopped(BaseException):
    """SIGTERM (or SIGINT, SIGHUP) arrived."""


class ClusterDaemon:
    """Start, watch and end one cluster."""

    def __init__(self, plan: LaunchSpec, report_fd: int) -> None:
        self._plan = plan
        self._report_fd = report_fd
        self._began = time.monotonic()
        self._step = ""
        self._environment = ray_environment(plan, os.environ)
        #: the first fork server, which ends with this process until the agent has it
        self._early: subprocess.Popen[bytes] | None = None
        #: keeps the port of Ray's agent for runtime environments, which takes it when it has time
        self._reserved = reserve_port(plan.address)

    def start(self) -> None:
        """Start everything and write the connection file; raises :class:`GpuReleaseError`."""
        kind = "simulated GPU" if self._plan.simulated else "GPU"
        count = f"{self._plan.gpus} {kind}{'' if self._plan.gpus == 1 else 's'}"
        self._say(f"starting Ray with {count}; libraries are loaded meanwhile")
        write_stand_in(self._plan)
        self._early = begin_fork_server(self._plan, self._environment, self._gateway(""))
        command = head_command(self._plan, self._reserved.getsockname()[1])
        environment = head_environment(self._plan, self._environment)
        deployment = _Deployment(command, environment, Path(self._plan.runtime) / "deploy.log")
        address = deployment.wait_for_ray()
        self._say(_GATEWAY_STEP)
        deployed = self._deploy(address, deployment)
        self._plan = msgspec.structs.replace(self._plan, daemon_pid=os.getpid(), ray_address=address)
        self._plan.write()
        connection = self._connection(address, deployed)
        self._plan.paths.write_connection(connection)
        log(f"ready at {connection.url} after {self._elapsed():.1f} s")
        self._send(Ready(connection, started=True, gpus=self._plan.gpus, elapsed_s=self._elapsed()))
        deployment.wait_for_end()  # Ray's processes are this one's children from then on

    def watch(self) -> str:
        """Reap children until Ray is gone; returns the reason in words."""
        vital = self._vital_children()
        while set(vital.values()) == set(_VITAL):
            pid, status = os.waitpid(-1, 0)
            if pid in vital:
                return f"{vital[pid]} (pid {pid}) ended by itself, {_how(status)}"
        return "Ray's processes are not there"

    def end(self, reason: str, *, keep_logs: bool) -> None:
        """End every process, remove the files; ``keep_logs`` saves Ray's logs for ``doctor``."""
        log(f"ending: {reason}")
        self._plan.paths.remove_connection()
        count = sweep(self._plan.cluster, os.getpid(), self._plan.runtime)
        if self._plan.slurm is not None:
            end_jobs(self._plan.cluster, log)
        reap_children(1.0)
        if keep_logs:
            self._save_logs()
        remove_folder(self._plan.runtime)
        log(f"ended {count} processes")

    def end_after_failure(self, reason: str) -> None:
        """Keep Ray's logs for ``doctor`` and end everything, but for a pool's nodes: they wait for another head."""
        if not self._plan.outlives_head:
            self.end(reason, keep_logs=True)
            return
        log(f"the head ends: {reason}")
        sweep(self._plan.cluster, os.getpid(), self._plan.runtime, head_only=True)
        reap_children(1.0)
        self._save_logs()

    def fail(self, error: GpuReleaseError) -> None:
        """Tell the starter why there is no cluster."""
        hint = _MEND_POOL if self._plan.outlives_head else error.hint
        self._send(Failed(type(error).code, error.message, hint))

    def _deploy(self, address: str, deployment: _Deployment) -> Deployed:
        config = self._plan.paths.gateway_config
        write_atomic(config, [msgspec.json.encode(self._gateway(address))], durable=False)
        return deployment.carry_out(config, self._say_what_loads)

    def _say_what_loads(self) -> None:
        """The node takes cells once its libraries are there: the step names the one that is being loaded."""
        name = read_import(self._plan)
        step = f"{_GATEWAY_STEP}, loading {name}" if name else ""
        if step and step != self._step:
            self._say(step)

    def _gateway(self, address: str) -> GatewayConfig:
        plan = self._plan
        return gateway_config(
            plan.paths,
            spool=plan.paths.spool,
            store=plan.store,
            runtime=plan.runtime,
            ray_address=address,
            **shared_by(ClusterSettings, plan),
        )

    def _connection(self, address: str, deployed: Deployed) -> Connection:
        plan = self._plan
        return Connection(
            url=deployed.url,
            token_file=str(plan.paths.token),
            store=plan.store,
            simulated=plan.simulated,
            cluster=plan.cluster,
            runtime=plan.runtime,
            daemon_pid=os.getpid(),
            daemon_created=psutil.Process().create_time(),
            ray_address=address,
            ray_version=deployed.ray_version,
            python=deployed.python,
            version=__version__,
            tls_cert=plan.tls_cert,
            proxy_url=plan.proxy_url,
            host=socket.gethostname() if plan.slurm is not None else "",
        )

    def _vital_children(self) -> dict[int, str]:
        children = psutil.Process().children(recursive=False)
        return {child.pid: child.name() for child in children if child.name() in _VITAL}

    def _save_logs(self) -> None:
        target = self._plan.paths.log / "ray-of-the-last-crash"
        part = target.with_suffix(".part")  # whoever sees the report sees all of it
        for old in (target, part):
            shutil.rmtree(old, ignore_errors=True)
        for session in Path(self._plan.ray_folder).glob("session_*_*"):
            with suppress(OSError, shutil.Error):
                shutil.copytree(session / "logs", part, symlinks=True)
        with suppress(OSError):
            part.rename(target)

    def _say(self, text: str) -> None:
        self._step = text
        log(text)
        self._send(Progress(text, self._elapsed()))

    def _send(self, line: StartLine) -> None:
        # the starter may be gone (killed): the cluster is of use to the next one all the same
        with suppress(BrokenPipeError):
            os.write(self._report_fd, msgspec.json.encode(line) + b"\n")

    def _elapsed(self) -> float:
        return time.monotonic() - self._began


class _Deployment:
    """The process that starts Ray and the gateway on it; ends as the daemon's."""

    def __init__(self, command: list[str], environment: dict[str, str], errors: Path) -> None:
        self._errors = errors
        with errors.open("wb") as file:
            self._process = subprocess.Popen(
                command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file
            )

    def wait_for_ray(self) -> str:
        """Return Ray's address once it runs; raises :class:`ClusterError`."""
        said = self._read_line(_RAY_START_LIMIT_S, f"Ray did not start within {_RAY_START_LIMIT_S:.0f} s")
        if said:
            return msgspec.json.decode(said, type=StartedRay).ray_address
        status, found = self._process.wait(), self._found()
        why = found.strip().splitlines()[-1:] or ["it said nothing"]
        raise ClusterError(f"Ray did not start (exit status {status}): {why[0]}", hint=_MEND)

    def carry_out(self, config: Path, while_waiting: Callable[[], None]) -> Deployed:
        """Let it go on, and return its word; how long it takes to end is not waited for."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError), self._process.stdin as file:
            file.write(f"{config}\n")
        late = f"the gateway did not answer within {_DEPLOY_LIMIT_S:.0f} s"
        said = self._read_line(_DEPLOY_LIMIT_S, late, while_waiting)
        return read_deployed(said, self._found(), 0 if said else self._process.wait())

    def wait_for_end(self) -> None:
        """Have it ended; it has nothing left to do."""
        assert self._process.stdout is not None
        self._process.stdout.close()
        try:
            self._process.wait(_END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _found(self) -> str:
        """Errors that it wrote, which are logged."""
        found = self._errors.read_text(errors="replace")
        log(found)
        return found

    def _read_line(self, limit_s: float, late: str, while_waiting: Callable[[], None] = lambda: None) -> str:
        """Its next line; empty when it ends without."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + limit_s
        while not select.select([self._process.stdout], [], [], _LOOK_S)[0]:
            while_waiting()
            if time.monotonic() > deadline:
                raise ClusterError(late, hint=_MEND)
        return self._process.stdout.readline()


_MEND_POOL = "start it again, or give its nodes back: `jupyter gpu stop`"
_MEND = "see log/cluster-daemon.log below JUPYTER_GPU_HOME, and run `jupyter gpu doctor`"


def read_deployed(stdout: str, stderr: str, status: int) -> Deployed:
    """The record that ``gateway.deploy`` printed; raises the error that it names."""
    lines = stdout.strip().splitlines()
    try:
        deployed = msgspec.json.decode(lines[-1] if lines else b"", type=Deployed)
    except msgspec.MsgspecError:
        said = stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise ClusterError(f"the gateway did not start (exit status {status}): {said[0]}", hint=_MEND) from None
    if not deployed.ok:
        raise from_code(deployed.code, deployed.message, deployed.hint or _MEND)
    return deployed


def log(text: str) -> None:
    """Append to ``log/cluster-daemon.log`` (standard error was redirected there)."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    for line in text.strip().splitlines():
        sys.stderr.write(f"{stamp} [{os.getpid()}] {line}\n")
    sys.stderr.flush()


def _how(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    return f"killed by signal {-code}" if code < 0 else f"exit status {code}"


def _stop(number: int, frame: FrameType | None) -> NoReturn:
    raise _Stopped(signal.Signals(number).name)


def _handle(handler: signal.Handlers | object) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, handler)  # type: ignore[arg-type]


def main() -> int:
    """Process entry point."""
    plan = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=LaunchSpec)
    report_fd, lock_fd = int(sys.argv[2]), int(sys.argv[3])
    os.set_inheritable(report_fd, False)
    os.set_inheritable(lock_fd, False)
    become_subreaper()
    _handle(_stop)
    daemon = ClusterDaemon(plan, report_fd)
    keep_logs = True
    try:
        msgspec.structs.replace(plan, daemon_pid=os.getpid()).write()
        daemon.start()
        os.close(report_fd)
        os.close(lock_fd)
        reason = daemon.watch()
    except _Stopped as stopped:
        reason, keep_logs = str(stopped), False
    except GpuReleaseError as error:
        _handle(signal.SIG_IGN)
        daemon.end_after_failure(error.message)
        daemon.fail(error)
        return 1
    _handle(signal.SIG_IGN)
    if keep_logs:
        daemon.end_after_failure(reason)
    else:
        daemon.end(reason, keep_logs=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
