"""``start`` and ``stop``. Imported when it is needed: a program's start of a local cluster waits for nothing else."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

import msgspec

from .._version import __version__
from ..client.autostart import Failed, Progress, Ready
from ..client.home import Connection, HomePaths
from ..errors import ConflictError, GatewayUnavailableError, GpuReleaseError
from ..local_cluster.start import (
    Say,
    StartOptions,
    readable_connection,
    running_connection,
    start_embedded,
    stop_embedded,
)
from ..protocol.config import url_for_others

if TYPE_CHECKING:
    from ..client.rest import GatewayClient
    from ..protocol.rest import StatusDocument


def start(arguments: argparse.Namespace) -> int:
    """``jupyter gpu start``."""
    signal.signal(signal.SIGTERM, _interrupt)
    if arguments.progress_json:
        return _start_for_program(arguments)
    home = HomePaths.from_environment()
    with _progress() as say:
        ready = _start(arguments, home, say)
    _print_ready(ready, home, borrows=bool(arguments.slurm))
    return 0


def stop(arguments: argparse.Namespace) -> int:
    """``jupyter gpu stop``; says what it ended, and that there was nothing when there was nothing."""
    home = HomePaths.from_environment()
    began = time.monotonic()
    connection = readable_connection(home)
    if connection is not None and not arguments.yes and not _is_agreed(home, connection, drain=arguments.drain):
        _out("Nothing was stopped.")
        return 1
    if connection is not None and not connection.embedded:
        from ..local_cluster.existing_ray import detach

        with _progress() as say:
            detach(home, connection, say)
        _out(f"The gateway is gone from the Ray cluster at {connection.ray_address}; the cluster itself runs on.")
    report = stop_embedded(home)
    for line in report.jobs:
        _out(line)
    if report.processes:
        took = time.monotonic() - began
        _out(
            f"Stopped the cluster: {report.processes} processes ended in {took:.1f} s, its temporary files are removed."
        )
        _out(f"Results, the record of runs and logs stay in {home.root}; the next cluster here goes on with them.")
    elif connection is None:
        _out("No cluster was running.")
    elif connection.embedded:
        _out("The cluster was gone already; its connection file is removed.")
    return 0


def _is_agreed(home: HomePaths, connection: Connection, *, drain: bool) -> bool:
    """Tell if the cluster may end: no run is there that is not over, it was drained, or its user has said yes.

    Asked is this home's own cluster, whatever gateway is configured for notebooks. One that does not answer is dead.
    """
    from ..client.discovery import target_of
    from ..client.rest import GatewayClient
    from ..local_cluster.maintenance import kept_leases, unended_runs

    try:
        with GatewayClient.for_target(target_of(connection)) as gateway:
            status = _drain(gateway) if drain else gateway.status()
    except GatewayUnavailableError:
        return True
    except GpuReleaseError as error:
        if running_connection(home) is None:
            return True
        if drain:
            raise
        return _agree([f"what runs there, which is not known: {error.message}"])
    runs, kept = unended_runs(status), kept_leases(status)
    if runs and not drain:
        return _agree([*runs, *kept])
    for line in kept:
        _out(f"{line}: given back.")
    if runs:
        _out("These wait and end with the cluster, but for detached ones with --restartable or --retries:")
        sys.stdout.writelines(f"  {line}\n" for line in runs)
    return True


def _agree(lines: Sequence[str]) -> bool:
    """Have the user decide; raises :class:`ConflictError` where nobody can be asked."""
    said = "".join(f"\n  {line}" for line in lines)
    # IPython gives the commands of `!` a terminal on which nobody can type
    if not sys.stdin.isatty() or "JPY_PARENT_PID" in os.environ:
        raise ConflictError(
            f"the cluster is not stopped, since this would end with it:{said}",
            hint="`jupyter gpu stop --drain` waits until what runs has ended, `jupyter gpu stop --yes` ends it",
        )
    sys.stderr.write(f"This ends with the cluster (`stop --drain` waits until what runs has ended):{said}\n")
    sys.stderr.write("End it? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _drain(gateway: GatewayClient) -> StatusDocument:
    from ..local_cluster.maintenance import wait_until_drained

    for number in (signal.SIGTERM, signal.SIGHUP):  # the drain is taken back then, too
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, _interrupt)
    with _progress() as say:
        return wait_until_drained(gateway, say)


def _start(arguments: argparse.Namespace, home: HomePaths, say: Say) -> Ready:
    asked = StartOptions.read(vars(arguments))
    if arguments.upgrade:
        from ..local_cluster.maintenance import upgrade

        return upgrade(home=home, asked=asked, progress=say)
    if arguments.address:
        from ..local_cluster.existing_ray import attach

        return attach(arguments.address, home=home, asked=asked, progress=say)
    return start_embedded(home=home, asked=asked, progress=say)


def _start_for_program(arguments: argparse.Namespace) -> int:
    began = time.monotonic()

    def send(line: msgspec.Struct) -> None:
        sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
        sys.stdout.flush()

    try:
        send(_start(arguments, HomePaths.from_environment(), lambda text: send(Progress(text, _since(began)))))
    except GpuReleaseError as error:
        send(Failed(type(error).code, error.message, error.hint))
        return 1
    return 0


def _print_ready(ready: Ready, home: HomePaths, *, borrows: bool) -> None:
    connection = ready.connection
    if not connection.embedded:
        what = f"The gateway on the Ray cluster at {connection.ray_address}"
    else:
        what = "This machine's own cluster"
    gpus = f" with {ready.gpus} {'simulated ' if connection.simulated else ''}GPU{'' if ready.gpus == 1 else 's'}"
    if ready.replaced:
        _out(f"{what} has a gateway of version {__version__} now, {ready.replaced} before ({ready.elapsed_s:.1f} s).")
        _out("  Cells that ran go on; each node's agent follows as soon as nothing runs there.")
    elif ready.started:
        _out(f"{what} is ready{gpus if ready.gpus else ''} ({ready.elapsed_s:.1f} s).")
    else:
        _out(f"{what} runs already; it is used as it is.")
    if connection.version != __version__:
        _out(f"  Its gateway is of version {connection.version}, this is {__version__}: `jupyter gpu start --upgrade`.")
    if connection.simulated:
        _out("  Its GPUs are simulated: everything behaves the same, nothing is computed faster.")
    url = url_for_others(connection.url, socket.gethostname()) if connection.embedded else connection.url
    proxy = f" (others: {connection.proxy_url})" if connection.proxy_url else ""
    _out(f"  gateway  {url}{proxy}\n  token    {connection.token_file}\n  store    {connection.store}")
    if borrows:
        _out("  nodes    from Slurm: a cell that needs one has a job submitted to Slurm")
    _out("In a notebook of this machine, begin a cell with %%gpu_train")
    _out("(if unknown: %load_ext jupyter_gpu_release).")
    if connection.proxy_url or url_for_others(connection.url, "") != connection.url:
        _out("For users elsewhere make tokens: `jupyter gpu token create --user NAME --out FILE`.")
    _out(f"It ends with `jupyter gpu stop`; its state is in {home.root}.")


@contextmanager
def _progress() -> Iterator[Say]:
    """Yield what shows the progress: a spinner on a terminal, else one line a step, always on standard error."""
    from rich.console import Console

    console = Console(stderr=True)
    began = time.monotonic()
    if not console.is_terminal:
        said = ""

        def say(text: str) -> None:
            nonlocal said
            if text != said:  # a log is no place for a line a second
                console.print(f"[{_since(began):5.1f} s] {text}", markup=False, highlight=False)
            said = text

        yield say
        return
    with console.status("…") as status:
        yield lambda text: status.update(f"{text} …")


def _since(began: float) -> float:
    return round(time.monotonic() - began, 3)


def _out(text: str) -> None:
    sys.stdout.write(text + "\n")


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
