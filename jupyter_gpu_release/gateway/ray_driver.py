"""Joining a Ray cluster as a driver; reading the gateway's configuration."""

from __future__ import annotations

import os
import platform
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import msgspec
import ray

from ..errors import AuthenticationError, ClusterError, GpuReleaseError
from ..protocol.config import Deployed, GatewayConfig
from .cluster.ray_calls import last_line

__all__ = ["Deployed", "GatewayConfig", "read_config"]


def read_config(path: Path) -> GatewayConfig:
    """Read the JSON file ``path``; raises :class:`ClusterError` naming it when it is missing or damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=GatewayConfig)
    except OSError as error:
        raise ClusterError(f"cannot read the gateway configuration {path}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise ClusterError(f"{path} is not a gateway configuration: {error}", hint="run `jupyter gpu start`") from error


_ADDRESS_MEND = "is it running, and is this its GCS address (host:port)?"
_REACH_S = 5.0


def run_as_command(work: Callable[[GatewayConfig], Deployed], name: str) -> int:
    """Do ``work`` as the file named on the command line says; whatever goes wrong is in the printed line."""
    with take_stdout() as answers:
        if len(sys.argv) != 2:
            return _say(_failed(ClusterError(f"usage: python -m {name} CONFIG.json")), answers)
        return answer_with(work, Path(sys.argv[1]), answers)


def take_stdout() -> BinaryIO:
    """Return standard output, for answers only: what Ray prints from now on, at its end too, is on standard error."""
    sys.stdout.flush()
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    return answers


def answer_with(work: Callable[[GatewayConfig], Deployed], config: Path, answers: BinaryIO) -> int:
    """Do ``work`` as the file ``config`` says, write to ``answers`` how it went, and return the exit status."""
    try:
        answer = work(read_config(config))
    except GpuReleaseError as error:
        answer = _failed(error)
    return _say(answer, answers)


def _failed(error: GpuReleaseError) -> Deployed:
    return Deployed(False, code=error.code, message=error.message, hint=error.hint)


def _say(answer: Deployed, answers: BinaryIO) -> int:
    answers.write(msgspec.json.encode(answer) + b"\n")
    ray.shutdown()  # takes a moment, for which nobody need wait
    return 0 if answer.ok else 1


def join_cluster(config: GatewayConfig) -> None:
    """Connect this process to the cluster as a driver; raises ClusterError or AuthenticationError with the mend."""
    _check_reachable(config.ray_address)
    mine = f"Ray {ray.__version__}, Python {platform.python_version()}"
    try:
        ray.init(address=config.ray_address, namespace=config.ray_namespace, log_to_driver=False, logging_level="ERROR")
    except ray.exceptions.AuthenticationError as error:
        raise AuthenticationError(
            f"the Ray cluster {config.ray_address} refuses our token: {last_line(error)}",
            hint="set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH to the cluster's token file",
        ) from error
    except (RuntimeError, ConnectionError, ValueError, ray.exceptions.RayError) as error:
        if "Version mismatch" in str(error):
            raise ClusterError(
                f"the Ray cluster {config.ray_address} has other versions than this machine ({mine}): "
                f"{_one_line(error)}",
                hint="install the cluster's Ray and Python versions here, or ours there",
            ) from error
        # Ray says the same for a wrong token and for a port that is no GCS; its reason is on stderr only
        raise AuthenticationError(
            f"something listens at {config.ray_address}, but it does not let us in as Ray: {last_line(error)}",
            hint="check the token (RAY_AUTH_TOKEN_PATH names its file), and that this is the GCS address (host:port)",
        ) from error


def _check_reachable(address: str) -> None:
    """Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_REACH_S):
            return
    except (OSError, ValueError) as error:
        raise ClusterError(f"cannot connect to the Ray cluster {address}: {error}", hint=_ADDRESS_MEND) from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:400]
